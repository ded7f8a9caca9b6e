"""The answer to one request: made by an operation, at once or later, and sent through the session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..protocol import IfrtResponse
from .session_devices import StatusError


class Reply:
    """`finished(reply, response, succeeded)` sends it; `counted`: whether it gets a sequence number."""

    __slots__ = ("context", "counted", "finished", "op_id")

    def __init__(
        self, op_id: int, context: int, counted: bool, finished: Callable[[Reply, Any, bool], None]
    ) -> None:
        self.op_id, self.context, self.counted, self.finished = op_id, context, counted, finished

    def ok(self, response: Any) -> None:
        """`response`: an IfrtResponse whose body is set."""
        self.finished(self, response, True)

    def empty(self, body: str) -> None:
        response = IfrtResponse()
        getattr(response, body).SetInParent()
        self.finished(self, response, True)

    def fault(self, fault: StatusError) -> None:
        response = IfrtResponse()
        status = response.response_metadata.status
        status.code, status.message = fault.code, fault.text
        self.finished(self, response, False)
