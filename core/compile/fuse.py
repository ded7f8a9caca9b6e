"""Optional pass: fuses consecutive nodes of one slice into one gang, if only they read what they pass to each other.

A fused gang starts when the inputs of all its nodes are ready. So a node joins a gang only if it adds nothing to wait
for, such as a move or the sizes of an irregular node. A node whose output is sent by a move ends its gang, because
the transfer would start later otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import msgspec

from ..model import Code, FusedPart, Gang, Move
from .devices import classes
from .draft import Draft, Step, makers, readers


def fuse(draft: Draft) -> Draft:
    finder = _Finder(draft)
    codes = list(draft.codes)
    steps: list[Step] = []
    for step, group in finder.groups():
        if group is None or len(group.gangs) == 1:
            steps.append(step)
        else:
            code, gang = _Fusion(draft, group, finder.outside(group)).make(len(codes))
            codes.append(code)
            steps.append(gang)
    return msgspec.structs.replace(draft, codes=tuple(codes), steps=tuple(steps))


class _Group:
    """Gangs that follow each other directly on the same devices."""

    def __init__(self) -> None:
        self.gangs: list[Gang] = []
        self.made: set[int] = set()
        self.read: set[int] = set()

    def take(self, gang: Gang) -> None:
        self.gangs.append(gang)
        self.made.update(gang.outputs)
        self.read.update(gang.inputs)


class _Finder:
    def __init__(self, draft: Draft) -> None:
        self._steps = draft.steps
        self._classes = classes(step.place for step in draft.steps if isinstance(step, Gang))
        self._makers = makers(draft.steps, len(draft.slots))
        self._readers = readers(draft.steps, len(draft.slots))
        self._results = set(draft.results)

    def groups(self) -> Iterator[tuple[Step, _Group | None]]:
        """Yield each move with None, and the first gang of each group with its group."""
        found: list[tuple[Step, _Group | None]] = []
        latest: dict[int, _Group] = {}  # by class of devices
        for index, step in enumerate(self._steps):
            if isinstance(step, Move):
                found.append((step, None))
                continue
            before = [latest.get(each) for each in self._classes[step.place]]
            group = before[0]
            if (
                group is None
                or any(each is not group for each in before)
                or not self._joins(group, index, step)
            ):
                group = _Group()
                latest.update(dict.fromkeys(self._classes[step.place], group))
                found.append((step, group))
            group.take(step)
        return iter(found)

    def outside(self, group: _Group) -> set[int]:
        """Return the slots that the group makes and that are read outside of it."""
        inside = {slot for slot in group.made & group.read if slot not in self._results}
        return {slot for slot in group.made - inside if self._readers[slot] or slot in self._results}

    def _joins(self, group: _Group, index: int, gang: Gang) -> bool:
        last = group.gangs[-1]
        if last.place != gang.place or any(each.irregular or each.node < 0 for each in (last, gang)):
            return False
        if any(
            isinstance(self._steps[reader], Move) for slot in last.outputs for reader in self._readers[slot]
        ):
            return False
        between = [slot for slot in gang.inputs if slot in group.made]
        return (
            bool(between)
            and all(self._readers[slot] == [index] and slot not in self._results for slot in between)
            and all(slot in group.made or slot in group.read or self._is_ready(slot) for slot in gang.inputs)
        )

    def _is_ready(self, slot: int) -> bool:
        """Whether the slot adds nothing to wait for: it is an argument, or made by an earlier gang, in a known size."""
        if self._makers[slot] < 0:
            return True
        step = self._steps[self._makers[slot]]
        return isinstance(step, Gang) and not step.irregular


class _Fusion:
    """Makes one gang out of a group."""

    def __init__(self, draft: Draft, group: _Group, outside: set[int]) -> None:
        self._draft = draft
        self._gangs = group.gangs
        made = group.made
        self._inputs = tuple(
            dict.fromkeys(slot for gang in self._gangs for slot in gang.inputs if slot not in made)
        )
        self._outputs = tuple(slot for gang in self._gangs for slot in gang.outputs if slot in outside)

    def make(self, code: int) -> tuple[Code, Gang]:
        first, last = self._gangs[0], self._gangs[-1]
        name = f"{first.name} .. {last.name} ({len(self._gangs)} nodes)"
        parts, results = self._parts()
        key = blake2b(msgspec.msgpack.encode((parts, results)), digest_size=16).hexdigest()
        outer = set(self._inputs)
        donated = (slot for gang in self._gangs for slot in gang.donated if slot in outer)
        gang = msgspec.structs.replace(
            first,
            name=name,
            computation=code,
            inputs=self._inputs,
            outputs=self._outputs,
            donated=tuple(donated),
            cost=sum(gang.cost for gang in self._gangs),
            temp=self._temp(),
            collective=any(gang.collective for gang in self._gangs),
        )
        return Code(f"fused:{key}", name, parts=parts, results=results), gang

    def _parts(self) -> tuple[tuple[FusedPart, ...], tuple[int, ...]]:
        value = {slot: number for number, slot in enumerate(self._inputs)}
        parts: list[FusedPart] = []
        for gang in self._gangs:
            code = self._draft.codes[gang.computation]
            inputs = tuple(value[slot] for slot in gang.inputs)
            parts.append(FusedPart(code.key, code.code, code.name, inputs, len(gang.outputs)))
            for slot in gang.outputs:
                value[slot] = len(value)
        return tuple(parts), tuple(value[slot] for slot in self._outputs)

    def _temp(self) -> int:
        """Return the peak of scratch memory plus live intermediates over all parts."""
        inner = {slot for gang in self._gangs for slot in gang.outputs} - set(self._outputs)
        last = {
            slot: index for index, gang in enumerate(self._gangs) for slot in (*gang.outputs, *gang.inputs)
        }
        alive = peak = 0
        for index, gang in enumerate(self._gangs):
            slots = self._draft.slots
            alive += sum(slots[slot].nbytes for slot in gang.outputs if slot in inner)
            peak = max(peak, alive + gang.temp)
            ended = (slot for slot in {*gang.outputs, *gang.inputs} if slot in inner and last[slot] == index)
            alive -= sum(slots[slot].nbytes for slot in ended)
        return peak
