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


class ClientCosts(NamedTuple):
    """`way`: between cards. `taking`: how long a card passes so many bytes. `chunk`: bytes of the largest one."""

    profile: Profile
    latency: int
    way: int
    taking: Callable[[int], int]
    chunk: int


class ContentTimes(NamedTuple):
    """`over`: when each host's end is over; `heard`: when the client has the last word of each. `left`, `came`: when
    the first chunk leaves, and the last one arrives."""

    over: Ints
    heard: Ints
    left: int
    came: int


def put_times(
    costs: ClientCosts, opened: Ints, connected: Ints, client_opened: int, turns: Ints, sizes: Sequence[int]
) -> ContentTimes:
    """`opened`: when each host opens its end; `connected`: from when on it can write to the client; `turns`: when it
    has its turn on the client's card; `sizes`: of the pieces for each host."""
    profile = costs.profile
    granted = np.maximum(opened, connected) + (profile.send + costs.latency)
    sent = np.maximum(granted, client_opened)
    passed = np.maximum(sent, turns)
    # hosts that have not granted when the client opens its end take an offer first
    taken = np.where(granted >= client_opened, client_opened + costs.way + profile.receive, 0)
    for nbytes in chunks(sizes, costs.chunk):
        passed = passed + costs.taking(nbytes)
        taken = np.maximum(passed + costs.way, taken) + profile.chunk(nbytes)
    heard = taken + (profile.send + costs.latency)
    return ContentTimes(taken, heard, int(sent.min()), int(passed.max()) + costs.way)


def get_times(
    costs: ClientCosts, opened: Ints, connected: Ints, client_opened: int, turns: Ints, sizes: Sequence[int]
) -> ContentTimes:
    """Likewise, of what hosts send."""
    profile = costs.profile
    granted = client_opened + costs.latency + profile.receive
    offer = np.maximum(opened, connected) + profile.chunk(CARRIED_BYTES)
    written = np.where(opened <= granted, offer, 0)
    sent, passed, first = np.maximum(opened, granted), turns, None
    for nbytes in chunks(sizes, costs.chunk):
        written = np.maximum(written, sent) + profile.chunk(nbytes)
        first = written if first is None else first
        passed = np.maximum(written + costs.way, passed) + costs.taking(nbytes)
    assert first is not None
    over = passed + (costs.latency + profile.receive)
    return ContentTimes(over, passed, int(first.min()), int(passed.max()))


def chunks(sizes: Sequence[int], chunk: int) -> list[int]:
    """The bytes of each chunk, of pieces of these sizes."""
    return [min(chunk, size - at) for size in sizes for at in range(0, max(size, 1), chunk)]
