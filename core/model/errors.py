"""The exceptions that core raises at its own caller. A *peer's* mistake raises nothing: core closes that peer.

`SeawayError` is the base of every error that reaches a user. It is here because core, which imports none of the
others, raises some of them. `seaway.errors` has them all.
"""

from __future__ import annotations


class SeawayError(Exception):
    """The base class of Seaway's own errors. The text says what was asked, and what to do instead."""


class Illegal(Exception):
    """The local caller gave a machine an event that its state does not allow. The machine has not changed."""


class Impossible(SeawayError):
    """This cluster can never meet the request. The text says what was asked, what there is, and what would fit."""


class ProgramError(SeawayError):
    """The program is invalid, or its arguments do not fit it. The text names the node."""
