"""The client's records of its arrays. The results of one call are one record for as long as the same is true of all.

An `ArrayGroup` stands for arrays with consecutive names, which the client chose. What happens to one of them alone
(it is read, lost, or has contents here) is kept in a `ClientBuffer` of its own, made when it is first needed. So a call
that makes a thousand arrays costs a record, and a small object for each `Array` that the user gets.

Neighbours: `arrays` are what the user holds; `caller` makes groups, and knows which names the client still holds. The
functions that matter: `ArrayGroup.buffer`, `give_up`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from core.client import infrastructure
from core.model import Sharding
from core.protocol import Blame

from ..errors import run_error
from ..specs import Aval, Slice

if TYPE_CHECKING:
    from .arrays import Run
    from .caller import Caller


class DescribedArray(NamedTuple):
    """What is known of a result before it is made: the same in each run of a program."""

    aval: Aval
    slice: Slice
    sharding: Sharding
    label: str


class Settling:
    """Whether contents are ready, failed or lost. Until that is known by itself, the end of the run decides."""

    run: Run | None
    settled: bool
    own_ready_at: int
    own_blame: Blame | None

    @property
    def ready_at(self) -> int:
        """Below 0 until it is ready."""
        run = self.run
        if self.settled or run is None or run.ended_at < 0 or run.blame is not None:
            return self.own_ready_at
        return run.ended_at

    @property
    def blame(self) -> Blame | None:
        run = self.run
        return self.own_blame if self.settled or run is None else run.blame

    @property
    def known(self) -> bool:
        """Whether it is ready, or never will be."""
        run = self.run
        if self.settled or run is None:
            return self.own_ready_at >= 0 or self.own_blame is not None
        return run.ended_at >= 0 or run.blame is not None or self.own_ready_at >= 0

    def ready(self, now: int) -> None:
        self.settled, self.own_ready_at, self.own_blame = True, now, None

    def fail(self) -> None:
        """Raise the error of what has failed or is lost; do nothing otherwise."""
        if self.blame is not None:
            if self.run is not None:
                self.run._looked_at = True
            raise run_error(self.blame)


class ClientBuffer(Settling, msgspec.Struct, eq=False):
    """One logical array by itself. `gone`: why its array cannot be used any more. `content`: whatever the port stores
    with it. `host`: its contents as a numpy array, once they were read."""

    caller: Caller
    name: int
    about: DescribedArray
    run: Run | None = None
    settled: bool = False
    own_ready_at: int = -1
    own_blame: Blame | None = None
    gone: str = ""
    content: Any = None
    host: Any = None

    @property
    def aval(self) -> Aval:
        return self.about.aval

    @property
    def slice(self) -> Slice:
        return self.about.slice

    @property
    def label(self) -> str:
        return self.about.label

    def lost(self, blame: Blame) -> None:
        """It failed, or is lost after it was ready."""
        self.settled, self.own_ready_at, self.own_blame = True, -1, self._named(blame, self.ready_at >= 0)

    def spoil(self, blame: Blame) -> None:
        """Its contents cannot be had, though it may be ready. The first blame stays."""
        self.own_ready_at, self.own_blame = self.ready_at, self.blame or self._named(blame, False)
        self.settled = True

    def _named(self, blame: Blame, was_ready: bool) -> Blame:
        """The blame as the user is told it: it names this array, unless it names the program that was to make it."""
        if was_ready or (infrastructure(blame) and not blame.program):
            return replace(blame, cause=f"{self.label} is lost: {blame.cause}")
        return blame

    def give_up(self, why: str) -> None:
        self.gone, self.content = why, None


class ArrayGroup(Settling, msgspec.Struct, eq=False):
    """The results of one call, or one array that was put. Their names are consecutive.

    abouts: what is known of each. dropped: takes the name of an array that nobody refers to any more; it may be called
    at any moment. own: arrays of which something is known by itself. gone: names (from, up to) that were given up, and
    why.
    """

    caller: Caller
    names: tuple[int, ...]
    abouts: Sequence[DescribedArray]
    dropped: Callable[[int], None]
    run: Run | None = None
    settled: bool = False
    own_ready_at: int = -1
    own_blame: Blame | None = None
    own: dict[int, ClientBuffer] = {}
    gone: list[tuple[int, int, str]] = []

    def about(self, name: int) -> DescribedArray:
        return self.abouts[name - self.names[0]]

    def outcome(self, name: int) -> ArrayGroup | ClientBuffer:
        return self.own.get(name, self)

    def buffer(self, name: int) -> ClientBuffer:
        """The record of this array by itself."""
        found = self.own.get(name)
        if found is None:
            found = ClientBuffer(
                self.caller, name, self.about(name), self.run, self.settled, self.own_ready_at, self.own_blame
            )
            found = self.own.setdefault(name, found)  # another thread may have made it
            for low, high, why in self.gone:
                if low <= name < high:
                    found.give_up(why)
        return found

    def give_up(self, first: int, count: int, why: str) -> None:
        """These arrays cannot be used any more."""
        self.gone.append((first, first + count, why))
        for name in list(self.own):
            if first <= name < first + count:
                self.own[name].give_up(why)

    def why_gone(self, name: int) -> str:
        return next((why for low, high, why in self.gone if low <= name < high), "")


class HeldNames(msgspec.Struct, eq=False):
    """So many consecutive names of a group that the client holds: an entry of a `RangeTable`."""

    group: ArrayGroup
    first: int
    count: int = 1

    def nbytes(self) -> int:
        at = self.first - self.group.names[0]
        return sum([about.aval.nbytes for about in self.group.abouts[at : at + self.count]])

    def part(self, at: int) -> HeldNames:
        rest = HeldNames(self.group, self.first + at, self.count - at)
        self.count = at
        return rest


class Fetch(msgspec.Struct, eq=False):
    """A get under way.

    `rows`: the valid rows of an irregular computation's result; -1: all. `at`: when the get ended.
    """

    buffer: ClientBuffer
    request: int = 0
    over: bool = False
    blame: Blame | None = None
    rows: int = -1
    at: int = -1
