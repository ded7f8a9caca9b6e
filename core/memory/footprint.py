"""What a plan takes of each device, step by step, and the most it may still take from any step on; derived
once.

The devices of a plan fall into *groups*: those that lie in the same of its places (one group for a plan on
one slice, one a stage for a pipeline, however many devices). Whatever lies on a device of a group lies on
all of them, so a group has one timeline. Its *positions* are the gangs on it, which enter in the order in
which they were traced:

    peaks[p]   level while gang p runs (its outputs made, its inputs not yet freed), without its scratch
    rests[p]   level behind gang p; rests[0] is the level before the first

All levels are relative to the level before the run. What the order of the devices frees is freed here: a
slot whose last reader is gang `Slot.last` has died behind it, one that nobody reads has died behind its
maker, and a donated one lives on as its taker. Everything else (sent, kept) stays until the ledger is told.
A move's target comes at any time after the gangs that the move must follow, so it counts from the earliest
such position; since every such order is one that may happen, the levels are the true maxima and not just
bounds (a test enumerates the orders of small plans).

From the timeline follow, by suffix maxima, `bounds[p]`: the most the run will ever occupy once gang p has
entered; and `extras[p]`: how much a gang behind p goes beyond that while its scratch is there.
"""

from __future__ import annotations

from itertools import accumulate

import msgspec

from ..model import Atoms, Gang, Move, Plan

NEVER = -2  # not freed by the order of the devices
BEFORE = -1  # there before the run

# What entering a step does to a group: (group, made, freed, scratch, position, drop, old, new). Position 0 is no gang.
# `drop`: by how much the bound falls; `old` and `new`: the extra before and behind it.
Touch = tuple[int, int, int, int, int, int, int, int]


class Life(msgspec.Struct, frozen=True, gc=False):
    """From which step to which a slot is the run's own. `passed`: bytes it took over from a slot that
    died."""

    slot: int
    nbytes: int
    key: int
    born: int
    dies: int
    passed: int = 0
    heir: bool = False  # another slot takes its memory


class Timeline:
    """Levels of one group. A run whose irregular output turned out smaller goes on with a lowered copy."""

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
        """By how much the bound falls when the gang at this position enters; the extra before, and behind it."""
        bounds, extras = self.bounds, self.extras
        return bounds[position - 1] - bounds[position], extras[position - 1], extras[position]

    def lowered(self, by: int, born: int, dies: int) -> Timeline:
        """As if what lives from position `born` to `dies` had been smaller once it was made."""
        peaks, rests = self.peaks.copy(), self.rests.copy()
        for at in range(born, min(dies, len(rests))):
            rests[at] -= by
        for at in range(born + 1, min(dies + 1, len(peaks))):
            peaks[at] -= by
        return Timeline(peaks, rests, self.scratch)


class Group:
    """Devices with the same history in this plan. `signature`: a bit for each of its places in which they
    lie."""

    __slots__ = ("atoms", "final", "positions", "signature", "timeline")

    def __init__(self, signature: int, gangs: list[int]) -> None:
        self.signature = signature
        self.positions = {step: at for at, step in enumerate(gangs, 1)}
        self.atoms: tuple[int, ...] = ()
        self.timeline = Timeline([0], [0], [0])
        self.final = 0  # level that the run leaves behind: results less what was donated


