"""What there is to know of a kind of request, besides its meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..reply import Reply
from ..session_state import SessionState


class Operation(NamedTuple):
    """`run` answers, now or later, or raises StatusError. `results`: handles of results, which keep an error. `needs`:
    host buffers that must have come. `executes`: whether it gives devices work."""

    name: str
    run: Callable[[SessionState, Any, Reply], None]
    results: Callable[[Any], Iterable[int]] | None = None
    needs: Callable[[Any], Iterable[int]] | None = None
    executes: bool = False
