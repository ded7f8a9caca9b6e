"""What one session has of a cluster: core's client on its connections, and the controller for code.

    session --act--> core's client --> controller, hosts
    session <--heard, one after the other, on the loop's thread-- core's client, in any thread

`ClusterLink` is what devices need of it, `SessionLine` what those need who open and end sessions. Implementations:
`RemoteLink` here; `seaway.sessions.simulated_door`, whose client is simulated; tests have a fake. Neighbours:
`cluster_devices`, `cluster_opening`; `backend.client`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol, TypeVar

import grpc

from backend.client import Head, PutOffer, Remote
from backend.contents import hash_of
from backend.node import CallError
from backend.wire import Described
from core.client import Client, infrastructure
from core.model import Range, Value
from core.protocol import Blame, Command, LogLine

from ..protocol import StatusCode
from ..session import StatusError
from .cluster_callbacks import ClusterCallbacks
from .cluster_programs import UNKNOWN

log = logging.getLogger("seaway.door")
T = TypeVar("T")
GOODBYE = 2.0  # seconds for the controller to acknowledge that a session ends
PATIENCE = 60.0  # seconds for a controller that is out of reach to come back
LATER = 0.01  # seconds until what was dropped is released, if no call takes it along
LOOK = 1.0  # seconds between looks at whether it is


CODES = {  # of blames, as the protocol has them
    "refused": StatusCode.INVALID_ARGUMENT,
    "no-memory": StatusCode.RESOURCE_EXHAUSTED,
    "timeout": StatusCode.DEADLINE_EXCEEDED,
    "cancelled": StatusCode.CANCELLED,
    "protocol": StatusCode.INTERNAL,
    "user": StatusCode.INTERNAL,
}


def fault_of_blame(blame: Blame) -> StatusError:
    """What the cluster lost is DATA_LOSS, as for JAX on Google's own servers: elastic training looks for that word, and
    begins again from a checkpoint. The session goes on; when it does not, all of its calls are UNAVAILABLE."""
    if infrastructure(blame):
        return StatusError(StatusCode.DATA_LOSS, str(blame))
    return StatusError(CODES.get(blame.code, StatusCode.INTERNAL), str(blame))


class ClusterLink(Protocol):
    heard: Callable[[Command], None]
    failed: Callable[[StatusError], None]

    def act(self, act: Callable[[Client, int], T]) -> T:
        """Calls core's client."""

    def now(self) -> int:
        """By the clock of core's client."""

    def offer(self, buffer: int) -> PutOffer:
        """Promises the contents of a buffer that is put in this call of `act`."""

    def taken(self, request: int, value: Value) -> Any:
        """The contents that a get has brought, of an array of this type."""

    def expected(self, code: str, devices: int) -> int:
        """The nanoseconds that a computation with this code is taken to last, as long as nobody has seen it run."""

    async def keep(self, blob: bytes) -> None:
        """Leaves code with the controller. Raises StatusError."""

    def close(self) -> None:
        """The session is over: all that it has there is given back."""


class CallWatch(Protocol):
    """What is told what a session calls and hears, for spans. Times are of core's client."""

    def called(self, run: int, program: str, at: int) -> None: ...

    def put(self, buffer: int, nbytes: int, at: int) -> None: ...

    def got(self, request: int, nbytes: int, at: int) -> None:
        """A read was asked for."""

    def given_back(self, buffers: Iterable[int | Range]) -> None: ...

    def hears(self, command: Command) -> None: ...


class SessionLine(ClusterLink, Protocol):
    name: str

    def soon(self, function: Callable[[], None]) -> None:
        """Calls what releases dropped arrays, if no call takes them along: soon, on the loop's thread; from any."""

    def when_closed(self, then: Callable[[], None]) -> None: ...

    def callbacks(self, islands: Collection[str]) -> ClusterCallbacks | None:
        """The session's streams for callbacks, to hosts of these islands ("": of any); None: nothing would call."""

    async def closed(self) -> None:
        """Closes it, and waits until that is done."""


