"""What a simulation raises to whoever drives it."""

from __future__ import annotations


class Stuck(Exception):
    """What is waited for cannot happen any more: nothing is under way but timers."""


class Unannounced(Exception):
    """Trouble on an island that is simulated as a cohort."""
