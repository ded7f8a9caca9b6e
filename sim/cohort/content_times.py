"""When contents pass between a client and hosts that behave alike, from when both ends are open: pure functions.

Each follows, for all hosts at once, what `core.transfer` says, what threads of `sim.hosts` spend on it, and how
`sim.network` carries it; the tests compare it with these. A host's threads for contents are busy with this transfer
alone. Where a host and the client do something in the same nanosecond, the host's grant counts as late, and its offer
as sent.

Most gets come from one host, whose times are numbers: vectors of one number would take ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
import numpy as np

from ..engine import Ints
from ..hardware import Profile
from ..network import CARRIED_BYTES
from .host_times import HostTimes

KEPT = 64  # lists of pieces that are remembered
PAST = -(1 << 62)

Times: TypeAlias = Ints | int  # of several hosts, or of one


class ClientCosts:
    """`way`: between cards. `taking`: how long a card passes so many bytes. `chunk`: bytes of the largest one. `word`:
    how long a host's message to a client takes."""

    __slots__ = ("_chunk", "_taking", "chunks", "latency", "offer", "profile", "way", "word")

    def __init__(self, profile: Profile, latency: int, way: int, taking: Callable[[int], int], chunk: int) -> None:
        self.profile, self.latency, self.way = profile, latency, way
        self._taking, self._chunk = taking, chunk
        self.word, self.offer = profile.send + latency, profile.chunk(CARRIED_BYTES)
        self.chunks = lru_cache(maxsize=KEPT)(self._chunks)

    def _chunks(self, sizes: tuple[int, ...]) -> list[tuple[int, int]]:
        """(what it costs a host, how long it takes a card) of each chunk, of pieces of these bytes."""
        return [(self.profile.chunk(size), self._taking(size)) for size in chunks(sizes, self._chunk)]


class ContentTimes(msgspec.Struct, frozen=True, eq=False):
    """`over`: when each host's end is over. `heard`: when the client has the last host's last word; `last`: which of
    them says it. `left`, `came`: when the first chunk leaves, and the last one arrives."""

    over: HostTimes | int
    heard: int
    last: int
    left: int
    came: int

    def shifted(self, by: int) -> ContentTimes:
        return ContentTimes(self.over + by, self.heard + by, self.last, self.left + by, self.came + by)


def put_times(
    costs: ClientCosts, opened: Times, connected: Times, client_opened: int, turns: Times, sizes: tuple[int, ...]
) -> ContentTimes:
    """`opened`: when each host opens its end; `connected`: from when on it can write to the client; `turns`: when it
    has its turn on the client's card; `sizes`: of the pieces for each host."""
    profile, one = costs.profile, isinstance(opened, int)
    later: Any = max if one else np.maximum
    granted: Any = later(opened, connected) + costs.word
    sent: Any = later(granted, client_opened)
    passed: Any = later(sent, turns)
    # hosts that have not granted when the client opens its end take an offer first
    late, offer = granted >= client_opened, client_opened + costs.way + profile.receive
    taken: Any = (offer if late else PAST) if one else np.where(late, offer, PAST)
    for cost, took in costs.chunks(sizes):
        passed = passed + took
        taken = later(passed + costs.way, taken) + cost
    heard: Any = taken + costs.word
    if one:
        return ContentTimes(taken, heard, 0, sent, passed + costs.way)
    last = int(heard.argmax())
    return ContentTimes(taken, int(heard[last]), last, int(sent.min()), int(passed.max()) + costs.way)


def get_times(
    costs: ClientCosts, opened: Times, connected: Times, client_opened: int, turns: Times, sizes: tuple[int, ...]
) -> ContentTimes:
    """Likewise, of what hosts send."""
    profile, one = costs.profile, isinstance(opened, int)
    later: Any = max if one else np.maximum
    granted = client_opened + costs.latency + profile.receive
    early, offer = opened <= granted, later(opened, connected) + costs.offer
    written: Any = (offer if early else PAST) if one else np.where(early, offer, PAST)
    sent: Any = later(opened, granted)
    passed: Any = turns
    first: Any = None
    for cost, took in costs.chunks(sizes):
        written = later(written, sent) + cost
        first = written if first is None else first
        passed = later(written + costs.way, passed) + took
    over = passed + (costs.latency + profile.receive)
    if one:
        return ContentTimes(over, passed, 0, first, passed)
    last = int(passed.argmax())
    return ContentTimes(over, int(passed[last]), last, int(first.min()), int(passed[last]))


def chunks(sizes: Sequence[int], chunk: int) -> list[int]:
    """The bytes of each chunk, of pieces of these sizes."""
    return [min(chunk, size - at) for size in sizes for at in range(0, max(size, 1), chunk)]
