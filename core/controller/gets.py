"""Gets: a client reads contents of a buffer. They move from the hosts to the client, never through the controller.

A get is a send from the hosts that have distinct shards; it holds the buffer until the client has all of it. If the
step that makes the buffer is in the order, the get enters behind it, and hosts send when that step has run there.
Another host may fail it still, so the client hears `GetSettled` when the buffer is ready, or never will be. Otherwise,
and where only the step's end says how large the buffer is, a get waits (`BufferName.gets`) until the buffer has
contents. What was spilled comes back to the devices first.

Neighbours: `clients` brings calls; `outcomes` and `completion` say what is ready; `admission` brings back.
The functions that matter: `get`, `ready`, `over`.
"""

from ..memory import Buffers
from ..model import Layout, Shards, Spans
from ..protocol import Blame, Get, GetAccepted, Refused, SendStep
from ..transfer import ALL, senders_to_client
from .admission import Admission
from .buffer_names import BufferNames
from .buffer_refs import BufferRefs
from .in_flight import InFlightTable
from .outbox import TurnOutbox
from .records import BufferName, ClientRecord, InFlight, WaitingGet
from .state import ControllerModule, State
from .trace_rows import Tracing

KEPT = 64  # layouts whose senders are remembered: a loop reads arrays of a few kinds


class Gets(ControllerModule):
    _state: State
    _admission: Admission
    _buffers: Buffers
    _in_flight: InFlightTable
    _names: BufferNames
    _outbox: TurnOutbox
    _refs: BufferRefs
    _tracing: Tracing | None
    _senders: dict[Layout, Spans] = {}

    def get(self, session: ClientRecord, call: Get, now: int) -> str | None:
        """Returns what is wrong with the call, if the client broke the protocol."""
        found = self._names.called(session, call.buffer)
        named = found[0] if found is not None else None
        if named is None or named.released:
            return f"it gets buffer {call.buffer}, which it does not hold"
        if named.blame is not None:
            self._outbox.note(session.peer, Refused("get", call.request, named.blame))
        elif named.buffer >= 0 and (named.ready or self._on_its_way(named.buffer)):
            self._send(WaitingGet(session, call), named, now)
        else:
            named.gets.append(WaitingGet(session, call))
        return None

    def _on_its_way(self, buffer: int) -> bool:
        """Whether the step that makes it is in the order, and all is known of what it makes."""
        record = self._buffers.all[buffer]
        return record.made and record.exact and not record.sources

    def ready(self, named: BufferName, now: int) -> None:
        """Answer the gets that waited for a buffer: it has contents now, or never will."""
        if named.blame is not None:
            self._refs.refuse_gets(named, named.blame)
        gets = named.take_gets()
        for each in gets:
            if each.transfer >= 0:
                self._refs.settle_get(each, each.blame)
            else:
                self._send(each, named, now)
        if gets and named.released and not named.gets:
            self._refs.drop(named)

    def _send(self, get: WaitingGet, named: BufferName, now: int) -> None:
        """Early, if the buffer is not ready."""
        session, call, buffer = get.session, get.call, named.buffer
        record = self._buffers.all[buffer]
        layout = record.layout
        if buffer in self._state.asleep:
            named.gets.append(get)
            return
        if record.state in ("spilling", "spilled", "restoring"):
            named.gets.append(get)
            self._admission.bring_back(named, now)
            return
        if call.shard != ALL and not 0 <= call.shard < Shards(layout).count:
            text = f"buffer {call.buffer} has no shard {call.shard}: it has {Shards(layout).count}, numbered from 0"
            self._outbox.note(session.peer, Refused("get", call.request, Blame("refused", text)))
            return
        hosts, seq = self._senders_of(layout, call.shard), self._state.next_seq
        self._state.next_seq += 1
        self._refs.hold_for_transfer(buffer)
        self._buffers.touch(buffer, seq)
        step = SendStep(seq, -1, buffer, hosts, seq, session.number, call.shard)
        self._outbox.step(layout.place.island, step, hosts)
        entry = InFlight(
            seq, "get", layout.place.island, hosts, hosts, hosts, now, now,
            buffer=buffer, transfer=seq, cost=record.nbytes * self._state.config.bounds.byte, session=session,
            shard=call.shard, request=call.request, early=None if named.ready else get,
        )  # fmt: skip
        if self._tracing is not None:
            self._tracing.with_client(entry, session, layout, one_shard=call.shard != ALL)
        self._in_flight.add(entry, now)
        self._outbox.note(
            session.peer, GetAccepted(call.request, seq, layout, record.rows, call.shard, not named.ready)
        )
        if not named.ready:
            get.transfer = seq
            named.gets.append(get)

    def _senders_of(self, layout: Layout, shard: int) -> Spans:
        if shard != ALL:
            return senders_to_client(layout, self._state.cluster, shard)
        found = self._senders.get(layout)
        if found is None:
            if len(self._senders) >= KEPT:
                self._senders.clear()
            found = self._senders[layout] = senders_to_client(layout, self._state.cluster)
        return found

    def copied(self, buffer: int, now: int) -> None:
        """It is on the devices again, or in host memory."""
        named = self._refs.named(buffer)
        for each in (named, *named.others) if named is not None else ():
            if each.gets:
                self.ready(each, now)

    def over(self, entry: InFlight) -> None:
        if entry.early is not None and not entry.early.over:
            entry.early.blame = entry.blame
        elif entry.blame is not None and entry.session is not None:
            self._outbox.note(entry.session.peer, Refused("sending", entry.request, entry.blame))
        self._refs.transfer_over(entry.buffer)
