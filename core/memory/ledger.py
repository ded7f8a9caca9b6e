"""Admits runs: the ledger counts the device memory that is in use and that admitted runs may still add.

A device runs gangs in its island's order, so memory is counted *at the tail of the order*: what gang 7 makes is there
once gang 7 has entered, and what gang 7 is the last to read is free for gang 8, though neither has run. All amounts
are bytes on each device of an atom (atoms.py). For each atom the ledger keeps

    resident    the memory in use behind the last gang of the order
    committed   `resident`, plus the most that admitted runs may still add (footprint.py)
    extras      for each admitted run: by how much its remaining gangs exceed this while they have scratch memory

A run is admitted on all its islands at once or not at all. It is admitted if `committed + max(extras) <= capacity`
everywhere. The maximum is enough, because a device runs one gang at a time, so only one gang has scratch memory. As
steps enter, a run's share of `committed` can only fall. So whatever order the scheduler chooses, every step of an
admitted run finds its memory. A run waits for memory only before it is admitted, when it holds none; a step that has
entered never waits for memory that only another admission could free.

Transfers bring memory at any time and not in order. See `after`, and atom_memory.py for why this cannot deadlock.
"""

from collections.abc import Callable, Iterable, Set

import msgspec

from ..model import Atoms, Illegal, Spans, spans
from .atom_memory import AtomMemory
from .footprint import BEFORE, NEVER, Footprint, Timeline, Touch

Amounts = Iterable[tuple[int, int]]  # (place key, bytes on each device)


class LacksMemory(msgspec.Struct, frozen=True):
    """The run does not fit now."""

    missing: dict[int, int]  # atom -> bytes that must become free first
    running: bool  # whether admitted runs use the devices that are short of memory, so that waiting can help
    enough: bool  # whether enough memory is free once all admitted runs have ended


class NeverFits(msgspec.Struct, frozen=True):
    """The run would not fit even if it were alone."""

    text: str


class RunMemory(msgspec.Struct, eq=False):
    """The memory that an admitted run has reserved and used. Lists are by group of its footprint; two of them are the
    footprint's own until the run is told of something that changes them."""

    footprint: Footprint
    timelines: list[Timeline]
    freed_early: list[int]  # bytes freed out of order, which the timeline keeps to the end
    at: list[int]  # position: number of gangs that have entered
    level: list[int]  # bytes that it has added so far
    entered: int = 0  # bit set of steps
    freed_slots: dict[int, None] = {}  # slots freed out of order
    shrunk: dict[int, int] = {}  # slot -> bytes of its bound that it did not need

    def has_entered(self, step: int) -> bool:
        return step == BEFORE or bool(self.entered >> step & 1)

    def unneeded(self, step: int, number: int) -> int:
        """Return how many of the bytes that this step frees were given back before, by outputs that shrank."""
        lives, groups_of = self.footprint.lives, self.footprint.groups_of
        return sum(by for slot, by in self.shrunk.items() if lives[slot].dies == step and number in groups_of(slot))

    def touch(self, step: int, planned: Touch) -> Touch:
        """Return what entering a step does, if some outputs have shrunk: `planned` is for a run where none has."""
        number, made, freed, scratch, position, drop, old, new = planned
        if position:
            drop, old, new = self.timelines[number].change(position)
        return number, made, freed - self.unneeded(step, number), scratch, position, drop, old, new

    def left(self) -> list[tuple[int, int, int]]:
        """Yield (slot, place key, bytes) of the slots that the run still owns."""
        footprint, found = self.footprint, []
        for slot in footprint.loose if self.entered == footprint.whole else footprint.lives:
            life = footprint.lives[slot]
            dead = slot in self.freed_slots or (life.dies != NEVER and self.has_entered(life.dies))
            if not dead and self.has_entered(life.born) and not footprint.plan.slots[slot].keep:
                found.append((slot, life.key, life.nbytes - self.shrunk.get(slot, 0)))
        return found


