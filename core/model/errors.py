"""What core raises at its own caller. What a *peer* does wrong is never raised: it closes that peer."""

from __future__ import annotations


class Illegal(Exception):
    """A local caller's event that this machine cannot take in its state. Nothing has changed."""


class Impossible(Exception):
    """A request that can never be met here; the text says what there is, what was asked, and what would fit."""


class ProgramError(Exception):
    """A program that means nothing, or arguments that do not fit it; the text points at the node by its name."""
