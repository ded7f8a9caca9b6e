"""Computes how much memory a plan needs on each device, step by step, and at most from any step on.

A `Footprint` is computed once for a plan; the ledger uses it for all its runs. The devices of a plan form *groups*:
two devices are in one group if each place of the plan holds both or neither. A plan on one slice has one group, a
pipeline one for each stage, whatever the number of devices. All devices of a group hold the same slots, so a group has
one timeline. Its *positions* are the gangs on it, which enter in the order in which they were traced:

    peaks[p]   level while gang p runs (its outputs made, its inputs not yet freed), without its scratch memory
    rests[p]   level after gang p; rests[0] is the level before the first

Levels are relative to the level before the run. They follow what the order of the devices frees: a slot is free after
its last reader, gang `Slot.last`; a slot that is never read is free after its maker; the memory of a donated slot
passes to the slot that takes it. All other slots (sent or kept ones) stay until the ledger is told. The target of a
move may come at any time after the gangs that the move must follow, so it counts from the earliest such position.
Every such order is possible, so the levels are true maxima and not only bounds (a test enumerates the orders of small
plans).

Two suffix maxima follow from a timeline. `bounds[p]` is the most that the run will ever occupy once gang p has
entered. `extras[p]` is by how much a later gang exceeds this while it has its scratch memory.
"""

from __future__ import annotations

from itertools import accumulate

import msgspec

from ..model import Atoms, Gang, Move, Plan

NEVER = -2  # the order of the devices does not free the slot
BEFORE = -1  # the slot is there before the run

# What entering a step does to a group: (group, made, freed, scratch, position, drop, old, new). Position 0: not a gang.
# `drop` is by how much the bound falls; `old` and `new` are the extras before and after it.
Touch = tuple[int, int, int, int, int, int, int, int]
# What a run needs on one atom: (atom, the most that it will ever occupy, by how much a gang may exceed this while it
# has scratch memory, what is left behind the run).
Start = tuple[int, int, int, int]


class SlotLifetime(msgspec.Struct, frozen=True, gc=False):
    """The steps between which a run owns the memory of a slot."""

    nbytes: int
    key: int  # of its place, in `Atoms`
    born: int  # step, or BEFORE
    dies: int  # step, or NEVER
    passed: int = 0  # bytes that it takes over from a donated slot
    heir: bool = False  # whether another slot takes over its memory


class Timeline:
    """The levels of one group. A run whose irregular output is smaller than its bound goes on with a lowered copy."""

    __slots__ = ("bounds", "extras", "peaks", "rests", "scratch")

    def __init__(self, peaks: list[int], rests: list[int], scratch: list[int]) -> None:
        self.peaks, self.rests, self.scratch = peaks, rests, scratch
        self.bounds: list[int] = [0] * len(rests)
        self.extras: list[int] = [0] * len(rests)
        bound = top = rests[-1]
        for at in range(len(rests) - 1, -1, -1):
            bound = max(bound, rests[at])
            self.bounds[at] = bound
            self.extras[at] = max(0, top - bound)
            bound = max(bound, peaks[at])
            top = max(top, peaks[at] + scratch[at])

    def change(self, position: int) -> tuple[int, int, int]:
        """Return (by how much the bound falls, extra before, extra after) if the gang at this position enters."""
        bounds, extras = self.bounds, self.extras
        return bounds[position - 1] - bounds[position], extras[position - 1], extras[position]

    def lowered(self, by: int, born: int, dies: int) -> Timeline:
        """Return a copy in which a slot that lives from position `born` to `dies` is smaller once it is made."""
        peaks, rests = self.peaks.copy(), self.rests.copy()
        for at in range(born, min(dies, len(rests))):
            rests[at] -= by
        for at in range(born + 1, min(dies + 1, len(peaks))):
            peaks[at] -= by
        return Timeline(peaks, rests, self.scratch)


class DeviceGroup(msgspec.Struct, eq=False):
    """Devices that hold the same slots of this plan."""

    signature: int  # a bit for each of its places that they are in
    positions: dict[int, int]  # by step
    timeline: Timeline
    atoms: tuple[int, ...] = ()
    final: int = 0  # the level after the run: its results, less its donated arguments


