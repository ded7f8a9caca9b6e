"""Errors of real sessions whose controller or cluster cannot be reached."""

from __future__ import annotations

from ...errors import SeawayError


class Unreachable(SeawayError, ConnectionError):
    """No controller answers at the address, or it was lost and has not come back in time."""


class NotReady(SeawayError, TimeoutError):
    """A local cluster did not start in time."""
