"""What may be submitted again, when, and under which names: the tables of `persistent`.

A run is submitted again when the cluster failed it: a host, a device, a collective world or the controller was lost.
What its own code did, what was refused, cancelled or outlasted its bound would only be so again.
"""

from __future__ import annotations

from ..model import Program
from ..protocol import Blame

# Codes of blames for which nothing that the user wrote is at fault. "client-lost": a host has not heard of us for too
# long, and we are here. (When our session is over, nothing is submitted any more.)
INFRASTRUCTURE = ("host-lost", "host-left", "device-lost", "restart", "world", "lost", "peer", "client-lost")
FIRST = 100_000_000  # nanoseconds from a failure to the next try; twice as long each time ...
MOST = 10_000_000_000  # ... and no longer than this
GETS = 3  # times that contents are asked for again


def infrastructure(blame: Blame) -> bool:
    return blame.code in INFRASTRUCTURE


def pause(tries: int) -> int:
    """Before the run is submitted for the `tries`th time again."""
    return min(FIRST << min(tries - 1, 32), MOST)


class Held:
    """A run that may be submitted again, until it has ended; by the user's names. What is donated is not held."""

    __slots__ = (
        "args", "blame", "cancelled", "deadline", "dispatch", "due", "ir", "program", "results", "retries", "run",
        "stuck", "tries",
    )  # fmt: skip

    def __init__(
        self, run: int, program: int, ir: Program, args: tuple[int | bytes, ...], results: tuple[int, ...],
        dispatch: str, deadline: int, retries: int,
    ) -> None:  # fmt: skip
        self.run, self.program, self.ir, self.args, self.results = run, program, ir, args, results
        self.dispatch, self.deadline, self.retries = dispatch, deadline, retries
        self.tries = 0  # how often it was submitted again
        self.due = -1  # when it will be, while it waits for that
        self.stuck = False  # that time has passed, and something else is awaited
        self.blame: Blame | None = None  # its last failure
        self.cancelled = False

    @property
    def waits(self) -> bool:
        return self.due >= 0

    def reads(self) -> list[int]:
        return [arg for arg in self.args if isinstance(arg, int)]

    def goes_on(self, blame: Blame) -> bool:
        return infrastructure(blame) and self.tries < self.retries and not self.cancelled

    def unwanted(self, result: int) -> None:
        """Its user has let go of this result: the next try makes it for nobody."""
        self.results = tuple([0 if name == result else name for name in self.results])


class Asked:
    """A get, until its contents are here or never will be."""

    __slots__ = ("buffer", "tries")

    def __init__(self, buffer: int) -> None:
        self.buffer, self.tries = buffer, 0


class Aliases:
    """What the user calls by the name it first had, and the controller by the last: of those that differ."""

    __slots__ = ("_by_user", "_by_wire")

    def __init__(self) -> None:
        self._by_user: dict[int, int] = {}
        self._by_wire: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._by_user)

    def __len__(self) -> int:
        return len(self._by_user)

    def wire(self, user: int) -> int:
        return self._by_user.get(user, user)

    def user(self, wire: int) -> int:
        return self._by_wire.get(wire, wire)

    def move(self, user: int, wire: int) -> None:
        self._by_wire.pop(self.wire(user), None)
        self._by_user[user] = wire
        self._by_wire[wire] = user

    def drop(self, user: int) -> None:
        self._by_wire.pop(self._by_user.pop(user, 0), None)

    def keep_last(self, number: int) -> None:
        while len(self._by_user) > number:
            self.drop(next(iter(self._by_user)))
