"""Moves idle buffers to host memory, or to hosts' disks, and back, to make room on devices; frees their memory.

A buffer is idle if it is ready, no admitted run or transfer uses it, and no view shares its memory; clients, and runs
that wait for admission, may hold it. The least recently used buffers are spilled first: to host memory, and to disk
where that is full. Both are counted and limited too, with one counter for each group of hosts with the same history.
The memory of a buffer that is restored is admitted together with the run that needs it, so a restore never waits for
memory while the run holds some.

If a run cannot be admitted, the controller asks in this order: Will enough memory be free when admitted runs end
(`LacksMemory.enough`)? If not, which buffers can be spilled (`victims`)? If too few, may something that runs or moves
free memory (`LacksMemory.running`, `busy`)? If not, it refuses the newest run that waits, and names the holders of the
memory (`holders_text`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from ..model import Atoms, Illegal, Spans, spans
from .buffers import Buffer, Buffers
from .ledger import Ledger, size_text


class HostBytes:
    """Counts what spilled buffers take of hosts: of their memory, or of their disks.

    `hosts(devices)` gives (hosts, how many of the devices each of them has). `capacity(hosts)` gives the bytes that
    each of these hosts has (the least, if they differ).
    """

    def __init__(self, hosts: Callable[[Spans], Iterable[tuple[Spans, int]]], capacity: Callable[[Spans], int]) -> None:
        self._hosts = hosts
        self._capacity = capacity
        self._atoms = Atoms()  # groups of hosts
        self._atoms.splits.append(lambda old, _: self._used.append(self._used[old]))
        self._used: list[int] = []  # by atom, on each host
        # devices -> (key of hosts, devices on each)
        self._parts: dict[Spans, tuple[tuple[int, int], ...]] = {}

    def fits(self, devices: Spans, nbytes: int) -> bool:
        return all(
            self._used[atom] + nbytes * each <= self._capacity(self._atoms.devices(atom))
            for key, each in self._parts_of(devices)
            for atom in self._atoms.of(key)
        )

    def add(self, devices: Spans, nbytes: int) -> None:
        for key, each in self._parts_of(devices):
            for atom in self._atoms.of(key):
                self._used[atom] += nbytes * each

    def counters(self) -> list[tuple[Spans, int]]:
        """Return (hosts, bytes on each of them)."""
        return [(self._atoms.devices(atom), used) for atom, used in enumerate(self._used)]

    def audit(self, name: str, held: Iterable[tuple[Spans, int]]) -> Iterator[tuple[str, int, int]]:
        """(what, counted, as a recount gives it); `held`: devices of what is there, and bytes for each of them."""
        recount = [0] * len(self._used)
        for devices, nbytes in held:
            for key, each in self._parts_of(devices):
                for atom in self._atoms.of(key):
                    recount[atom] += nbytes * each
        for (hosts, used), recounted in zip(self.counters(), recount, strict=True):
            yield f"{name} of hosts {spans.text(hosts)}", used, recounted

    def _parts_of(self, devices: Spans) -> tuple[tuple[int, int], ...]:
        parts = self._parts.get(devices)
        if parts is None:
            found = []
            for hosts, each in self._hosts(devices):
                found.append((self._atoms.intern_devices(hosts), each))
                self._used += [0] * (len(self._atoms) - len(self._used))
            parts = self._parts[devices] = tuple(found)
        return parts


class Spill:
    def __init__(self, atoms: Atoms, ledger: Ledger, buffers: Buffers, memory: HostBytes, disk: HostBytes) -> None:
        self._atoms = atoms
        self._ledger = ledger
        self._buffers = buffers
        self.memory, self.disk = memory, disk
        self.spilled_bytes: dict[int, int] = {}  # by client
        # buffers that are being spilled, perhaps without a holder by now
        self._spilling: dict[int, Buffer] = {}
        self._restoring: dict[int, Buffer] = {}  # buffers that are being restored, likewise

    # --- choosing -------------------------------------------------------------------------------------

    def victims(self, missing: Mapping[int, int], keep: Collection[int] = ()) -> tuple[Buffer, ...] | None:
        """Return idle buffers that free the `missing` bytes (by atom) if they are spilled, but none of `keep`.

        Return () if the buffers that are being spilled already are enough. Return None if all idle buffers are not
        enough, or if hosts have no room for them.
        """
        lacking = dict(missing)
        for buffer in (*self._spilling.values(), *self._restoring.values()):
            if buffer.on_device and (buffer.id in self._spilling or not buffer.references):
                self._relieve(lacking, buffer)
        chosen: list[tuple[Buffer, HostBytes]] = []
        if lacking:  # several that are counted as one need not all go
            self._buffers.open(lambda b: self.is_idle(b) and b.id not in keep and self._helps(missing, b))
        for buffer in sorted(self._buffers, key=lambda buffer: (buffer.last_used, buffer.id)):
            if not lacking:
                break
            if self.is_idle(buffer) and buffer.id not in keep and self._helps(lacking, buffer):
                room = self.room(buffer)
                if room is not None:
                    room.add(self._devices(buffer), buffer.nbytes)
                    self._relieve(lacking, buffer)
                    chosen.append((buffer, room))
        for buffer, room in chosen:
            room.add(self._devices(buffer), -buffer.nbytes)
        return None if lacking else tuple(buffer for buffer, _ in chosen)

    def is_idle(self, buffer: Buffer) -> bool:
        at_rest = buffer.state == "ready" and buffer.on_device and not buffer.users
        return at_rest and not buffer.shared and not buffer.sources

    def room(self, buffer: Buffer) -> HostBytes | None:
        """Where it goes on its hosts: to their memory; or to their disks, if that is full; None: neither has room."""
        devices = self._devices(buffer)
        return next((each for each in (self.memory, self.disk) if each.fits(devices, buffer.nbytes)), None)

    def _helps(self, lacking: Mapping[int, int], buffer: Buffer) -> bool:
        return any(atom in lacking for atom in self._atoms.of(buffer.key))

    def _relieve(self, lacking: dict[int, int], buffer: Buffer) -> None:
        for atom in self._atoms.of(buffer.key):
            if atom in lacking:
                lacking[atom] -= buffer.nbytes
                if lacking[atom] <= 0:
                    del lacking[atom]

    def busy(self, missing: Mapping[int, int]) -> bool:
        """Whether buffers on these devices are used, being copied or not filled yet. They will become free or idle."""
        used = [b for b in self._buffers if b.on_device and (b.users or b.state == "promised")]
        copied = (*self._spilling.values(), *self._restoring.values())
        return any(self._helps(missing, buffer) for buffer in (*used, *copied))

    def holders_text(self, missing: Mapping[int, int], client_text: Callable[[int], str], most: int = 5) -> str:
        """Return a text that names the holders of the missing memory, the largest first."""
        self._buffers.open(lambda b: b.on_device and self._helps(missing, b))
        found = [b for b in self._buffers if b.on_device and not b.sources and self._helps(missing, b)]
        found.sort(key=lambda buffer: (-buffer.nbytes, buffer.id))
        held = [
            f"{client_text(b.client)} holds buffer {b.name} ({size_text(b.nbytes)}"
            f"{', which a view shares' if b.shared else ''})"
            for b in found[:most]
        ]
        rest = [f"and {len(found) - most} more"] if len(found) > most else []
        atom, lack = max(missing.items(), key=lambda item: (item[1], -item[0]))
        where = spans.text(self._atoms.devices(atom))
        return f"{size_text(lack)} too few on each of devices {where}: " + (
            ", ".join(held + rest) or "no buffer is there"
        )

    # --- moving ---------------------------------------------------------------------------------------

    def begin(self, buffer: Buffer) -> None:
        """Begin to spill a buffer: it takes its place on its hosts now, and its device memory is free after the copy.
        Where that is, is in `buffer.on_disk`."""
        if not self.is_idle(buffer):
            raise Illegal(f"buffer {buffer.id} is in use, or not on the devices")
        buffer.turn("spill")
        buffer.copying = buffer.on_host = True
        buffer.on_disk = buffer.on_disk or self.room(buffer) is self.disk
        self._spilling[buffer.id] = buffer
        self._count(buffer, buffer.nbytes)

    def found_spilled(self, buffer: Buffer, on_disk: bool, mixed: bool) -> None:
        """Enter a buffer that a restarted controller has found spilled on its hosts. `mixed`: only on some, and it is
        about to go to the same place on all."""
        buffer.on_disk = on_disk
        if mixed:
            return
        buffer.turn("spill")
        buffer.turn("copied")
        buffer.on_device, buffer.on_host = False, True
        self._count(buffer, buffer.nbytes)

    def spilled(self, buffer: Buffer) -> None:
        """The SpillStep has ended. The buffer may have been poisoned or dropped meanwhile."""
        self._copied(buffer)
        del self._spilling[buffer.id]
        self._free_device(buffer, -1)
        if not buffer.references:
            self.drop(buffer)

    def restore(self, buffer: Buffer) -> None:
        """Begin to restore a buffer. Its memory was counted as an arrival when the run that needs it was admitted."""
        buffer.turn("restore")
        buffer.copying, buffer.on_device = True, not buffer.taken
        self._restoring[buffer.id] = buffer

    def restored(self, buffer: Buffer) -> None:
        """The RestoreStep has ended."""
        self._copied(buffer)
        del self._restoring[buffer.id]
        self._free_host(buffer)
        if not buffer.references:
            self.drop(buffer)

    def drop(self, buffer: Buffer) -> None:
        """Free a buffer's memory behind the last gang that touches it, or after the copy if it is being copied.

        Call this if no reference is left, or if the buffer is poisoned and its contents will never be needed.
        """
        if not buffer.copying:
            self._free_device(buffer, buffer.last_seq)
            self._free_host(buffer)

    def _copied(self, buffer: Buffer) -> None:
        if not buffer.copying:
            raise Illegal(f"buffer {buffer.id} is not being copied")
        buffer.copying = False
        buffer.turn("copied")

    def _free_device(self, buffer: Buffer, after: int) -> None:
        if buffer.on_device:
            buffer.on_device = False
            self._ledger.free(buffer.key, buffer.nbytes, after)

    def _free_host(self, buffer: Buffer) -> None:
        if buffer.on_host:
            self._count(buffer, -buffer.nbytes)
            buffer.on_host = buffer.on_disk = False

    def _count(self, buffer: Buffer, nbytes: int) -> None:
        """So many bytes for each of its devices are on its hosts from now on."""
        devices, client = self._devices(buffer), buffer.client
        (self.disk if buffer.on_disk else self.memory).add(devices, nbytes)
        self.spilled_bytes[client] = self.spilled_bytes.get(client, 0) + nbytes * spans.count(devices)
        if not self.spilled_bytes[client]:
            del self.spilled_bytes[client]

    def _devices(self, buffer: Buffer) -> Spans:
        return self._atoms.devices_of_key(buffer.key)

    def audit(self) -> Iterator[tuple[str, int, int]]:
        """(what, counted, as a recount gives it)."""
        found = {buffer.id: buffer for buffer in (*self._buffers, *self._spilling.values(), *self._restoring.values())}
        for name, each, on_disk in (("memory", self.memory, False), ("disk", self.disk, True)):
            gone = [b for b in found.values() if b.on_host and b.on_disk == on_disk]
            yield from each.audit(f"bytes in host {name}", [(self._devices(b), b.nbytes) for b in gone])
