"""How long gangs took, from when they were over: of those that stood in their devices' queue behind another one.

A controller hears when a gang has ended, and not when it began. But of one that stood behind another on the same
devices that is known: when the other ended. Such are samples, and no others. Gangs that were reported together share
their time evenly. One is `deep` that stood behind two: then none of its messages were under way when its turn came, and
its devices were not idle between. So where there are enough of these, others are not counted.

Pure; its neighbours are `backend.admin.durations` and `seaway.tools.whatif`, which price by it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from ..model import spans
from .trace import TracedPlace

K = TypeVar("K", bound=Hashable)
NEVER = -1
ENOUGH = 3  # deep samples


class Over(NamedTuple, Generic[K]):
    """A gang that has ended. `what` it ran; None: nobody knows. `failed`: or ran with contents of any value."""

    ended: int
    entered: int
    place: int
    what: K | None
    failed: bool


class Sample(NamedTuple, Generic[K]):
    what: K
    took: int
    deep: bool


def taken(gangs: Iterable[Over[K]], places: Mapping[int, TracedPlace]) -> dict[K, list[int]]:
    """How long executions of each took, by what counts: deep ones where there are enough."""
    every: dict[K, list[int]] = {}
    deep: dict[K, list[int]] = {}
    for sample in samples(gangs, places):
        every.setdefault(sample.what, []).append(sample.took)
        if sample.deep:
            deep.setdefault(sample.what, []).append(sample.took)
    return {what: deep[what] if len(deep.get(what, ())) >= ENOUGH else found for what, found in every.items()}


def samples(gangs: Iterable[Over[K]], places: Mapping[int, TracedPlace]) -> Iterator[Sample[K]]:
    """In the order in which they ended; of gangs at places that are not known, none."""
    known = sorted((gang for gang in gangs if gang.place in places), key=attrgetter("ended"))
    last: dict[int, int] = {}  # place -> when the last gang there ended
    earlier: dict[int, int] = {}  # and the last but one
    for ended, together in groupby(known, attrgetter("ended")):
        by_place: dict[int, list[Over[K]]] = {}
        for gang in together:
            by_place.setdefault(gang.place, []).append(gang)
        for place, group in by_place.items():
            begun, what = last.get(place, NEVER), group[0].what
            behind = all(gang.entered < begun and not gang.failed for gang in group)
            alike = all(gang.what == what for gang in group)  # of others nobody knows which took how long
            if what is None or not behind or not alike:
                continue
            if not _disturbed(places, place, {**last, **dict.fromkeys(by_place, ended)}, begun):
                deep = all(gang.entered < earlier.get(place, NEVER) for gang in group)
                yield from [Sample(what, (ended - begun) // len(group), deep)] * len(group)
        for place in by_place:
            earlier[place], last[place] = last.get(place, NEVER), ended


def _disturbed(places: Mapping[int, TracedPlace], place: int, last: Mapping[int, int], begun: int) -> bool:
    """Somebody else has had some of these devices since."""
    return any(
        other != place and ended > begun and spans.overlap(places[other].devices, places[place].devices)
        for other, ended in last.items()
    )
