"""Arrays of a session whose devices are a cluster's: what the door knows of each, and who waits for it.

A `ClusterArray` is *here* (its contents are in this process: small ones travel inside of calls), or a *buffer* of the
session, by the name that core's client gave it, or neither yet: what makes it waits for something. It is `settled` as
soon as it is one of these, or will never be. When the last reference to one goes, its name is `dropped`.

A shard of an array is a `ShardOfArray`: a name for a part, for which nothing is sent until it is read or used.
Neighbours: `cluster_buffers`, `cluster_devices`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from .cluster_buffers import BufferOutcome
from .cluster_layouts import boxes_of, value_of
from .ifrt_shardings import ShardSpec
from .session_devices import ArrayType, StatusError, Unready, invalid

__all__ = [
    "ClusterArray",
    "Ref",
    "ShardOfArray",
    "ShardedContents",
    "Token",
    "bytes_here",
    "given_twice",
    "is_known",
    "nbytes_here",
    "parts_of",
    "relabelled",
    "when_known",
]

Contents = np.ndarray[Any, Any]
GONE = "Array has been deleted or donated"


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
        self, array_type: ArrayType, drop: Callable[[int], None], here: Contents | None = None,
        outcome: BufferOutcome | None = None,
    ) -> None:  # fmt: skip
        self.type, self._drop, self.here = array_type, drop, here
        self.name = 0
        self.outcome = outcome
        self.fault: StatusError | None = None
        self.deleted = False
        self.parts: weakref.ref[ShardedContents] | None = None
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

    def is_buffer(self, name: int, outcome: BufferOutcome) -> None:
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

    def __init__(self, outcome: BufferOutcome) -> None:
        self.outcome = outcome


class ShardedContents:
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
        return contents[box].reshape(self.array.type.shard_shape)  # a number is a row of one in a stack


def parts_of(array: ClusterArray) -> list[ShardOfArray]:
    parts = None if array.parts is None else array.parts()
    if parts is None:
        parts = ShardedContents(array)
        array.parts = weakref.ref(parts)
    return [ShardOfArray(parts, at) for at in range(len(parts.boxes))]


def _bounds(box: tuple[slice, ...]) -> tuple[int, ...]:
    return tuple(each.start for each in box)


class ShardOfArray:
    """`alone`: the same as an array of its own, once it has been used as one."""

    __slots__ = ("alone", "at", "parts")

    def __init__(self, parts: ShardedContents, at: int) -> None:
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


def relabelled(array_type: ArrayType, shards: Sequence[Ref]) -> ClusterArray | None:
    """The array of which these are all shards, each in its place; None if there is none."""
    first = shards[0]
    if isinstance(first, ClusterArray):
        return first if len(shards) == 1 else None
    if not isinstance(first, ShardOfArray):
        raise invalid("a token is no shard of an array")
    whole = first.parts.array
    if len(shards) != len(first.parts.boxes) or whole.type.sharding.devices != array_type.sharding.devices:
        return None
    if any(
        not isinstance(each, ShardOfArray) or each.parts.array is not whole or each.at != at
        for at, each in enumerate(shards)
    ):
        return None
    guessed = array_type.sharding.shard is not None
    return whole if guessed or value_of(whole.type, 0) == value_of(array_type, 0) else None


def bytes_here(contents: Contents | None) -> bytes:
    assert contents is not None
    return contents.tobytes()


def nbytes_here(array: ClusterArray) -> int:
    return 0 if array.here is None else array.here.nbytes


def given_twice(arguments: Sequence[ClusterArray], donated: Collection[int]) -> bool:
    names = [id(each) for each in arguments]
    return any(names.count(names[at]) > 1 for at in donated) if len(set(names)) < len(names) else False
