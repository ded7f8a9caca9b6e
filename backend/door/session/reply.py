"""The answer to one request, sent through the session; and what there is to know of a kind of request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..protocol import IfrtResponse
from .memory_meter import Maker
from .session_devices import StatusError
from .session_state import SessionState


class Reply:
    """`finished(reply, response, succeeded)` sends it; `counted`: whether it gets a sequence number."""

    __slots__ = ("counted", "finished", "maker", "op_id")

    def __init__(self, op_id: int, maker: Maker, counted: bool, finished: Callable[[Reply, Any, bool], None]) -> None:
        self.op_id, self.maker, self.counted, self.finished = op_id, maker, counted, finished

    def ok(self, response: Any) -> None:
        """`response`: an IfrtResponse whose body is set."""
        self.finished(self, response, True)

    def answer(self, body: str, **fields: Any) -> None:
        self.finished(self, IfrtResponse(**{body: fields}), True)

    def fault(self, fault: StatusError) -> None:
        response = IfrtResponse()
        status = response.response_metadata.status
        status.code, status.message = fault.code, fault.text
        self.finished(self, response, False)


# --- kinds of request ----------------------------------------------------------------------------------------------


class Operation(NamedTuple):
    """`run` answers, now or later, or raises StatusError. `results`: fields of handles of its results, which keep an
    error if they are the client's. `needs`: host buffers that must have come. `executes`: whether it gives devices
    work."""

    name: str
    run: Callable[[SessionState, Any, Reply], None]
    results: tuple[str, ...] = ()
    needs: Callable[[Any], Iterable[int]] | None = None
    executes: bool = False
