"""Arrays of a session whose devices are a cluster's: what the door knows of each, and who waits for it.

A `ClusterArray` is *here* (its contents are in this process: small ones travel inside of calls), or a *buffer* of the
session, by the name that core's client gave it, or neither yet: what makes it waits for something. It is `settled` as
soon as it is one of these, or will never be. When the last reference to one goes, its name is `dropped`.

Buffers that come into being together share an `Outcome`. A shard of an array is a `ShardOfArray`: a name for a part,
for which nothing is sent until it is read or used. Neighbours: `cluster_devices`, `cluster_reading`.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from core.model import Range

from .cluster_layouts import boxes_of
from .ifrt_shardings import ShardSpec
from .session_devices import ArrayType, StatusError, Unready, invalid

__all__ = [
    "ClusterArray",
    "Outcome",
    "Outcomes",
    "Parts",
    "Ref",
    "ShardOfArray",
    "Token",
    "is_known",
    "parts_of",
    "when_known",
]

Contents = np.ndarray[Any, Any]
GONE = "Array has been deleted or donated"


class Outcome:
    """What becomes of a run or a put, and of its buffers, which have consecutive names. `over`: the run has ended."""

    __slots__ = ("_apart", "count", "fault", "first", "left", "over", "ready", "waits")

    def __init__(self, count: int) -> None:
        self.first, self.count = 0, count  # names, as soon as there are some
        self.left = count  # names that have not been dropped or given up
        self.over = self.ready = False
        self.fault: StatusError | None = None  # of the run, and of all buffers that were not ready before
        self._apart: dict[int, StatusError | None] = {}  # buffers of which we have heard alone
        self.waits: list[Callable[[], None]] = []

    def known(self, name: int) -> bool:
        return self.ready or self.fault is not None or name in self._apart

    def fault_of(self, name: int) -> StatusError | None:
        return self._apart.get(name, None if self.ready else self.fault)

    def settle(self, names: range, fault: StatusError | None) -> None:
        """The controller has told of these buffers. One that was ready may be lost later."""
        if fault is None and len(names) == self.count:
            self.ready = True
        else:
            self._apart.update(dict.fromkeys(names, fault))
        self._tell()

    def end(self, fault: StatusError | None) -> None:
        """The run has ended: with success, so all its buffers are ready of which nothing else was said."""
        self.over = True
        if fault is None:
            self.ready = True
        elif self.fault is None:
            self.fault = fault
        self._tell()

    def forgotten(self) -> None:
        """Nobody has any of its buffers."""
        self._tell()

    def _tell(self) -> None:
        waits, self.waits = self.waits, []
        for each in waits:
            each()


class Outcomes:
    """Outcomes of buffers, by their names, which only grow."""

    def __init__(self) -> None:
        self._by_first: dict[int, Outcome] = {}
        self._several: list[int] = []  # first names of those that have several, ascending

    def __len__(self) -> int:
        return len(self._by_first)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self._by_first.values())

    def add(self, outcome: Outcome, first: int) -> None:
        outcome.first = first
        self._by_first[first] = outcome
        if outcome.count > 1:
            self._several.append(first)

    def drop(self, outcome: Outcome) -> None:
        del self._by_first[outcome.first]
        if outcome.count > 1:
            self._several.remove(outcome.first)

    def over(self, names: Iterable[int | Range]) -> Iterator[tuple[Outcome, range]]:
        """The outcomes of these names, each with those that are its own. Names that have none are left out."""
        for each in names:
            first, count = (each, 1) if isinstance(each, int) else (each.first, each.count)
            while count:
                outcome = self._find(first)
                here = 1 if outcome is None else min(count, outcome.first + outcome.count - first)
                if outcome is not None:
                    yield outcome, range(first, first + here)
                first, count = first + here, count - here

    def _find(self, name: int) -> Outcome | None:
        found = self._by_first.get(name)
        if found is None and self._several:
            at = bisect_right(self._several, name) - 1
            if at >= 0:
                before = self._by_first[self._several[at]]
                if name < before.first + before.count:
                    return before
        return found


class ClusterArray:
    __slots__ = (
        "__weakref__",
        "_drop",
        "deleted",
        "fault",
        "here",
        "name",
        "outcome",
        "parts",
        "retyped",
        "type",
        "waits",
    )

    def __init__(
        self, array_type: ArrayType, drop: Callable[[int], None], here: Contents | None = None
    ) -> None:
        self.type, self._drop, self.here = array_type, drop, here
        self.name = 0
        self.outcome: Outcome | None = None
        self.fault: StatusError | None = None
        self.deleted = False
        self.parts: weakref.ref[Parts] | None = None
        self.retyped: ClusterArray | None = None  # the same shards as an array that is cut otherwise
        self.waits: list[Callable[[], None]] | None = None  # told when it is settled

    def __del__(self) -> None:
        if self.name and not self.deleted:
            self._drop(self.name)

    @property
    def settled(self) -> bool:
        return bool(self.name) or self.here is not None or self.fault is not None or self.deleted

    @property
    def wrong(self) -> StatusError | None:
        """Why it cannot be used, as far as is known."""
        if self.deleted:
            return invalid(GONE)
        if self.outcome is not None and self.here is None:
            return self.outcome.fault_of(self.name)
        return self.fault

    def is_buffer(self, name: int, outcome: Outcome) -> None:
        self.name, self.outcome = name, outcome
        if self.waits:
            self._tell()

    def is_here(self, contents: Contents) -> None:
        self.here = contents
        self._tell()

    def fails(self, fault: StatusError) -> None:
        self.fault = fault
        self._tell()

    def give_up(self) -> None:
        """Its memory is another's now. Its name is not dropped."""
        self.deleted, self.here = True, None
        self._tell()

    def when_settled(self, then: Callable[[], None]) -> None:
        if self.settled:
            then()
        elif self.waits is None:
            self.waits = [then]
        else:
            self.waits.append(then)

    def _tell(self) -> None:
        waits, self.waits = self.waits, None
        for each in waits or ():
            each()


