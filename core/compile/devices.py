"""Devices that no place of a program tells apart are one class, so passes count classes and not devices."""

from __future__ import annotations

from collections.abc import Iterable

from ..model import Place, device_spans


def classes(places: Iterable[Place]) -> dict[Place, tuple[int, ...]]:
    """By place: the classes of its devices, ascending. Two places share a device if they share a class."""
    known = list(dict.fromkeys(places))
    edges: dict[int, list[int]] = {}  # device -> places that begin (~p: end) there
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
