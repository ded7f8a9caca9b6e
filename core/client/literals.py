"""Which contents that a user gives with a call travel in it, and which are put on devices first.

Neighbours: front ends (`seaway.sessions.arguments`, `backend.door.cluster`) ask; `client` refuses what is too much.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..model import MAX_LITERALS


def to_put(sizes: Sequence[int], must: Collection[int] = ()) -> list[int]:
    """The largest until the others fit into a call, and `must`; as indices. `sizes` are bytes, all times that each is
    passed counted."""
    total = sum(sizes) - sum(sizes[index] for index in must)
    chosen = list(must)
    if total <= MAX_LITERALS:
        return chosen
    for nbytes, index in sorted(((nbytes, index) for index, nbytes in enumerate(sizes)), reverse=True):
        if total <= MAX_LITERALS:
            break
        if index not in must:
            chosen.append(index)
            total -= nbytes
    return chosen
