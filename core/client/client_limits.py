"""What a client's session may do when, within which limits, and what its calls answer: tables of `client`."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

# (state, what happened) -> next state; what is not here is Illegal for the user, and nothing for others.
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
RUN: dict[tuple[str, str], str] = {
    ("out", "cancel"): "cancelled",
    ("out", "end"): "over",
    ("cancelled", "cancel"): "cancelled",  # once is enough
    ("cancelled", "end"): "over",
}


class Limits(msgspec.Struct, frozen=True):
    pipe: int = 4
    linger: int = 1_000_000  # nanoseconds
    batch: int = 256
    max_runs: int = 1024
    max_requests: int = 1024
    max_programs: int = 4096
    literal: int = 4096  # bytes of arguments that ride in one call


class Submitted(NamedTuple):
    run: int
    results: tuple[int, ...]


class Blocked(NamedTuple):
    """Nothing has changed; try again after Unblocked."""

    reason: str
