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
    """Whether contents are ready, failed or lost. `ready_at`: below 0 until they are ready."""

    run: Run | None
    ready_at: int
    blame: Blame | None

    @property
    def known(self) -> bool:
        """Whether it is ready, or never will be."""
        return self.ready_at >= 0 or self.blame is not None

    def ready(self, now: int) -> None:
        self.ready_at, self.blame = now, None

    def run_over(self, now: int, blame: Blame | None) -> None:
        """This settles what is not known by itself."""
        if not self.known:
            self.ready_at, self.blame = -1 if blame else now, blame

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
    ready_at: int = -1
    blame: Blame | None = None
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
        self.ready_at, self.blame = -1, self._named(blame, self.ready_at >= 0)

    def spoil(self, blame: Blame) -> None:
        """Its contents cannot be had, though it may be ready. The first blame stays."""
        self.blame = self.blame or self._named(blame, False)

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
    ready_at: int = -1
    blame: Blame | None = None
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
            found = ClientBuffer(self.caller, name, self.about(name), self.run, self.ready_at, self.blame)
            found = self.own.setdefault(name, found)  # another thread may have made it
            if not found.known:  # or it has settled the group meanwhile
                found.ready_at, found.blame = self.ready_at, self.blame
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

    def end(self, now: int, blame: Blame | None) -> None:
        """The run has ended."""
        self.run_over(now, blame)  # before those of its own: others may be made meanwhile
        for buffer in list(self.own.values()):
            buffer.run_over(now, blame)

    def settle(self, names: range, now: int, blame: Blame | None) -> None:
        """The controller has told of these arrays."""
        if blame is None and len(names) == len(self.abouts):
            self.ready(now)
            for buffer in list(self.own.values()):
                buffer.ready(now)
            return
        for name in names:
            if blame is None:
                self.buffer(name).ready(now)
            elif self.outcome(name).blame is None:
                self.buffer(name).lost(blame)

    def why_gone(self, name: int) -> str:
        return next((why for low, high, why in self.gone if low <= name < high), "")


class HeldNames(msgspec.Struct, eq=False):
    """So many consecutive names of a group that the client holds, and what is known of each."""

    group: ArrayGroup
    first: int
    abouts: Sequence[DescribedArray]
    count: int = 1

    def part(self, at: int) -> HeldNames:
        rest = HeldNames(self.group, self.first + at, self.abouts[at:], self.count - at)
        self.count, self.abouts = at, self.abouts[:at]
        return rest


class Fetch(msgspec.Struct, eq=False):
    """A get under way. `at`: when it ended."""

    buffer: ClientBuffer
    over: bool = False
    blame: Blame | None = None
    at: int = -1