class Ledger:
    """The memory counters of all atoms, and the admitted runs.

    `capacity(devices)` gives the bytes that each of these devices has (the least, if they differ).
    """

    def __init__(self, atoms: Atoms, capacity: Callable[[Spans], int]) -> None:
        # atoms whose counters may have changed since the owner last emptied this
        self.touched: dict[int, None] = {}
        self.eased = 0  # grows whenever memory has become free: time to try again to admit waiting runs
        self._atoms = atoms
        self._capacity = capacity
        self._levels: list[AtomMemory] = []
        self._runs: dict[int, RunMemory] = {}
        self._queued: dict[int, int] = {}  # seq of an unfinished gang -> key of its place
        atoms.splits.append(self._split)

    # --- admission ------------------------------------------------------------------------------------

    def admit(
        self, run: int, footprint: Footprint | None, arrivals: Amounts = (), args: Amounts = ()
    ) -> LacksMemory | NeverFits | None:
        """Reserve all the memory that a run may need, and return None; or reserve nothing and say why.

        `arrivals` come at once: literals, and arguments that are to be restored. `args` are the run's arguments that
        are on the devices, each buffer once. A Put is an arrival without a footprint.
        """
        if run in self._runs:
            raise Illegal(f"run {run} is admitted already")
        atoms = self._atoms
        if footprint is not None and footprint.version != atoms.number:
            footprint.refresh(atoms)
        if len(self._levels) != atoms.number:
            self._grow(atoms.number)
        more = self._by_atom(arrivals) if arrivals else {}
        missing = self._missing(footprint, more)
        if missing:
            return self._refuse(footprint, more, missing, self._by_atom(args))
        levels, touched = self._levels, self.touched
        if footprint is not None:
            zeros = footprint.zeros
            self._runs[run] = RunMemory(footprint, footprint.timelines, zeros, zeros.copy(), zeros.copy())
            for atom, bound, extra, final in footprint.starts:
                level = levels[atom]
                touched[atom] = None
                level.committed += bound
                level.floor += final
                level.active += 1
                if extra:
                    level.swap(0, extra)
        for atom, nbytes in more.items():  # these come at once, and so add to all levels in the queue
            level = levels[atom]
            touched[atom] = None
            level.resident += nbytes
            level.shift += nbytes
            level.committed += nbytes
            level.floor += nbytes
        return None

    def _missing(self, footprint: Footprint | None, more: dict[int, int]) -> dict[int, int]:
        """Return, by atom, the bytes by which the run does not fit."""
        missing: dict[int, int] = {}
        levels = self._levels
        known: Set[int] = frozenset()
        if footprint is not None:
            known = footprint.atoms
            for atom, bound, extra, _ in footprint.starts:
                level = levels[atom]
                top = level.top if level.top >= 0 else level.extra()
                lack = level.committed + bound + (extra if extra > top else top) - level.capacity
                if more:
                    lack += more.get(atom, 0)
                if lack > 0:
                    missing[atom] = lack
        if more.keys() <= known:
            return missing
        for atom, nbytes in more.items():
            if atom not in known:
                level = levels[atom]
                lack = level.committed + nbytes + level.extra() - level.capacity
                if lack > 0:
                    missing[atom] = lack
        return missing

    def _refuse(
        self, footprint: Footprint | None, more: dict[int, int], missing: dict[int, int], args: dict[int, int]
    ) -> LacksMemory | NeverFits:
        own: dict[int, int] = {}
        for atom, bound, extra, _ in footprint.starts if footprint is not None else ():
            own[atom] = bound + extra
        for atom in missing:
            held = more.get(atom, 0) + args.get(atom, 0)
            if own.get(atom, 0) + held > self._levels[atom].capacity:
                return NeverFits(
                    f"needs {size_text(own.get(atom, 0) + held)} on each of devices "
                    f"{spans.text(self._atoms.devices(atom))} ({size_text(held)} for its arguments), "
                    f"which have {size_text(self._levels[atom].capacity)} each"
                )
        levels = [(self._levels[atom], lack) for atom, lack in missing.items()]
        return LacksMemory(
            missing,
            running=any(level.active for level, _ in levels),
            enough=all(lack <= level.committed - level.floor for level, lack in levels),
        )

    # --- what happens to an admitted run --------------------------------------------------------------

    def entered(self, run: int, step: int, seq: int) -> None:
        """Count that a step has entered an order: its outputs are there from now on, its last-read inputs are not."""
        state = self._runs.get(run) or self._running(run)
        if state.footprint.version != self._atoms.number:
            state.footprint.refresh(self._atoms)
        footprint, at, levels, touched = state.footprint, state.at, self._levels, self.touched
        touches = footprint.touches[step]
        if state.entered >> step & 1:
            raise Illegal(f"step {step} of run {run} enters twice")
        key = footprint.gang_keys.get(step)
        if key is None:
            self._move_entered(state, step)
            return
        for touch in touches:
            if touch[4] != at[touch[0]] + 1:
                raise Illegal(f"step {step} of run {run} enters out of order")
        state.entered |= 1 << step
        self._queued[seq] = key
        for touch in touches:
            number, made, freed, scratch, position, drop, old, new = (
                touch if not state.shrunk else state.touch(step, touch)
            )
            at[number] = position
            state.level[number] += made - freed
            if drop or old != new:
                self.eased += 1
            for atom in footprint.groups[number].atoms:
                touched[atom] = None
                level = levels[atom]
                high, queue = level.resident + made, level.queue
                peak = high + scratch - level.shift
                while queue and queue[-1][1] <= peak:
                    queue.pop()  # a receive that does not fit there does not fit at this later gang either
                queue.append((seq, peak))
                level.resident = high - freed
                level.committed -= drop
                if old != new:
                    level.swap(old, new)

    def _move_entered(self, state: RunMemory, step: int) -> None:
        """The target of a move comes at any time, and so adds to all levels in the queue."""
        state.entered |= 1 << step
        for touch in state.footprint.touches[step]:
            number, made, freed, *_ = touch if not state.shrunk else state.touch(step, touch)
            state.level[number] += made - freed
            for atom in state.footprint.groups[number].atoms:
                level = self._touch(atom)
                level.resident += made
                level.shift += made

    def slot_freed(self, run: int, slot: int) -> None:
        """Count a slot as free that the order alone does not free, because it was sent."""
        state = self._running(run)
        life = state.footprint.lives[slot]
        if slot not in state.footprint.loose or slot in state.freed_slots or not state.has_entered(life.born):
            raise Illegal(f"slot {slot} of run {run} is not there, or the order of the devices frees it")
        state.freed_slots[slot] = None
        if state.freed_early is state.footprint.zeros:
            state.freed_early = state.freed_early.copy()
        nbytes = life.nbytes - state.shrunk.get(slot, 0)
        for number in state.footprint.groups_of(slot):
            state.level[number] -= nbytes
            state.freed_early[number] += nbytes
            for atom in state.footprint.groups[number].atoms:
                self._touch(atom).leave(nbytes, -1)
        self.eased += 1

    def shrunk(self, run: int, slot: int, nbytes: int) -> None:
        """Count the surplus of an irregular output as free: it takes only so many bytes."""
        state = self._running(run)
        life = state.footprint.lives[slot]
        by = life.nbytes - nbytes
        dead = slot in state.freed_slots or (life.dies >= 0 and state.has_entered(life.dies))
        if by <= 0 or dead or life.heir or slot in state.shrunk or not state.has_entered(life.born):
            return
        state.shrunk[slot] = by
        if state.timelines is state.footprint.timelines:
            state.timelines = state.timelines.copy()
        for number in state.footprint.groups_of(slot):
            at, old = state.at[number], state.timelines[number]
            new = state.timelines[number] = old.lowered(by, *state.footprint.span(slot, number))
            state.level[number] -= by
            for atom in state.footprint.groups[number].atoms:
                level = self._touch(atom)
                level.resident -= by
                level.shift -= by
                level.committed -= old.bounds[at] - new.bounds[at]
                level.swap(old.extras[at], new.extras[at])
        self.eased += 1

    def end(self, run: int) -> tuple[tuple[int, int, int], ...]:
        """Give back what the run reserved and did not use, because it has ended or was withdrawn.

        Return (slot, place key, bytes) of the slots that are still there without an owner. The caller calls `free`
        for each when it is gone. An argument among them was donated and not consumed: call `Buffers.returned` for it,
        and not `free`.
        """
        state = self._runs.get(run) or self._running(run)
        footprint, levels, touched = state.footprint, self._levels, self.touched
        if footprint.version != self._atoms.number:
            footprint.refresh(self._atoms)
        del self._runs[run]
        self.eased += 1
        if state.entered == footprint.whole and not footprint.loose and not state.shrunk:
            # All its steps have entered, and the order frees all its slots: it has used what it reserved.
            for atom in footprint.atoms:
                levels[atom].active -= 1
            return ()
        for number, group in enumerate(footprint.groups):
            timeline, at, used = state.timelines[number], state.at[number], state.level[number]
            unused, extra = timeline.bounds[at] - state.freed_early[number] - used, timeline.extras[at]
            rest = used - group.final
            for atom in group.atoms:
                level = levels[atom]
                level.active -= 1
                if unused or rest or extra:
                    touched[atom] = None
                    level.committed -= unused
                    level.floor += rest
                    if extra:
                        level.swap(extra, 0)
        return tuple(state.left())

    # --- out of order ---------------------------------------------------------------------------------

    def free(self, key: int, nbytes: int, after: int = -1) -> None:
        """Count a buffer that no admitted run owns as free, behind gang `after`, the last gang that touches it."""
        levels, touched = self._levels, self.touched
        for atom in self._atoms.parts[key]:
            touched[atom] = None
            level = levels[atom]
            level.resident -= nbytes
            level.committed -= nbytes
            level.floor -= nbytes
            if after <= level.done:
                level.shift -= nbytes
        self.eased += 1

    def after(self, key: int, nbytes: int = 0) -> int:
        """Return the seq up to which a device's own gangs must have finished before an arrival has room; -1: now.

        Give `nbytes` if the arrival has not been counted yet.
        """
        found = -1
        levels = self._levels
        for atom in self._atoms.parts[key]:
            if atom < len(levels):
                level = levels[atom]
                if level.queue and level.queue[0][1] + level.shift > level.capacity - nbytes:
                    found = max(found, level.last_above(level.capacity - nbytes))
        return found

    def gang_finished(self, seq: int) -> None:
        """A gang has finished on all its hosts, or all of them have given it up."""
        key = self._queued.pop(seq, None)
        if key is None:
            return
        for atom in self._atoms.parts[key]:
            level = self._levels[atom]
            level.done = max(level.done, seq)
            queue = level.queue
            while queue and queue[0][0] <= seq:
                queue.popleft()

    # --- for observers --------------------------------------------------------------------------------

    def counters(self) -> list[tuple[Spans, int, int, int]]:
        """Return (devices, resident, committed with scratch, capacity) of each atom, in bytes on each device."""
        return [(devices, *level) for _, devices, level in self.counters_of(range(len(self._levels)))]

    def counters_of(self, atoms: Iterable[int]) -> list[tuple[int, Spans, tuple[int, int, int]]]:
        """(atom, devices, (resident, committed with scratch, capacity)) of some of them."""
        levels, devices = self._levels, self._atoms.by_atom
        found = []
        for atom in atoms:
            level = levels[atom]
            top = level.top if level.top >= 0 else level.extra()
            found.append((atom, devices[atom], (level.resident, level.committed + top, level.capacity)))
        return found

    # --- inside ---------------------------------------------------------------------------------------

    def _touch(self, atom: int) -> AtomMemory:
        self.touched[atom] = None
        return self._levels[atom]

    def _running(self, run: int) -> RunMemory:
        state = self._runs.get(run)
        if state is None:
            raise Illegal(f"run {run} is not admitted")
        if state.footprint.version != self._atoms.number:
            state.footprint.refresh(self._atoms)
        return state

    def _by_atom(self, amounts: Amounts) -> dict[int, int]:
        found: dict[int, int] = {}
        for key, nbytes in amounts:
            for atom in self._atoms.parts[key]:
                found[atom] = found.get(atom, 0) + nbytes
        return found

    def _grow(self, number: int) -> None:
        for atom in range(len(self._levels), number):
            self._levels.append(AtomMemory(self._capacity(self._atoms.devices(atom))))

    def _split(self, old: int, new: int) -> None:
        """Give the new atom the counters of the old one: all devices of an atom have had the same history."""
        self._grow(new)
        self.touched[new] = None
        level = self._touch(old)
        level.capacity = self._capacity(self._atoms.devices(old))
        self._levels.append(level.copy(self._capacity(self._atoms.devices(new))))


def size_text(nbytes: int) -> str:
    """Return the size as people read it: `1.5 GiB`."""
    size, unit = float(nbytes), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{nbytes} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
