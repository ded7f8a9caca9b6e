"""A controller elsewhere, as the source of a page. It is asked as `seaway status` asks it, with the same access.

Neighbours: `looking`, what a source does; `backend.admin.trace_export`, the call.
"""

import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

import grpc
import grpc.aio

from backend.admin import fetch_look
from backend.auth import Access
from backend.node import CallError, ask
from backend.streams import LoopThread
from backend.wire import AboutReply, Described
from core.model import Cluster
from core.record import LiveLook, Look

from .. import machines
from ..errors import SeawayError
from .looking import LiveSource, Unavailable

PATIENCE = 5.0  # seconds for an answer
T = TypeVar("T")


class ControllerSource(LiveSource):
    """A controller at an address, asked as `seaway status` asks it. Its connection comes back by itself."""

    kind = "cluster"

    def __init__(self, address: str, access: Access) -> None:
        """Raises SeawayError if no controller answers, or one of another version."""
        self._address, self._access = address, access
        self._lock, self._closed = threading.Lock(), False
        self._loop = LoopThread("seaway-dashboard")
        self._channel: grpc.aio.Channel = self._do(self._open())
        try:
            self._take(self._about())
        except CallError as wrong:
            self.close()
            raise SeawayError(_why(address, wrong)) from None

    def _take(self, cluster: Cluster) -> None:
        self._cluster, self.islands = cluster, machines.of_setup(cluster).islands
        self.title = f"{cluster.describe()} at {self._address}"

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._closed:
                work.close()
                raise Unavailable("this page has ended")
            future = self._loop.begin(work)
        try:
            return future.result()
        except CancelledError:
            raise Unavailable("this page has ended") from None

    async def _open(self) -> grpc.aio.Channel:
        return self._access.channel(self._address)

    def _about(self) -> Cluster:
        from .. import __version__

        described: Described = self._do(ask(self._channel, self._access, AboutReply(__version__), PATIENCE))
        return described.cluster

    def look(self, request: Look) -> LiveLook:
        try:
            found = self._do(fetch_look(self._channel, self._access, request, PATIENCE))
            islands = len(found.view.islands) if found.view is not None else 0
            hosts = max((high for _, high in found.connected), default=0)
            if islands > len(self._cluster.islands) or hosts > self._cluster.hosts:
                self._take(self._about())  # it has grown
        except CallError as wrong:
            raise Unavailable(_why(self._address, wrong)) from None
        self.began = found.began  # of the controller that answered last
        return found

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._loop.do(self._end())
        self._loop.close()

    async def _end(self) -> None:
        """Cancel what is under way, so that nobody waits for it."""
        await self._loop.cancel_all()
        await self._channel.close()


def _why(address: str, wrong: CallError) -> str:
    if wrong.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return (
            f"no controller answers at {address}. Is `seaway controller` or `seaway up` running there, is its port "
            f"open to this machine, and has it certificates that --ca, --cert and --key should name here?"
        )
    return f"the controller at {address} says: {wrong}"