class Footprint:
    """The memory that one plan needs if certain arguments are donated to it. `Footprints` caches it."""

    def __init__(self, plan: Plan, donated: frozenset[int], atoms: Atoms) -> None:
        self.plan = plan
        self.slot_keys = tuple(atoms.intern(slot.layout.place) for slot in plan.slots)
        gangs = {at: atoms.intern(step.place) for at, step in enumerate(plan.steps) if isinstance(step, Gang)}
        self.gang_keys = gangs
        self._bits = {key: 1 << at for at, key in enumerate(dict.fromkeys((*gangs.values(), *self.slot_keys)))}
        self.groups: list[DeviceGroup] = []
        for signature in self._signatures(atoms):
            steps = [at for at, key in gangs.items() if self._bits[key] & signature]
            positions = {step: at for at, step in enumerate(steps, 1)}
            self.groups.append(DeviceGroup(signature, positions, Timeline([0], [0], [0])))
        self._groups_by_key = {  # place key -> numbers of its groups
            key: [number for number, group in enumerate(self.groups) if group.signature & bit]
            for key, bit in self._bits.items()
        }
        self.lives = _lives(plan, donated, self.slot_keys)
        self.loose = dict.fromkeys(  # slots for which the ledger must be told when they are free
            slot for slot, life in self.lives.items() if life.dies == NEVER and not plan.slots[slot].keep
        )
        self._earliest = self._arrivals()
        self._fill_timelines()
        self.touches = self._touches(gangs)
        self.timelines = [group.timeline for group in self.groups]
        self.zeros = [0] * len(self.groups)
        self.whole = (1 << len(plan.steps)) - 1  # all steps, as a bit set
        self.version = -1
        self.refresh(atoms)

    def refresh(self, atoms: Atoms) -> None:
        """Find the atoms of all groups again, because atoms have been split or added."""
        found = self._signatures(atoms)
        for group in self.groups:
            group.atoms = tuple(found[group.signature])
        self.atoms = frozenset(atom for group in self.groups for atom in group.atoms)
        self.starts: tuple[Start, ...] = tuple(
            (atom, group.timeline.bounds[0], group.timeline.extras[0], group.final)
            for group in self.groups
            for atom in group.atoms
        )
        self.version = atoms.number

    def groups_of(self, slot: int) -> list[int]:
        """Return the numbers of the groups that hold a slot."""
        return self._groups_by_key[self.slot_keys[slot]]

    def span(self, slot: int, number: int) -> tuple[int, int]:
        """Return the first and the last position of a group at which a slot may be there.

        The last one is past the end if the order does not free the slot.
        """
        life, positions = self.lives[slot], self.groups[number].positions
        if life.born == BEFORE:
            born = 0
        else:
            born = positions.get(life.born) or self._earliest[life.born, number]
        return born, (len(positions) + 1 if life.dies == NEVER else positions[life.dies])

    def _signatures(self, atoms: Atoms) -> dict[int, list[int]]:
        """Return signature -> its atoms, ascending."""
        signatures: dict[int, int] = {}
        for key, bit in self._bits.items():
            for atom in atoms.of(key):
                signatures[atom] = signatures.get(atom, 0) | bit
        found: dict[int, list[int]] = {}
        for atom in sorted(signatures):
            found.setdefault(signatures[atom], []).append(atom)
        return found

    def _arrivals(self) -> dict[tuple[int, int], int]:
        """Return (move, group) -> position of the last gang that the move must follow; its target may come after it."""
        before: list[int] = []  # by step: bit set of all steps that must have entered before
        found: dict[tuple[int, int], int] = {}
        masks = [sum(1 << step for step in group.positions) for group in self.groups]
        for at, step in enumerate(self.plan.steps):
            bits = 0
            for earlier in self.plan.after[at]:
                bits |= before[earlier] | 1 << earlier
            before.append(bits)
            if isinstance(step, Move):
                for number in self.groups_of(step.targets[0]):
                    last = (bits & masks[number]).bit_length() - 1
                    found[at, number] = self.groups[number].positions[last] if last >= 0 else 0
        return found

    def _fill_timelines(self) -> None:
        """Compute all timelines as running sums: a slot adds its bytes where it is born, and subtracts them later."""
        levels = [([0] * (len(g.positions) + 2), [0] * (len(g.positions) + 2)) for g in self.groups]
        for slot, life in self.lives.items():
            for number in self.groups_of(slot):
                group, (peaks, rests) = self.groups[number], levels[number]
                born, dies = self.span(slot, number)
                if life.born == BEFORE:
                    group.final -= life.nbytes
                else:
                    made = life.nbytes - life.passed if life.born in group.positions else 0
                    peaks[born] += made
                    peaks[born + 1] += life.nbytes - made
                    rests[born] += life.nbytes
                    group.final += life.nbytes if self.plan.slots[slot].keep else 0
                if life.dies != NEVER:
                    peaks[dies + 1] -= life.nbytes
                    rests[dies] -= life.nbytes
        for group, (peaks, rests) in zip(self.groups, levels, strict=True):
            scratch = [0, *(_scratch(self.plan, step) for step in group.positions)]
            group.timeline = Timeline(list(accumulate(peaks[:-1])), list(accumulate(rests[:-1])), scratch)

    def _touches(self, gangs: dict[int, int]) -> tuple[tuple[Touch, ...], ...]:
        """Return, for each step, what entering it does to each group."""
        made: list[dict[int, int]] = [{} for _ in self.plan.steps]
        freed: list[dict[int, int]] = [{} for _ in self.plan.steps]
        for slot, life in self.lives.items():
            for number in self.groups_of(slot):
                if life.born >= 0:
                    made[life.born][number] = made[life.born].get(number, 0) + life.nbytes - life.passed
                    freed[life.born][number] = freed[life.born].get(number, 0) - life.passed
                if life.dies >= 0:
                    freed[life.dies][number] = freed[life.dies].get(number, 0) + life.nbytes
        found = []
        for step in range(len(self.plan.steps)):
            scratch = _scratch(self.plan, step)
            touched = []
            for n in self._groups_by_key[gangs[step]] if step in gangs else made[step]:
                position = self.groups[n].positions.get(step, 0)
                change = self.groups[n].timeline.change(position) if position else (0, 0, 0)
                touched.append((n, made[step].get(n, 0), freed[step].get(n, 0), scratch, position, *change))
            found.append(tuple(touched))
        return tuple(found)


