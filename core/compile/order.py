"""Last pass: which steps must have *entered* an order before a step may (`Plan.after`), transitively reduced.

Gangs that share a device enter in traced order; a gang enters after the moves it reads, a move after the step
that makes its source. All gangs that read a slot have one place, so only the first of them needs to name a
move, and what a gang reads of its own devices' making it need not name at all. What is left to reduce are a
wide gang's several predecessors on different devices.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Gang
from .devices import classes
from .draft import Step, makes

# How far back implied edges are looked for. One that is further apart may stay: it costs an integer and no
# more.
WINDOW = 4096
MASK = (1 << WINDOW) - 1


def order(steps: Sequence[Step]) -> tuple[tuple[int, ...], ...]:
    devices = classes(step.place for step in steps if isinstance(step, Gang))
    latest: dict[int, int] = {}  # class of devices -> its latest gang
    moved: dict[int, int] = {}  # slot that a move makes and no gang has read -> the move
    maker: dict[int, int] = {}
    reach = _Reach()
    after: list[tuple[int, ...]] = []
    for index, step in enumerate(steps):
        if isinstance(step, Gang):
            here = devices[step.place]
            before = {latest[each] for each in here if each in latest}
            before.update([moved.pop(slot) for slot in dict.fromkeys(step.inputs) if slot in moved])
            latest.update(dict.fromkeys(here, index))
        else:
            before = {maker[step.source]} if step.source in maker else set()
            moved[step.target] = index
        maker.update(dict.fromkeys(makes(step), index))
        after.append(reach.add(index, before))
    return tuple(after)


class _Reach:
    """For each of the latest steps, which of the WINDOW before it must come first: bit k is step i-1-k."""

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}

    def add(self, index: int, before: set[int]) -> tuple[int, ...]:
        """The next step, and what must come before it. Returns what of that the rest does not imply."""
        implied = 0
        for earlier in before:
            implied |= self._bits.get(earlier, 0) << (index - earlier)
        needed = [earlier for earlier in sorted(before) if not implied >> (index - 1 - earlier) & 1]
        for earlier in needed:
            implied |= 1 << (index - 1 - earlier)
        self._bits[index] = implied & MASK
        self._bits.pop(index - WINDOW, None)
        return tuple(needed)
