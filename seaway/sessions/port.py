"""What a session needs from whoever drives its clients' machines: the one seam between this library and a backend.

    the user --> Array, jit, program ... --> Caller (one a client) --> Port (one a client) --> core.client
                                             Session --> Driver (one a session)

All else in this package is the same, simulated or real.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from core.client import Blocked, Client
from core.model import Computation
from core.protocol import Command

if TYPE_CHECKING:
    from ..graph import Graph, Signature
    from .arrays import Buffer

T = TypeVar("T")
Act = Callable[[Client, int], T | Blocked]  # may run more than once, until it is not blocked


class Port(Protocol):
    """One client's machine. Times are nanoseconds of the session's clock."""

    tell: Callable[[Command], None]  # set by the caller: what the machine has to say to its user

    def now(self) -> int: ...

    def call(self, act: Act[T]) -> T:
        """The user calls. While the answer is `Blocked`, the user waits, and `act` runs again."""

    def note(self, act: Callable[[Client, int], object]) -> None:
        """The library tells the machine something by itself: no call of the user's, so it takes none of his time."""

    def wait(self, over: Callable[[], bool], what: str) -> None:
        """Let time pass until `over()`, which changes only by what `tell` tells. `what`: in words, for a hang."""

    def sleep(self, nanoseconds: int) -> None: ...

    def offer(self, buffer: Buffer, content: Any, again: bool = False) -> None:
        """What a buffer that was just put holds. `again`: it may be asked for more than once, until `Unneeded`."""

    def submitted(self, graph: Graph, args: Sequence[Any], results: Sequence[Buffer]) -> None:
        """A run was submitted: arguments are contents, or Buffers."""

    def unreadable(self, buffer: Buffer) -> Exception | None:
        """Why contents of this buffer cannot be had, if they cannot."""

    def contents(self, buffer: Buffer, request: int) -> Any:
        """What a get has brought, as a numpy array."""

    def close(self) -> None:
        """The client says goodbye."""


class Driver(Protocol):
    """One session's world."""

    title: str  # for people: "simulated cluster A, 512 hosts"

    def join(self, name: str, weight: int, priority: int) -> Port: ...

    def price(self, signature: Signature) -> Computation:
        """What core needs to know of a computation: its cost, and by which key hosts find its code."""

    def spawn(self, name: str, work: Callable[[], None]) -> Any:
        """A thread of the user's that runs beside the others. Returns what `joined` takes."""

    def joined(self, thread: Any) -> None:
        """Wait until it is over."""

    def now(self) -> int: ...

    def sleep(self, nanoseconds: int) -> None: ...

    def trace(self) -> Any: ...

    def costs(self) -> list[dict[str, Any]]:
        """Of each computation that was priced: what it is taken to cost, and where that comes from."""

    def stop(self) -> None:
        """The session is closing in disorder: whoever waits is told so."""

    def close(self) -> None: ...
