"""Makes room: idle buffers go to host DRAM and come back when a run needs them; and what a buffer took is
given back.

Idle is what is ready and used by nobody who is on his way: held by clients, or by runs that wait for
admission. The least recently used go first. Host DRAM is accounted and limited too, by host (groups of
hosts with one history are one counter, as for devices). A buffer that comes back is part of the demand of
the run that needs it: it is admitted with the run or not at all, so coming back never waits while it holds
something.

Whoever cannot be admitted asks, in this order: will what runs give enough back (`Short.enough`)? Else, what
can be spilled (`victims`)? Else, does anything run, or leave, that may free memory (`Short.running`,
`leaving`)? Only if not is the newest waiter refused, and told who holds the memory (`holders_text`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from ..model import Atoms, Illegal, Spans, spans
from .buffers import Buffer, Buffers
from .ledger import Ledger, size_text


class HostMemory:
    """DRAM for spilled buffers. `hosts(devices)`: (hosts, how many of the devices each of them has);
    `capacity`: of each of these hosts (the least)."""

    def __init__(
        self, hosts: Callable[[Spans], Iterable[tuple[Spans, int]]], capacity: Callable[[Spans], int]
    ) -> None:
        self._hosts = hosts
        self._capacity = capacity
        self._atoms = Atoms()  # of hosts
        self._atoms.splits.append(lambda old, _: self._used.append(self._used[old]))
        self._used: list[int] = []  # by atom, on each host
        self._parts: dict[Spans, tuple[tuple[int, int], ...]] = {}  # devices -> (key, devices a host)

    def fits(self, devices: Spans, nbytes: int) -> bool:
        return all(
            self._used[atom] + nbytes * each <= self._capacity(self._atoms.devices(atom))
            for key, each in self._of(devices)
            for atom in self._atoms.of(key)
        )

    def add(self, devices: Spans, nbytes: int) -> None:
        for key, each in self._of(devices):
            for atom in self._atoms.of(key):
                self._used[atom] += nbytes * each

    def counters(self) -> list[tuple[Spans, int]]:
        """(hosts, bytes on each)."""
        return [(self._atoms.devices(atom), used) for atom, used in enumerate(self._used)]

    def _of(self, devices: Spans) -> tuple[tuple[int, int], ...]:
        parts = self._parts.get(devices)
        if parts is None:
            found = []
            for hosts, each in self._hosts(devices):
                found.append((self._atoms.intern_devices(hosts), each))
                self._used += [0] * (len(self._atoms) - len(self._used))
            parts = self._parts[devices] = tuple(found)
        return parts


class Spill:
    def __init__(self, atoms: Atoms, ledger: Ledger, buffers: Buffers, host: HostMemory) -> None:
        self._atoms = atoms
        self._ledger = ledger
        self._buffers = buffers
        self._host = host
        self._leaving: dict[int, Buffer] = {}  # being spilled; perhaps nobody holds it any more
        self._coming: dict[int, Buffer] = {}  # being restored; likewise

    # --- choosing -------------------------------------------------------------------------------------

    def victims(self, missing: Mapping[int, int], keep: Collection[int] = ()) -> tuple[Buffer, ...] | None:
        """Idle buffers to spill so that `missing` (by atom) comes free; `keep` not. (): what is being
        spilled already will do. None: all that is idle is not enough, or host DRAM is full."""
        lacking = dict(missing)
        for buffer in (*self._leaving.values(), *self._coming.values()):
            if buffer.on_device and (buffer.id in self._leaving or not buffer.count):
                self._relieve(lacking, buffer)
        chosen: list[Buffer] = []
        for buffer in sorted(self._buffers, key=lambda buffer: (buffer.last_used, buffer.id)):
            if not lacking:
                break
            if self.is_idle(buffer) and buffer.id not in keep and self._helps(lacking, buffer):
                if self._host.fits(self._devices(buffer), buffer.nbytes):
                    self._host.add(self._devices(buffer), buffer.nbytes)
                    self._relieve(lacking, buffer)
                    chosen.append(buffer)
        for buffer in chosen:
            self._host.add(self._devices(buffer), -buffer.nbytes)
        return None if lacking else tuple(chosen)

    def is_idle(self, buffer: Buffer) -> bool:
        return buffer.state == "ready" and buffer.on_device and not buffer.users

    def _helps(self, lacking: Mapping[int, int], buffer: Buffer) -> bool:
        return any(atom in lacking for atom in self._atoms.of(buffer.key))

    def _relieve(self, lacking: dict[int, int], buffer: Buffer) -> None:
        for atom in self._atoms.of(buffer.key):
            if atom in lacking:
                lacking[atom] -= buffer.nbytes
                if lacking[atom] <= 0:
                    del lacking[atom]

    def busy(self, missing: Mapping[int, int]) -> bool:
        """Whether buffers there are in use, on their way or not filled yet: each will come free, or become
        idle."""
        moving = [b for b in self._buffers if b.on_device and (b.users or b.state == "promised")]
        copied = (*self._leaving.values(), *self._coming.values())
        return any(self._helps(missing, buffer) for buffer in (*moving, *copied))

    def holders_text(
        self, missing: Mapping[int, int], client_text: Callable[[int], str], most: int = 5
    ) -> str:
        """Who holds the memory that is missing, largest first."""
        found = [b for b in self._buffers if b.on_device and self._helps(missing, b)]
        found.sort(key=lambda buffer: (-buffer.nbytes, buffer.id))
        held = [
            f"{client_text(b.client)} holds buffer {b.name} ({size_text(b.nbytes)})" for b in found[:most]
        ]
        rest = [f"and {len(found) - most} more"] if len(found) > most else []
        atom, lack = max(missing.items(), key=lambda item: (item[1], -item[0]))
        where = spans.text(self._atoms.devices(atom))
        return f"{size_text(lack)} too few on each of devices {where}: " + (
            ", ".join(held + rest) or "nobody's"
        )

    # --- moving ---------------------------------------------------------------------------------------

    def begin(self, buffer: Buffer) -> None:
        """It is to be spilled: DRAM is taken now, device memory comes free when it has been copied."""
        if not self.is_idle(buffer):
            raise Illegal(f"buffer {buffer.id} is in use, or not on the devices")
        buffer.turn("spill")
        buffer.copying = buffer.on_host = True
        self._leaving[buffer.id] = buffer
        self._host.add(self._devices(buffer), buffer.nbytes)

    def found_spilled(self, buffer: Buffer) -> None:
        """By a controller that has been started again: its hosts have it in DRAM."""
        buffer.turn("spill")
        buffer.turn("copied")
        buffer.on_device, buffer.on_host = False, True
        self._host.add(self._devices(buffer), buffer.nbytes)

    def spilled(self, buffer: Buffer) -> None:
        """The SpillStep is over. Somebody may have spoilt or dropped it meanwhile."""
        self._copied(buffer)
        del self._leaving[buffer.id]
        self._free_device(buffer, -1)
        if not buffer.count:
            self.drop(buffer)

    def restore(self, buffer: Buffer) -> None:
        """It is to come back; its memory was counted when the run that needs it was admitted (an arrival)."""
        buffer.turn("restore")
        buffer.copying, buffer.on_device = True, not buffer.taken
        self._coming[buffer.id] = buffer

    def restored(self, buffer: Buffer) -> None:
        """The RestoreStep is over."""
        self._copied(buffer)
        del self._coming[buffer.id]
        self._free_host(buffer)
        if not buffer.count:
            self.drop(buffer)

    def drop(self, buffer: Buffer) -> None:
        """Nobody holds it any more, or nobody will ever need its (poisoned) contents: what it takes is free
        behind the last gang that touches it; while it is being copied, once it has been."""
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
            buffer.on_host = False
            self._host.add(self._devices(buffer), -buffer.nbytes)

    def _devices(self, buffer: Buffer) -> Spans:
        return self._atoms.devices_of_key(buffer.key)
