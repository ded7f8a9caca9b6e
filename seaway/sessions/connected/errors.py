"""What a user of a real session is told when its controller cannot be had."""

from __future__ import annotations

from ...errors import SeawayError


class Unreachable(SeawayError, ConnectionError):
    """There is no controller where one was to be, or it is gone and has not come back."""


class NotReady(SeawayError, TimeoutError):
    """A cluster did not stand in time."""
