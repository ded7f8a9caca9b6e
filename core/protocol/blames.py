"""Chooses which blame to keep if several hosts report why one gang failed.

Neighbours: the controller's `dispatch` and `failures`, which keep one blame for each gang; device layers, which
report what they saw.
"""

from __future__ import annotations

from .wire import Blame

# Codes with which a host reports that another host failed: its collective broke off, or the files that it wrote were
# removed meanwhile. The other host reports the cause itself, or its lease runs out.
OF_ANOTHER = frozenset(("peer", "discarded"))


def better(known: Blame | None, reported: Blame | None) -> Blame | None:
    """Return the known blame, unless it only says that another host failed and the reported one gives the cause."""
    if known is None:
        return reported
    if reported is not None and known.code in OF_ANOTHER and reported.code not in OF_ANOTHER:
        return reported
    return known
