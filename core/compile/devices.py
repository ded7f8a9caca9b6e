"""Groups a program's devices into classes, so that passes loop over classes and not over devices.

Two devices are of one class if every place of the program holds both of them or neither.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model import Place, device_spans


def classes(places: Iterable[Place]) -> dict[Place, tuple[int, ...]]:
    """Return the classes of each place, ascending. Two places share a device exactly if they share a class."""
    known = list(dict.fromkeys(places))
    edges: dict[int, list[int]] = {}  # device -> places p with a span that begins there (~p: that ends there)
    for number, place in enumerate(known):
        for low, high in device_spans(place):
            edges.setdefault(low, []).append(number)
            edges.setdefault(high, []).append(~number)
    found: list[list[int]] = [[] for _ in known]
    numbers: dict[tuple[int, ...], int] = {}
    here: set[int] = set()
    for device in sorted(edges):
        for edge in edges[device]:
            if edge >= 0:
                here.add(edge)
            else:
                here.discard(~edge)
        members = tuple(sorted(here))
        if members and members not in numbers:
            numbers[members] = len(numbers)
            for number in members:
                found[number].append(numbers[members])
    return {place: tuple(found[number]) for number, place in enumerate(known)}
