"""The exceptions that core raises at its own caller. A *peer's* mistake raises nothing: core closes that peer."""

from __future__ import annotations


class Illegal(Exception):
    """The local caller gave a machine an event that its state does not allow. The machine has not changed."""


class Impossible(Exception):
    """This cluster can never meet the request. The text says what was asked, what there is, and what would fit."""


class ProgramError(Exception):
    """The program is invalid, or its arguments do not fit it. The text names the node."""