class Token:
    """A result that has no contents: it is ready when its run has ended."""

    __slots__ = ("outcome",)

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


class Parts:
    """The shards of one array, while somebody has references to them. The contents of the whole array are fetched once,
    and kept until each different shard has been read."""

    __slots__ = ("__weakref__", "array", "boxes", "contents", "unread")

    def __init__(self, array: ClusterArray) -> None:
        self.array = array
        self.boxes = boxes_of(array.type)
        self.contents: Contents | None = None
        self.unread: set[Any] = set()

    def came(self, contents: Contents) -> None:
        self.contents = contents
        self.unread = {_bounds(box) for box in self.boxes}

    def read(self, at: int) -> Contents:
        """The contents of a shard, after `came`."""
        contents, box = self.contents, self.boxes[at]
        assert contents is not None
        self.unread.discard(_bounds(box))
        if not self.unread:
            self.contents = None
        return contents[box]


def parts_of(array: ClusterArray) -> list[ShardOfArray]:
    parts = None if array.parts is None else array.parts()
    if parts is None:
        parts = Parts(array)
        array.parts = weakref.ref(parts)
    return [ShardOfArray(parts, at) for at in range(len(parts.boxes))]


def _bounds(box: tuple[slice, ...]) -> tuple[int, ...]:
    return tuple(each.start for each in box)


class ShardOfArray:
    """`alone`: the same as an array of its own, once it has been used as one."""

    __slots__ = ("alone", "at", "parts")

    def __init__(self, parts: Parts, at: int) -> None:
        self.parts, self.at = parts, at
        self.alone: ClusterArray | None = None

    @property
    def type(self) -> ArrayType:
        whole = self.parts.array.type
        spec = whole.sharding
        device = ShardSpec((spec.devices[self.at],), memory_kind=spec.memory_kind)
        return ArrayType(whole.kind, whole.shard_shape, device)


Ref = ClusterArray | ShardOfArray | Token


def is_known(ref: Ref) -> bool:
    """Whether it is ready, or will never be."""
    if isinstance(ref, ShardOfArray):
        ref = ref.alone or ref.parts.array
    if isinstance(ref, Token):
        return ref.outcome.over
    if ref.here is not None or ref.fault is not None or ref.deleted:
        return True
    return ref.outcome is not None and ref.outcome.known(ref.name)


def _fault(ref: Ref) -> StatusError | None:
    if isinstance(ref, ShardOfArray):
        ref = ref.alone or ref.parts.array
    if isinstance(ref, Token):
        return ref.outcome.fault
    return None if ref.deleted else ref.wrong


def when_known(refs: list[Ref], done: Unready) -> None:
    """Tells, when all are ready or will never be, what is wrong with the first that is."""
    while refs and is_known(refs[-1]):
        fault = _fault(refs.pop())
        if fault is not None:
            done(fault)
            return
    if not refs:
        done(None)
        return
    last = refs[-1]
    if isinstance(last, ShardOfArray):
        last = last.alone or last.parts.array
    again = lambda: when_known(refs, done)  # noqa: E731
    if last.outcome is not None:
        last.outcome.waits.append(again)
    else:
        last.when_settled(again)
