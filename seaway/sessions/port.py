"""The interface that a session needs from its driver: `Port` for one client, `Driver` for the session.

    the user --> Array, jit, program ... --> Caller (one a client) --> Port (one a client) --> core.client
                                             Session --> Driver (one a session)

`simulated/` and `connected/` implement both. The rest of this package is the same for simulated and real sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from core.client import Blocked, Client
from core.model import Computation
from core.protocol import Command

from ..errors import SessionClosed

if TYPE_CHECKING:
    from ..dashboard import LiveSource
    from ..graph import Graph, Signature
    from .array_groups import ClientBuffer
    from .arrays import Array

T = TypeVar("T")
LATE = 2_000_000  # nanoseconds of a wait, after which what was dropped before is released
Act = Callable[[Client, int], T | Blocked]  # may run more than once, until it is not blocked
Late = Callable[[Client, int], object]
Submitted = Callable[["Graph", Sequence[Any], Sequence["Array"]], None]


def check_open(client: Client, title: str) -> None:
    """Raise unless the client may call."""
    if client.state in ("closing", "closed"):
        raise SessionClosed(f"the session of client {title!r} is over: {client.why_over}; open another one")


class Port(Protocol):
    """Access to one of core's clients. Times are nanoseconds of the session's clock."""

    tell: Callable[[Command], None]  # set by the caller: what the machine has to say to its user
    tick: Callable[[], None]  # set by the caller: called now and then while a real wait lasts
    submitted: Submitted | None  # is told of each run: its program, contents or arrays for it, and its results

    @property
    def client(self) -> Client:
        """Core's client."""

    def now(self) -> int: ...

    def call(self, act: Act[T]) -> T:
        """Make a user's call. While the answer is `Blocked`, wait and run `act` again."""

    def note(self, act: Callable[[Client, int], object]) -> None:
        """Make a call of the library's own, which takes no simulated time of the user's thread."""

    def wait(self, over: Callable[[], bool], what: str, late: Late | None = None, until: int | None = None) -> None:
        """Let time pass until `over()`, which only effects passed to `tell` change; or until this time. `what`: for a
        message on a hang. `late`: as in `note`, if it lasts longer than `LATE`."""

    def sleep(self, nanoseconds: int) -> None: ...

    def offer(self, buffer: ClientBuffer, content: Any, again: bool = False) -> None:
        """Hand over the contents of a buffer just put. `again`: they may be sent more than once, until
        `PutContentsUnneeded`."""

    def unreadable(self, buffer: ClientBuffer) -> Exception | None:
        """The error for reading this buffer, if its contents cannot be had."""

    def contents(self, buffer: ClientBuffer, request: int) -> Any:
        """The contents that a get has brought, as a numpy array."""

    def close(self) -> None:
        """Close the client."""


class Driver(Protocol):
    """One session's clock, threads, clients, costs and trace."""

    title: str  # for people: "simulated cluster A, 512 hosts"

    def join(self, name: str, weight: int, priority: int) -> Port: ...

    def price(self, signature: Signature) -> Computation:
        """A computation as core needs it: its cost, and the key by which hosts find its code."""

    def spawn(self, name: str, work: Callable[[], None]) -> Any:
        """Start a user thread beside the others. The result is for `joined`."""

    def joined(self, thread: Any) -> None:
        """Wait until a spawned thread is over."""

    def drive(self, name: str, steps: Generator[Any, Any, Any]) -> Any:
        """Run a generator of a spawned thread, which waits for what it yields. Raise if nothing can be waited for."""

    def now(self) -> int: ...

    def sleep(self, nanoseconds: int) -> None: ...

    def trace(self) -> Any: ...

    def policies(self) -> Mapping[str, str]:
        """By island's name, the policy that orders its gangs."""

    def live_source(self, over: Callable[[], bool]) -> LiveSource:
        """What a page in the browser shows of it. `over`: whether the session has ended."""

    def costs(self) -> list[dict[str, Any]]:
        """One row for each priced computation: its assumed cost, and the source of that."""

    def stop(self) -> None:
        """The session closes after an error: raise in all threads that wait."""

    def close(self) -> None: ...
