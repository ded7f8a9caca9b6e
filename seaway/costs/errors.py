"""Errors of finding a cost. Every text says what to do about it."""

from __future__ import annotations


class CostError(Exception):
    """The cost cannot be found this way. The text says why, and what would help."""


class NoCompiler(CostError):
    """The TPU compiler is not installed here."""


class TooBig(CostError):
    """The computation does not fit into a device's memory."""