def effective(plan: Plan, sole: frozenset[int]) -> frozenset[int]:
    """Return the arguments whose memory a run takes over. `sole` are the arguments that only this run holds.

    A gang takes over all its donated arguments or none, because `GangStep.donate` is one flag.
    """
    found: set[int] = set()
    for step in plan.steps:
        if isinstance(step, Gang):
            args = {plan.slots[slot].arg for slot in step.donated} - {-1}
            if args <= sole:
                found |= args
    return frozenset(found)


def donates(plan: Plan, step: int, donated: frozenset[int]) -> bool:
    """Whether this gang takes over the memory of its donated inputs: the value of `GangStep.donate`."""
    gang = plan.steps[step]
    return isinstance(gang, Gang) and all(
        plan.slots[slot].arg < 0 or plan.slots[slot].arg in donated for slot in gang.donated
    )


def _scratch(plan: Plan, step: int) -> int:
    gang = plan.steps[step]
    return gang.temp if isinstance(gang, Gang) else 0


def _lives(plan: Plan, donated: frozenset[int], keys: tuple[int, ...]) -> dict[int, SlotLifetime]:
    """Return the life of each slot that the run owns. It owns an argument only if the argument is donated to it."""
    heirs: dict[int, int] = {}  # donated slot -> the slot that takes over its memory
    donated_at: dict[int, int] = {}  # donated slot -> the step that takes it
    for step, gang in enumerate(plan.steps):
        if isinstance(gang, Gang) and donates(plan, step, donated):
            donated_at.update((slot, step) for slot in gang.donated)
            heirs.update((plan.slots[out].takes, out) for out in gang.outputs if plan.slots[out].takes >= 0)
    lives: dict[int, SlotLifetime] = {}
    for number, slot in enumerate(plan.slots):
        if slot.arg >= 0 and number not in donated_at:
            continue
        dies = NEVER
        if number in donated_at:
            dies = donated_at[number]
        elif slot.last >= 0 and not slot.keep:
            dies = slot.last
        elif not slot.keep and not slot.senders and isinstance(plan.steps[slot.maker], Gang):
            dies = slot.maker  # it is never read
        passed = 0
        if slot.takes >= 0 and heirs.get(slot.takes) == number and keys[slot.takes] == keys[number]:
            passed = min(slot.nbytes, plan.slots[slot.takes].nbytes)
        born = BEFORE if slot.arg >= 0 else slot.maker
        lives[number] = SlotLifetime(slot.nbytes, keys[number], born, dies, passed, number in heirs)
    return lives
