"""What a simulation raises to whoever drives it."""

from __future__ import annotations

from core.model import SeawayError


class Stuck(SeawayError):
    """What is waited for cannot happen any more: nothing is under way but timers."""


class Unannounced(SeawayError):
    """Trouble on an island that is simulated as a cohort."""