class RemoteLink:
    """Make it on the loop's thread. One `head` serves all links of a door."""

    def __init__(self, head: Head, described: Described, name: str, weight: int, priority: int) -> None:
        self.name, self._head, self._described = name, head, described
        self.codes: set[str] = set()  # by hash: code of this session that the controller is to have
        self._loop = asyncio.get_running_loop()
        self._said: deque[Command | BaseException] = deque()
        self.heard: Callable[[Command], None] = lambda command: None
        self.failed: Callable[[StatusError], None] = lambda fault: None
        self.client = Client(name, described.cluster, weight=weight, priority=priority)
        self.remote = Remote(self.client, described.lease, head, heard=self._note, failed=self._note)
        self.act, self.offer, self.now = self.remote.act, self.remote.offer, self.remote.node.now
        self.remote.node.start()
        self._closing: asyncio.Task[None] | None = None
        self._then: list[Callable[[], None]] = []
        self._last = ""  # what the client said last
        self._look_again: asyncio.TimerHandle | None = self._loop.call_later(LOOK, self._look)

    def callbacks(self, islands: Collection[str]) -> ClusterCallbacks | None:
        hosts = [
            each.base_host + rank
            for each in self._described.cluster.islands
            if each.name in islands or "" in islands
            for rank in range(each.hosts)
        ]
        return ClusterCallbacks(self.remote.node.directory, hosts, self._head.access, self.remote.mine)

    def taken(self, request: int, value: Value) -> Any:
        return self.remote.taken(request)

    def expected(self, code: str, devices: int) -> int:
        return UNKNOWN

    def soon(self, function: Callable[[], None]) -> None:
        self.remote.node.soon(lambda: self._loop.call_later(LATER, function))

    async def keep(self, blob: bytes) -> None:
        self.codes.add(hash_of(blob))
        until = self._loop.time() + PATIENCE
        while True:
            try:
                await self._head.keep((blob,))
                return
            except CallError as wrong:
                away = wrong.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
                if not away or self._loop.time() > until:
                    text = f"the controller did not take the program's code: {wrong}"
                    raise StatusError(wrong.code.value[0], text) from None
            await asyncio.sleep(LOOK)

    def _note(self, said: Command | BaseException) -> None:
        """Called in any thread."""
        if isinstance(said, LogLine):
            self._last = said.text
            log.info("client %r: %s", self.name, said.text)
        self._said.append(said)
        if len(self._said) == 1:
            self.remote.node.soon(self._tell)

    def _tell(self) -> None:
        said = self._said
        self._look_whether_closed()  # before what else is over for that reason
        while said:
            each = said[0]
            try:
                if isinstance(each, BaseException):
                    refused = isinstance(each, PermissionError)
                    code = StatusCode.UNAUTHENTICATED if refused else StatusCode.INTERNAL
                    self.failed(StatusError(code, f"the controller is lost to this session: {each}"))
                else:
                    self.heard(each)
            except Exception:
                log.exception("client %r: %s", self.name, type(each).__name__)
            said.popleft()
        self._look_whether_closed()

    def _look_whether_closed(self) -> None:
        if self.client.state == "closed":
            self._lost(f"the session with the controller is over: {self._last or 'it was closed'}")

    def _look(self) -> None:
        """Gives the session up if the controller has been away for too long. It may be started again meanwhile."""
        if self.remote.away() >= PATIENCE:
            self._lost(f"the controller has been out of reach for {PATIENCE:.0f} s. {self._last}".rstrip())
        else:
            self._look_again = self._loop.call_later(LOOK, self._look)

    def _lost(self, text: str) -> None:
        if self._closing is None:
            try:
                self.failed(StatusError(StatusCode.UNAVAILABLE, text))
            except Exception:
                log.exception("client %r: %s", self.name, text)

    def when_closed(self, then: Callable[[], None]) -> None:
        self._then.append(then)

    def close(self) -> None:
        if self._closing is None:
            if self._look_again is not None:
                self._look_again.cancel()
            self._closing = self._loop.create_task(self._close())

    async def closed(self) -> None:
        self.close()
        assert self._closing is not None
        await self._closing

    async def _close(self) -> None:
        await self.remote.leave(GOODBYE)
        for then in self._then:
            then()
