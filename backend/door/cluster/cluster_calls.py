"""How a session's calls get to core's client: in their order, each as soon as it can be made, and none after the end.

    order       CallOrder; a call returns False if it is to be tried again
    attempt     calls the client now; a call that cannot be made fails alone, and holds up nothing
    over        why nothing is called any more

Neighbours: `call_order`, `cluster_link`; `cluster_devices` and `cluster_answers` make calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from core.client import Client
from core.model import Illegal

from ..protocol import StatusCode
from ..session import StatusError
from .call_order import CallOrder
from .cluster_arrays import Argument
from .cluster_link import ClusterLink

log = logging.getLogger("seaway.door")


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
