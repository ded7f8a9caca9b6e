"""How a session's calls get to core's client: in their order, each as soon as it can be made, and none after the end.

    order       each call has its effect when all before it have had theirs
    attempt     calls the client now; a call that cannot be made fails alone, and holds up nothing
    over        why nothing is called any more

A call is a function that returns whether it could be made. If not, it waits for room at core's client, or for an array
that is still on its way; and so do those behind it, for one of them may take over what it reads. What brings about
what a call waits for calls `go_on`. Neighbours: `cluster_link`; `cluster_devices` and `cluster_answers` make calls.
"""

import logging
from collections import deque
from collections.abc import Callable

from core.client import Client
from core.model import Illegal

from ..protocol import StatusCode
from ..session import StatusError
from .cluster_arrays import Argument
from .cluster_link import ClusterLink

log = logging.getLogger("seaway.door")
Call = Callable[[], bool]
MOST = 64  # calls that wait, before the session is to make no more


class CallOrder:
    def __init__(self) -> None:
        self._waiting: deque[Call] = deque()
        self._ahead: deque[Call] = deque()
        self._resume: Callable[[], None] | None = None
        self._at_it = False

    def __len__(self) -> int:
        return len(self._waiting)

    def do(self, call: Call) -> None:
        if self._waiting or self._ahead or self._at_it or not self._made(call):
            self._waiting.append(call)
        elif self._waiting or self._ahead:  # this call has led to others
            self.go_on()

    def ahead(self, call: Call) -> None:
        """A call that waits for no array: others may wait for what it makes."""
        self._ahead.append(call)
        self.go_on()

    def _made(self, call: Call) -> bool:
        self._at_it = True
        try:
            return call()
        finally:
            self._at_it = False

    def go_on(self) -> None:
        if self._at_it:
            return
        while calls := self._ahead or self._waiting:
            if not self._made(calls[0]):
                break
            calls.popleft()
        resume = self._resume
        if resume is not None and len(self._waiting) < MOST // 2:
            self._resume = None
            resume()

    def crowded(self, resume: Callable[[], None]) -> bool:
        if len(self._waiting) < MOST:
            return False
        self._resume = resume
        return True

    def clear(self) -> None:
        self._waiting.clear()
        self._ahead.clear()
        self._resume = None


class ClusterCalls:
    def __init__(self, link: ClusterLink) -> None:
        self.order = CallOrder()
        self.over: StatusError | None = None
        self._link = link

    def ready_to_be_read(self, array: Argument) -> bool:
        """Whether it is settled; if not, calls go on when it is."""
        if array.settled or array.wrong is not None:
            return True
        array.when_settled(self.order.go_on)
        return False

    def attempt(self, act: Callable[[Client, int], bool], failed: Callable[[StatusError], None]) -> bool:
        """Whether the call is over: it was made, or cannot be."""
        if self.over is not None:
            failed(self.over)
            return True
        try:
            return self._link.act(act)
        except StatusError as fault:
            failed(fault)
        except Illegal as error:
            # The client may know already, and this session not yet, that the controller has ended it.
            closed = self._link.act(lambda client, now: client.state == "closed")
            failed(StatusError(StatusCode.UNAVAILABLE if closed else StatusCode.INTERNAL, str(error)))
        except Exception as error:
            log.exception("a call of a session")
            failed(StatusError(StatusCode.INTERNAL, f"the door failed: {type(error).__name__}: {error}"))
        return True
