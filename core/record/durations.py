"""Estimates how long gangs took from the times at which they ended.

A controller learns when a gang ended, but not when it began. If a gang was queued behind another one on the same
devices, it began when the other one ended. Only such gangs give a sample. Gangs that were reported together share
their time evenly. A sample is `deep` if its gang was queued behind two others: then its messages had arrived before
its turn, and its devices were not idle in between. If there are enough deep samples, no others are counted.

Neighbours: `backend.admin.trace_export` and `seaway.tools.whatif`, which use the estimates as costs.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from ..model import spans
from .trace import TracedPlace

K = TypeVar("K", bound=Hashable)
NEVER = -1
ENOUGH = 3  # deep samples


class EndedGang(NamedTuple, Generic[K]):
    """A gang that has ended."""

    ended: int
    entered: int
    place: int
    what: K | None  # the computation that it ran; None if not known
    failed: bool  # it failed, or ran with placeholders


class DurationSample(NamedTuple, Generic[K]):
    what: K
    took: int
    deep: bool


def taken(gangs: Iterable[EndedGang[K]], places: Mapping[int, TracedPlace]) -> dict[K, list[int]]:
    """Return, for each computation, the durations of its executions: only the deep ones if there are enough."""
    all_samples: dict[K, list[int]] = {}
    deep: dict[K, list[int]] = {}
    for sample in samples(gangs, places):
        all_samples.setdefault(sample.what, []).append(sample.took)
        if sample.deep:
            deep.setdefault(sample.what, []).append(sample.took)
    return {what: deep[what] if len(deep.get(what, ())) >= ENOUGH else found for what, found in all_samples.items()}


def typical(durations: Iterable[int]) -> int:
    """The mean of these, without the twentieth at either end.

    Hosts report ends together, each host at its own times, so a few gangs seem to take long and many short: their mean
    is right, and their median is not."""
    ordered = sorted(durations)
    cut = len(ordered) // 20
    kept = ordered[cut : len(ordered) - cut]
    return round(sum(kept) / len(kept))


def samples(gangs: Iterable[EndedGang[K]], places: Mapping[int, TracedPlace]) -> Iterator[DurationSample[K]]:
    """Yield samples in the order in which gangs ended. Gangs at unknown places give none."""
    known = sorted((gang for gang in gangs if gang.place in places), key=attrgetter("ended"))
    last: dict[int, int] = {}  # place -> when the last gang there ended
    earlier: dict[int, int] = {}  # place -> when the last but one ended
    for ended, together in groupby(known, attrgetter("ended")):
        by_place: dict[int, list[EndedGang[K]]] = {}
        for gang in together:
            by_place.setdefault(gang.place, []).append(gang)
        for place, group in by_place.items():
            begun, what = last.get(place, NEVER), group[0].what
            behind = all(gang.entered < begun and not gang.failed for gang in group)
            same = all(gang.what == what for gang in group)  # else it is unknown which of them took how long
            if what is None or not behind or not same:
                continue
            if not _disturbed(places, place, {**last, **dict.fromkeys(by_place, ended)}, begun):
                deep = all(gang.entered < earlier.get(place, NEVER) for gang in group)
                yield from [DurationSample(what, (ended - begun) // len(group), deep)] * len(group)
        for place in by_place:
            earlier[place], last[place] = last.get(place, NEVER), ended


def _disturbed(places: Mapping[int, TracedPlace], place: int, last: Mapping[int, int], begun: int) -> bool:
    """Whether a gang of another place has ended on some of these devices since `begun`."""
    return any(
        other != place and ended > begun and spans.overlap(places[other].devices, places[place].devices)
        for other, ended in last.items()
    )
