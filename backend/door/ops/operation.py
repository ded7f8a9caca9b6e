"""What there is to know of a kind of request, besides its meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..reply import Reply
from ..state import SessionState

__all__ = ["Operation"]


class Operation(NamedTuple):
    """`run` answers, now or later, or raises Fault. `results`: handles of a request's results, which keep a fault.
    `needs`: host buffers that must have come. `executes`: whether it gives devices work."""

    name: str
    run: Callable[[SessionState, Any, Reply], None]
    results: Callable[[Any], Iterable[int]] | None = None
    needs: Callable[[Any], Iterable[int]] | None = None
    executes: bool = False
