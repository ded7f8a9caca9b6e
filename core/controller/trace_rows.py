"""Records for the trace what the controller sees: when a gang was ready, entered, and was reported over.

Modules tell the trace itself (`Tracing.trace`) what needs no working out, such as that a run has ended. Drivers see
more (when a device started, when it ended): they fill a trace of their own, and the two are merged. Times that the
controller merely heard of are flagged as worked out.
"""

from ..memory import Ledger
from ..model import Atoms, Gang, Layout, Place, Spans, Value, device_spans, shard_bytes, spans
from ..record import ENDED, FAILED, LOST, Trace
from .records import ClientRecord, InFlight, RunRecord
from .state import ControllerModule, State

KEPT = 64  # layouts that are remembered
_NOWHERE = -1  # is no place; below it are those of our own


class Tracing(ControllerModule):
    _state: State
    _atoms: Atoms
    _ledger: Ledger
    trace: Trace
    # By atom: the devices it last had, the place it was recorded as, and its level.
    _levels: dict[int, tuple[Spans, int, tuple[int, int, int]]] = {}
    _own: int = 0  # places that are nobody's slice
    _mine: dict[Spans, int] = {}  # the keys of these
    # of puts and gets, by layout: the key of its place, the bytes of a shard, and those of all of it
    _layouts: dict[Layout, tuple[int, int, int]] = {}
    _reserved: dict[tuple[Spans, int], int] = {}  # (devices, client) -> number of the row

    def entered(self, entry: InFlight, run: RunRecord, key: int, ready: int) -> None:
        step = run.rows.plan.steps[entry.step]
        if isinstance(step, Gang):
            if key not in self.trace.places:
                self._place(key, step.place)
            self.trace.gang(entry.seq, run.id, step.name, entry.island, key, ready=ready, entered=entry.entered)

    def moved(
        self, entry: InFlight, run: RunRecord, keys: tuple[int, int], places: tuple[Place, Place], each: int
    ) -> None:
        """`keys`: of the places it goes from and to; `each`: bytes for each device. A transfer's row goes by the number
        of its sending half."""
        for key, place in zip(keys, places, strict=True):
            self._place(key, place)
        name, nbytes = run.plan.steps[entry.step].name, each * places[1].size
        self.trace.transfer(entry.transfer, run.id, name, *keys, nbytes=nbytes, entered=entry.entered)

    def with_client(self, entry: InFlight, session: ClientRecord, layout: Layout, one_shard: bool = False) -> None:
        """A put, or a get: contents come from a client, or go to one."""
        found = self._layouts.get(layout)
        if found is None:
            key, whole = self._atoms.intern(layout.place), Value(layout.shape, layout.dtype).nbytes
            self._place(key, layout.place)
            if len(self._layouts) >= KEPT:
                self._layouts.clear()
            found = self._layouts[layout] = key, shard_bytes(layout), whole
        key, shard, whole = found
        if entry.kind == "put":
            source, target, nbytes = -1, key, shard * layout.place.size
        else:
            source, target, nbytes = key, -1, shard if one_shard else whole
        self.trace.transfer(
            entry.transfer, -1, entry.kind, source, target, nbytes=nbytes, client=session.number, entered=entry.entered
        )

    def reserved(self, devices: Spans, client: int) -> None:
        """The policy keeps these devices free from now on, for a client or (-1) for nobody in particular."""
        self._reserved[devices, client] = self.trace.reserved(self._key_of(devices), client, self._state.now)

    def unreserved(self, devices: Spans, client: int) -> None:
        self.trace.reserved_until(self._reserved.pop((devices, client)), self._state.now)

    def lost(self, devices: Spans) -> None:
        """These devices are gone, or their host has left."""
        self.back(devices)  # one by one, some may have been lost before
        self.reserved(devices, LOST)

    def back(self, devices: Spans) -> None:
        for key in [key for key in self._reserved if key[1] == LOST and spans.overlap(key[0], devices)]:
            self.unreserved(*key)

    def over(self, entry: InFlight) -> None:
        if entry.kind != "send":
            failed = FAILED if entry.blame is not None else 0
            seq = entry.seq if entry.transfer < 0 else entry.transfer
            self.trace.update(seq, ENDED | failed, ended=self._state.now)

    def levels(self) -> None:
        """At the end of a turn: memory whose counters have changed, for each set of devices that no slice has told
        apart. What was cut in two since is counted in its parts from here on, and its own row ends with no capacity."""
        ledger = self._ledger
        touched, ledger.touched = ledger.touched, {}
        recorded, now = self._levels, self._state.now
        rows: list[tuple[int, int, int, int, int]] = []
        for atom, devices, level in ledger.counters_of(touched):
            known = recorded.get(atom)
            if known is not None and (known[0] is devices or known[0] == devices):
                key = known[1]
                if known[2] == level:
                    continue
            else:
                if known is not None:
                    rows.append((now, known[1], 0, 0, 0))
                key = self._key_of(devices)
            recorded[atom] = devices, key, level
            rows.append((now, key, *level))
        if rows:
            self.trace.levels(rows)

    def _key_of(self, devices: Spans) -> int:
        """The key of the place with just these devices; a key made here if there is no such place."""
        key = self._atoms.known(devices)
        if key is None:
            key = self._mine.get(devices)
        if key is None:
            self._own += 1
            key = self._mine[devices] = _NOWHERE - self._own
        if key not in self.trace.places:
            island = self._state.cluster.island_of_device(devices[0][0])
            self.trace.place(key, island.index, devices, island.devices_per_host, island.base_device)
        return key

    def _place(self, key: int, place: Place) -> None:
        if key not in self.trace.places:
            island = self._state.cluster.islands[place.island]
            self.trace.place(key, island.index, device_spans(place), island.devices_per_host, island.base_device)
