"""Whose words count when several hosts say why one thing failed.

Neighbours: `dispatch` and `failures`, which keep one blame a flight; device layers, which say what they saw.
"""

from __future__ import annotations

from .messages import Blame

# What a host sees of another's failure: a collective that broke off, files that were removed while it wrote them. That
# other says why itself, or its lease does.
OF_ANOTHER = frozenset(("peer", "discarded"))


def better(known: Blame | None, said: Blame | None) -> Blame | None:
    """The first that was said, unless it is of another's failure, and the next is not."""
    if known is None or (said is not None and known.code in OF_ANOTHER and said.code not in OF_ANOTHER):
        return said
    return known
