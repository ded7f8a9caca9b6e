"""The exceptions that a simulation raises to its caller."""

from __future__ import annotations

from core.model import SeawayError


class Stuck(SeawayError):
    """The condition that `run` waits for cannot become true: only timers are still scheduled."""


class Unannounced(SeawayError):
    """A fault was injected into an island that is simulated as a cohort, and had not been announced at the start."""
