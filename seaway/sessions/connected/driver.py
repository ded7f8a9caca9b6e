"""The driver of a real session: connections of all its clients, on one asyncio loop and in real time.

It gives each client a port, prices computations, fetches the trace, and turns a lost controller into an error for all
threads that wait.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

import grpc

from backend.admin import fetched
from backend.auth import Access
from backend.client import Head, Remote
from backend.devices import Taken
from backend.node import CallError
from backend.streams import LoopThread
from backend.wire import Described, call_messages
from core.client import Client
from core.model import Computation, Impossible
from core.record import Look, TraceCursor
from core.record import Trace as CoreTrace

from ... import __version__
from ...errors import SessionClosed, Unreachable
from ...graph import Signature
from .exported_code import ExportedCode
from .hosttimes import asked
from .interrupts import SHIELD
from .port import RealPort
from .pricing import ConnectedPricing

if TYPE_CHECKING:
    from ...dashboard import LiveSource
    from ...trace import Trace

STEP = 0.1  # seconds between checks that the session is still open, while a thread joins a task
GOODBYE = 2.0  # seconds for the controller to acknowledge that we leave ...
HEARD = 0.5  # ... after a failure
FRESH, SEEN = 5.0, 2.0  # seconds for which recorded times are reused; for which an answer is waited
ENDING = 5.0  # seconds for connections to close


class RealDriver:
    """`patience`: seconds for a controller that is out of reach to come back."""

    files_here = False  # folder names are resolved on the hosts, not here

    def __init__(
        self,
        title: str,
        loop: LoopThread,
        address: str,
        access: Access,
        described: Described,
        *,
        patience: float = 60.0,
    ) -> None:
        self.title, self.patience = title, patience
        self._loop, self._address = loop, address
        self._described = described
        self._head: Head = loop.do(_made(lambda: Head(address, access)))
        self._ports: list[RealPort] = []
        self.contents = described.platforms != ("timed",)  # whether its arrays have contents
        self.price_of = ConnectedPricing(described.platforms, self._keep, self.recorded)
        self._seen: Mapping[str, tuple[int, int]] = {}
        self._seen_until = 0.0
        self._origin = time.monotonic_ns()
        self._seen_by_hosts: list[Taken] = []
        self._stopped, self._goodbye = threading.Event(), GOODBYE
        self._failure: BaseException | None = None
        self.closed = False
        SHIELD.raise_up()

    # --- clients ------------------------------------------------------------------------------------------------

    def join(self, name: str, weight: int, priority: int) -> RealPort:
        described = self._described
        client = Client(name, described.cluster, weight=weight, priority=priority)
        port = RealPort(self, name, client)
        port.remote = self._loop.do(
            _made(lambda: Remote(client, described.lease, self._head, heard=port.heard, failed=self.fail))
        )
        self._ports.append(port)
        self.introduce(port.remote)
        port.remote.node.start()
        return port

    def introduce(self, remote: Remote) -> None:
        """Let the client reach nodes of this process without the network. A hook for `LocalDriver`."""

    def price(self, signature: Signature) -> Computation:
        return self.price_of(signature)

    def _keep(self, code: ExportedCode) -> None:
        try:
            self._loop.do(self._head.keep([code.blob]))
        except CallError as wrong:
            if wrong.code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED):
                raise Impossible(str(wrong)) from None
            raise Unreachable(f"the controller at {self._address} did not take code: {wrong}") from None

    def recorded(self) -> Mapping[str, tuple[int, int]]:
        """Computation's name -> (executions, their typical time), over all sessions.

        The controller is asked only every few seconds and the wait is short: the user's call waits for this, and an
        old answer is good enough.
        """
        now = time.monotonic()
        if now >= self._seen_until:
            self._seen_until = now + FRESH
            try:
                self._seen = self._loop.do(self._head.ask(call_messages.SeenReply(), SEEN)).seen
            except CallError:
                pass  # the controller is busy; the old answer serves
        return self._seen

    def costs(self) -> list[dict[str, Any]]:
        return self.price_of.table()

    # --- threads and time ---------------------------------------------------------------------------------------

    def spawn(self, name: str, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def drive(self, name: str, steps: Generator[Any, Any, Any]) -> Any:
        steps.close()
        raise TypeError(
            f"client {name!r} is a generator, and what it yields can be waited for in simulated sessions only, where "
            f"it is one of SimPy's events; here, wait with sw.sleep('5ms') and x.block_until_ready()"
        )

    def joined(self, thread: threading.Thread) -> None:
        while thread.is_alive():
            self.check()
            thread.join(STEP)

    def now(self) -> int:
        return time.monotonic_ns() - self._origin

    def sleep(self, nanoseconds: int) -> None:
        if self._stopped.wait(nanoseconds / 1e9):
            self.check()

    def live_source(self, over: Callable[[], bool]) -> LiveSource:
        from ...dashboard import controller_source

        return controller_source.ControllerSource(self._address, self._head.access)

    def policies(self) -> Mapping[str, str]:
        from ...dashboard import Unavailable

        source = self.live_source(lambda: self.closed)
        try:
            view = source.look(Look(cursor=TraceCursor(most=1), hosts=False)).view
        except Unavailable:
            return {}
        finally:
            source.close()
        return {} if view is None else view.policies()

    def trace(self) -> Trace:
        try:
            found = self._loop.do(fetched(self._address, self._head.access))
            if not self.closed:  # the cluster may have grown
                self._described = self._loop.do(self._head.ask(call_messages.AboutReply(__version__)))
        except CallError as wrong:
            raise Unreachable(f"the controller at {self._address} did not send its trace: {wrong}") from None
        return self.with_hosts(found)

    def with_hosts(self, core: CoreTrace) -> Trace:
        """The trace with the hosts' own times of our clients' gangs. A closed session uses the times fetched last."""
        from ...trace import Trace, joined, of_setup

        cluster = self._described.cluster
        if not self.closed and self._failure is None:
            self._seen_by_hosts = asked(core, cluster, self._head, self._ports, self._loop)
        merged, told = joined(core, self._seen_by_hosts, of_setup(cluster))
        return Trace(merged, cluster, told=told)

    # --- trouble ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise the error that ends all waits, if there is one."""
        if self._failure is not None:
            raise self._failure
        if self._stopped.is_set():
            raise SessionClosed("the session is closed")

    def fail(self, error: BaseException) -> None:
        """End all waits with this error. Any thread may call this."""
        if self._failure is None:
            self._failure = error
            if isinstance(error, PermissionError):
                self._failure = Unreachable(f"the controller refuses us: {error}")
            self._ring()

    def lost(self, seconds: float) -> None:
        self.fail(
            Unreachable(
                f"the controller at {self._address} has been out of reach for {seconds:.0f} s; the session gives up, "
                f"and with it all runs under way there; start the controller again, and open another session"
            )
        )

    def _ring(self) -> None:
        for port in list(self._ports):
            with port.remote.node.lock:
                port.ring()

    # --- the end --------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        self._stopped.set()
        self._ring()

    def close(self) -> None:
        """Close all connections. After `stop` or a failure, close as many as possible."""
        if self.closed:
            return
        self.closed = True
        if self._stopped.is_set() or self._failure is not None:
            self._goodbye = HEARD
        self._stopped.set()
        try:
            self.leave()
        finally:
            self._loop.close()
            SHIELD.let_down()

    def leave(self) -> None:
        try:
            self._loop.do(self._end(), ENDING)
        except (TimeoutError, RuntimeError):
            pass  # the controller does not answer, or the interpreter is exiting

    async def _end(self) -> None:
        await asyncio.gather(*[port.remote.leave(self._goodbye) for port in self._ports])
        await self._head.close()


async def _made(make: Callable[[], Any]) -> Any:
    """Make it on the loop's thread, as gRPC channels and nodes require."""
    return make()
