"""When contents pass between a client and hosts that behave alike, from when both ends are open: pure functions.

Each follows, for all hosts at once, what `core.transfer` says, what threads of `sim.hosts` spend on it, and how
`sim.network` carries it; the tests compare it with these. A host's threads for contents are busy with this transfer
alone. Where a host and the client do something in the same nanosecond, the host's grant counts as late, and its offer
as sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ..engine import Ints
from ..hardware import Profile
from ..network import CARRIED_BYTES

KEPT = 64  # lists of pieces that are remembered


class ClientCosts:
    """`way`: between cards. `taking`: how long a card passes so many bytes. `chunk`: bytes of the largest one. `word`:
    how long a host's message to a client takes."""

    __slots__ = ("_chunk", "_known", "_taking", "latency", "offer", "profile", "way", "word")

    def __init__(
        self, profile: Profile, latency: int, way: int, taking: Callable[[int], int], chunk: int
    ) -> None:
        self.profile, self.latency, self.way = profile, latency, way
        self._taking, self._chunk = taking, chunk
        self.word, self.offer = profile.send + latency, profile.chunk(CARRIED_BYTES)
        self._known: dict[tuple[int, ...], list[tuple[int, int]]] = {}

    def chunks(self, sizes: tuple[int, ...]) -> list[tuple[int, int]]:
        """(what it costs a host, how long it takes a card) of each chunk, of pieces of these bytes."""
        found = self._known.get(sizes)
        if found is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            each = chunks(sizes, self._chunk)
            found = self._known[sizes] = [(self.profile.chunk(size), self._taking(size)) for size in each]
        return found


class ContentTimes(NamedTuple):
    """`over`: when each host's end is over; `heard`: when the client has the last word of each. `left`, `came`: when
    the first chunk leaves, and the last one arrives."""

    over: Ints
    heard: Ints
    left: int
    came: int


def put_times(
    costs: ClientCosts, opened: Ints, connected: Ints, client_opened: int, turns: Ints, sizes: tuple[int, ...]
) -> ContentTimes:
    """`opened`: when each host opens its end; `connected`: from when on it can write to the client; `turns`: when it
    has its turn on the client's card; `sizes`: of the pieces for each host."""
    profile = costs.profile
    granted = np.maximum(opened, connected) + costs.word
    sent = np.maximum(granted, client_opened)
    passed = np.maximum(sent, turns)
    # hosts that have not granted when the client opens its end take an offer first
    taken = np.where(granted >= client_opened, client_opened + costs.way + profile.receive, 0)
    for cost, took in costs.chunks(sizes):
        passed = passed + took
        taken = np.maximum(passed + costs.way, taken) + cost
    heard = taken + costs.word
    return ContentTimes(taken, heard, int(sent.min()), int(passed.max()) + costs.way)


def get_times(
    costs: ClientCosts, opened: Ints, connected: Ints, client_opened: int, turns: Ints, sizes: tuple[int, ...]
) -> ContentTimes:
    """Likewise, of what hosts send."""
    profile = costs.profile
    granted = client_opened + costs.latency + profile.receive
    offer = np.maximum(opened, connected) + costs.offer
    written = np.where(opened <= granted, offer, 0)
    sent, passed, first = np.maximum(opened, granted), turns, None
    for cost, took in costs.chunks(sizes):
        written = np.maximum(written, sent) + cost
        first = written if first is None else first
        passed = np.maximum(written + costs.way, passed) + took
    assert first is not None
    over = passed + (costs.latency + profile.receive)
    return ContentTimes(over, passed, int(first.min()), int(passed.max()))


def chunks(sizes: Sequence[int], chunk: int) -> list[int]:
    """The bytes of each chunk, of pieces of these sizes."""
    return [min(chunk, size - at) for size in sizes for at in range(0, max(size, 1), chunk)]