class Footprint:
    """Of one plan with one choice of effectively donated arguments; made once a plan."""

    __slots__ = (
        "_bits",
        "_earliest",
        "_of",
        "atoms",
        "gang_keys",
        "groups",
        "lives",
        "loose",
        "plan",
        "slot_keys",
        "timelines",
        "touches",
        "version",
        "zeros",
    )

    def __init__(self, plan: Plan, donated: frozenset[int], atoms: Atoms) -> None:
        self.plan = plan
        self.slot_keys = tuple(atoms.intern(slot.layout.place) for slot in plan.slots)
        gangs = {at: atoms.intern(step.place) for at, step in enumerate(plan.steps) if isinstance(step, Gang)}
        self.gang_keys = gangs
        self._bits = {
            key: 1 << at for at, key in enumerate(dict.fromkeys((*gangs.values(), *self.slot_keys)))
        }
        self.groups = [
            Group(signature, [at for at, key in gangs.items() if self._bits[key] & signature])
            for signature in self._signatures(atoms)
        ]
        self._of = {  # place key -> numbers of its groups
            key: [number for number, group in enumerate(self.groups) if group.signature & bit]
            for key, bit in self._bits.items()
        }
        self.lives = _lives(plan, donated, self.slot_keys)
        self.loose = tuple(  # the ledger must be told when these die
            slot for slot, life in self.lives.items() if life.dies == NEVER and not plan.slots[slot].keep
        )
        self._earliest = self._arrivals()
        self._draw()
        self.touches = self._touches(gangs)
        self.timelines = [group.timeline for group in self.groups]
        self.zeros = [0] * len(self.groups)
        self.version = -1
        self.refresh(atoms)

    def refresh(self, atoms: Atoms) -> None:
        """Atoms have split or come: the groups are the same, of other atoms."""
        found = self._signatures(atoms)
        for group in self.groups:
            group.atoms = tuple(found[group.signature])
        self.atoms = frozenset(atom for group in self.groups for atom in group.atoms)
        self.version = atoms.number

    def groups_of(self, slot: int) -> list[int]:
        """Numbers of the groups on which a slot lies."""
        return self._of[self.slot_keys[slot]]

    def span(self, slot: int, number: int) -> tuple[int, int]:
        """Positions of a group from which, and behind which no more, a slot may be there; past the end: for
        good."""
        life, positions = self.lives[slot], self.groups[number].positions
        if life.born == BEFORE:
            born = 0
        else:
            born = positions.get(life.born) or self._earliest[life.born, number]
        return born, (len(positions) + 1 if life.dies == NEVER else positions[life.dies])

    def _signatures(self, atoms: Atoms) -> dict[int, list[int]]:
        of: dict[int, int] = {}
        for key, bit in self._bits.items():
            for atom in atoms.of(key):
                of[atom] = of.get(atom, 0) | bit
        found: dict[int, list[int]] = {}
        for atom in sorted(of):
            found.setdefault(of[atom], []).append(atom)
        return found

    def _arrivals(self) -> dict[tuple[int, int], int]:
        """(move, group) -> the position behind which its target may come: of the last gang it must follow."""
        before: list[int] = []  # by step: bit set of all steps that must have entered
        found: dict[tuple[int, int], int] = {}
        masks = [sum(1 << step for step in group.positions) for group in self.groups]
        for at, step in enumerate(self.plan.steps):
            bits = 0
            for earlier in self.plan.after[at]:
                bits |= before[earlier] | 1 << earlier
            before.append(bits)
            if isinstance(step, Move):
                for number in self.groups_of(step.target):
                    last = (bits & masks[number]).bit_length() - 1
                    found[at, number] = self.groups[number].positions[last] if last >= 0 else 0
        return found

    def _draw(self) -> None:
        """Timelines, as running sums of differences: a slot adds where it is born, takes away behind where
        it dies."""
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
        """By step: what entering it does to each group."""
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
            for n in self._of[gangs[step]] if step in gangs else made[step]:
                position = self.groups[n].positions.get(step, 0)
                change = self.groups[n].timeline.change(position) if position else (0, 0, 0)
                touched.append((n, made[step].get(n, 0), freed[step].get(n, 0), scratch, position, *change))
            found.append(tuple(touched))
        return tuple(found)


def effective(plan: Plan, sole: frozenset[int]) -> frozenset[int]:
    """Arguments whose memory a run takes over, if `sole` are those that nobody else holds. A gang donates
    all its donated arguments or none: `GangStep.donate` is one flag."""
    found: set[int] = set()
    for step in plan.steps:
        if isinstance(step, Gang):
            args = {plan.slots[slot].arg for slot in step.donated} - {-1}
            if args <= sole:
                found |= args
    return frozenset(found)


def donates(plan: Plan, step: int, donated: frozenset[int]) -> bool:
    """Whether this gang passes its donated inputs' memory on: the value of `GangStep.donate`."""
    gang = plan.steps[step]
    return isinstance(gang, Gang) and all(
        plan.slots[slot].arg < 0 or plan.slots[slot].arg in donated for slot in gang.donated
    )


def _scratch(plan: Plan, step: int) -> int:
    gang = plan.steps[step]
    return gang.temp if isinstance(gang, Gang) else 0


def _lives(plan: Plan, donated: frozenset[int], keys: tuple[int, ...]) -> dict[int, Life]:
    """Of every slot that is the run's own. An argument is its own only if its donation is effective."""
    heirs: dict[int, int] = {}  # slot that dies -> the one that takes its memory
    donor: dict[int, int] = {}
    for step, gang in enumerate(plan.steps):
        if isinstance(gang, Gang) and donates(plan, step, donated):
            donor.update((slot, step) for slot in gang.donated)
            heirs.update((plan.slots[out].takes, out) for out in gang.outputs if plan.slots[out].takes >= 0)
    lives: dict[int, Life] = {}
    for number, slot in enumerate(plan.slots):
        if slot.arg >= 0 and number not in donor:
            continue
        dies = NEVER
        if number in donor:
            dies = donor[number]
        elif slot.last >= 0 and not slot.keep:
            dies = slot.last
        elif not slot.keep and not slot.senders and isinstance(plan.steps[slot.maker], Gang):
            dies = slot.maker  # nobody reads it
        passed = 0
        if slot.takes >= 0 and heirs.get(slot.takes) == number and keys[slot.takes] == keys[number]:
            passed = min(slot.nbytes, plan.slots[slot.takes].nbytes)
        born = BEFORE if slot.arg >= 0 else slot.maker
        lives[number] = Life(number, slot.nbytes, keys[number], born, dies, passed, number in heirs)
    return lives
