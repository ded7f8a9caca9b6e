"""Bounds of a client, the answers to its calls, and the phases of its session.

Neighbours: every module here reads them; drivers pass `Limits` and look for `Blocked`.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from ..model import FEW, MAX_LITERALS

# (phase, what happened) -> next phase. A user's call that is not here is Illegal; other events are ignored then.
SESSION: dict[tuple[str, str], str] = {
    ("new", "call"): "new",  # it will leave behind Open
    ("new", "connected"): "open",
    ("new", "close"): "closed",
    ("open", "call"): "open",
    ("open", "disconnected"): "away",
    ("open", "close"): "closing",  # Bye is on its way
    ("open", "goodbye"): "closed",
    ("away", "call"): "away",
    ("away", "connected"): "open",
    ("away", "close"): "closed",
    ("closing", "close"): "closing",
    ("closing", "disconnected"): "closed",
    ("closing", "goodbye"): "closed",
    ("closed", "close"): "closed",
}
MAY_CALL = frozenset(phase for phase, happened in SESSION if happened == "call")


class Limits(msgspec.Struct, frozen=True):
    """`pipe`, `linger`, `batch`: see `call_batching`."""

    pipe: int = 4  # messages in flight
    linger: int = 1_000_000  # nanoseconds
    batch: int = 256  # calls in one message
    max_runs: int = 1024
    max_requests: int = 1024
    max_programs: int = 4096
    literal: int = MAX_LITERALS  # bytes of arguments that ride in one call
    together: int = FEW  # as many buffers with consecutive names travel as one
    get_retries: int = 3  # how often one get is asked again, when the cluster failed it


class Submitted(NamedTuple):
    run: int
    results: tuple[int, ...]


class Blocked(NamedTuple):
    """Nothing has changed; try again after Unblocked."""

    reason: str


# --- what travels in a call -------------------------------------------------------------------------------------------


def to_put(sizes: Sequence[int], must: Collection[int] = ()) -> list[int]:
    """The largest until the others fit into a call, and `must`; as indices. `sizes` are bytes, all times that each is
    passed counted."""
    total = sum(sizes) - sum(sizes[index] for index in must)
    chosen = list(must)
    if total <= MAX_LITERALS:
        return chosen
    for nbytes, index in sorted(((nbytes, index) for index, nbytes in enumerate(sizes)), reverse=True):
        if total <= MAX_LITERALS:
            break
        if index not in must:
            chosen.append(index)
            total -= nbytes
    return chosen
