"""Last pass: finds, for each step, the steps that must have *entered* an order before it may enter (`Plan.after`).

Gangs that share a device enter in traced order. A gang enters after the moves whose results it reads, and a move
after the steps that make its sources. All gangs that read a slot have the same place, so only the first of them needs
an edge from the move. An input that was made on the gang's own devices needs no edge. Edges that other edges imply
are then removed; they arise if a wide gang has several predecessors on different devices.
"""

from collections.abc import Iterable, Sequence

from ..model import Gang, Place, device_spans, spans
from .draft import Step, makes

# How many steps back implied edges are searched. An implied edge from further back may stay; it costs one integer.
WINDOW = 4096
MASK = (1 << WINDOW) - 1


def order(steps: Sequence[Step]) -> tuple[tuple[int, ...], ...]:
    devices = _classes(step.place for step in steps if isinstance(step, Gang))
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
            before = {maker[source] for source in step.sources if source in maker}
            moved.update(dict.fromkeys(step.targets, index))
        maker.update(dict.fromkeys(makes(step), index))
        after.append(reach.add(index, before))
    return tuple(after)


def _classes(places: Iterable[Place]) -> dict[Place, tuple[int, ...]]:
    """Group devices into classes, so that loops are over these: two are of one class if every place holds both or
    neither. Return the classes of each place, ascending."""
    known = list(dict.fromkeys(places))
    found: list[list[int]] = [[] for _ in known]
    numbers: dict[tuple[int, ...], int] = {}
    for _, _, members in spans.pieces(map(device_spans, known)):
        if members not in numbers:
            numbers[members] = len(numbers)
            for number in members:
                found[number].append(numbers[members])
    return {place: tuple(found[number]) for number, place in enumerate(known)}


class _Reach:
    """Keeps, for each of the latest steps i, which of the WINDOW steps before it must come first (bit k: i-1-k)."""

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}

    def add(self, index: int, before: set[int]) -> tuple[int, ...]:
        """Add the next step with its predecessors. Return those that the other predecessors do not imply."""
        implied = 0
        for earlier in before:
            implied |= self._bits.get(earlier, 0) << (index - earlier)
        needed = [earlier for earlier in sorted(before) if not implied >> (index - 1 - earlier) & 1]
        for earlier in needed:
            implied |= 1 << (index - 1 - earlier)
        self._bits[index] = implied & MASK
        self._bits.pop(index - WINDOW, None)
        return tuple(needed)
