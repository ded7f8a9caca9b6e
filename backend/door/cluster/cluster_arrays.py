"""Arrays of a session whose devices are a cluster's: what the door knows of each, and who waits for it.

A `ClusterArray` is *here* (its contents are in this process: small ones travel inside of calls), or a *buffer* of the
session, by the name that core's client gave it, or neither yet: what makes it waits for something. It is `settled` as
soon as it is one of these, or will never be. When the last reference to one goes, its name is `dropped`.

A shard of an array is a `ShardOfArray`: a name for a part, for which nothing is sent until it is read or used.
Many results of one run are `ClusterArrays`, of which one becomes a `ClusterArray` when it is used alone.
An array of shards that lie where it has them can be core's view (`sources_of`), so that no contents move.
Neighbours: `cluster_buffers`, `cluster_devices`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from core.model import Range, Value, ranged

from ..protocol import ShardSpec
from ..session import ArrayType, StatusError, Unready, invalid
from .cluster_buffers import BufferOutcome, tell
from .cluster_layouts import Box, boxes_of, value_of

Contents = np.ndarray[Any, Any]
GONE = "Array has been deleted or donated"


class ClusterArray:
    __slots__ = (
        "__weakref__", "_drop", "deleted", "fault", "here", "name", "outcome", "parts", "retyped", "type", "waits",
    )  # fmt: skip

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
        self.waits: list[Callable[[], None]] = []  # told when it is settled

    def __del__(self) -> None:
        if self.name and not self.gone:
            self._drop(self.name)

    @property
    def gone(self) -> bool:
        """Whether it was deleted or donated."""
        outcome = self.outcome
        if self.deleted or not self.name or outcome is None or not outcome.gone:
            return self.deleted
        return outcome.has_gone(self.name - outcome.first)

    @property
    def settled(self) -> bool:
        return bool(self.name) or self.here is not None or self.fault is not None or self.deleted

    @property
    def known(self) -> bool:
        """Whether it is ready, or will never be."""
        if self.here is not None or self.fault is not None or self.gone:
            return True
        return self.outcome is not None and self.outcome.known(self.name)

    @property
    def failure(self) -> StatusError | None:
        """Why a wait for it fails. None if it was deleted."""
        return None if self.gone else self.wrong

    @property
    def wrong(self) -> StatusError | None:
        """Why it cannot be used, as far as is known."""
        if self.gone:
            return invalid(GONE)
        if self.outcome is not None and self.here is None:
            return self.outcome.fault_of(self.name)
        return self.fault

    def is_buffer(self, name: int, outcome: BufferOutcome) -> None:
        self.name, self.outcome = name, outcome
        if self.waits:
            tell(self.waits)

    def is_here(self, contents: Contents) -> None:
        self.here = contents
        tell(self.waits)

    def fails(self, fault: StatusError) -> None:
        self.fault = fault
        tell(self.waits)

    def give_up(self) -> None:
        """Its memory is another's now. Its name is not dropped."""
        self.deleted, self.here = True, None
        if self.waits:
            tell(self.waits)

    def when_settled(self, then: Callable[[], None]) -> None:
        if self.settled:
            then()
        else:
            self.waits.append(then)


class BufferSpan:
    """Results of a run, from the one at `at` on. There are names for them when the run is submitted."""

    __slots__ = ("at", "count", "outcome")

    def __init__(self, outcome: BufferOutcome, at: int, count: int) -> None:
        self.outcome, self.at, self.count = outcome, at, count

    @property
    def name(self) -> int | Range:
        return ranged(self.outcome.first + self.at, self.count)

    @property
    def known(self) -> bool:
        return self.outcome.all_known(self.at, self.count) or self.outcome.has_gone(self.at)

    @property
    def failure(self) -> StatusError | None:
        return None if self.outcome.has_gone(self.at) else self.wrong

    @property
    def settled(self) -> bool:
        return bool(self.outcome.first) or self.outcome.fault is not None

    @property
    def wrong(self) -> StatusError | None:
        if self.outcome.has_gone(self.at):
            return invalid(GONE)
        return self.outcome.first_fault(self.at, self.count)

    def when_settled(self, then: Callable[[], None]) -> None:
        self.outcome.when_named(then)

    def give_up(self) -> None:
        """Their memory is another's now. Their names are not dropped."""
        self.outcome.goes(self.at, self.count)


class ClusterArrays(BufferSpan):
    """Results of a run as one, which somebody has: `Refs` of the session. `types`: of all results. When nobody has
    them any more, their names are dropped."""

    __slots__ = ("_drop", "_types")

    def __init__(
        self, outcome: BufferOutcome, at: int, count: int, types: Sequence[ArrayType], drop: Callable[..., None]
    ) -> None:
        super().__init__(outcome, at, count)
        self._types, self._drop = types, drop

    def __del__(self) -> None:
        if self.count and not self.outcome.has_gone(self.at):
            _drop_named(self.outcome, self.at, self.count, self._drop)

    def part(self, at: int) -> ClusterArrays:
        rest = ClusterArrays(self.outcome, self.at + at, self.count - at, self._types, self._drop)
        self.count = at
        return rest

    def alone(self) -> ClusterArray:
        outcome, at = self.outcome, self.at
        found = ClusterArray(self._types[at], self._drop, outcome=outcome)
        outcome.when_named(partial(_named, found, outcome, at))
        self.count = 0
        return found

    def waits(self) -> Sequence[BufferSpan]:
        return (BufferSpan(self.outcome, self.at, self.count),)

    def delete(self) -> None:
        """Frees them, although others may have references to them."""
        if not self.outcome.has_gone(self.at):
            _drop_named(self.outcome, self.at, self.count, self._drop)
            self.give_up()


def _named(array: ClusterArray, outcome: BufferOutcome, at: int) -> None:
    if outcome.first:
        array.is_buffer(outcome.first + at, outcome)
    elif outcome.fault is not None:
        array.fails(outcome.fault)


def _drop_named(outcome: BufferOutcome, at: int, count: int, drop: Callable[..., None]) -> None:
    """As soon as they have names. If they never get any, there is nothing to drop."""
    if outcome.first:
        drop(outcome.first + at, count)
    else:
        outcome.when_named(lambda: drop(outcome.first + at, count) if outcome.first else None)


class Token:
    """A result that has no contents, on `count` devices: it is ready when its run has ended."""

    __slots__ = ("count", "outcome")

    def __init__(self, outcome: BufferOutcome, count: int) -> None:
        self.outcome, self.count = outcome, count

    @property
    def known(self) -> bool:
        return self.outcome.over

    @property
    def failure(self) -> StatusError | None:
        return self.outcome.fault


class ShardedContents:
    """The shards of one array, while somebody has references to them. If the contents of the whole array are fetched,
    they are kept until each different shard has been read. `alone`: those fetched alone, by core's numbers."""

    __slots__ = ("__weakref__", "alone", "array", "boxes", "contents", "unread")

    def __init__(self, array: ClusterArray) -> None:
        self.array = array
        self.boxes = boxes_of(array.type)
        self.contents: Contents | None = None
        self.unread: set[Any] = set()
        self.alone: set[int] = set()

    @property
    def value(self) -> Value:
        """Core's array."""
        return value_of(self.array.type, 0)

    def shard_value(self, at: int) -> Value:
        """A shard, as an array by itself."""
        return replace(self.value, shape=tuple([each.stop - each.start for each in self.boxes[at]]))

    def number(self, at: int) -> int:
        """Core's number of a shard: equal for devices that have the same."""
        found = 0
        for each, dim in zip(self.boxes[at], self.value.shape, strict=True):
            size = max(1, each.stop - each.start)
            found = found * (dim // size or 1) + each.start // size
        return found

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
        return self.shaped(np.asarray(contents[box], contents.dtype))  # a text, too, is an array

    def shaped(self, shard: Contents) -> Contents:
        """A shard as the session knows it: a number is a row of one in a stack."""
        return shard.reshape(self.array.type.shard_shape)


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
    def array(self) -> ClusterArray:
        """That which decides what becomes of it."""
        return self.alone or self.parts.array

    @property
    def outcome(self) -> BufferOutcome | None:
        return self.array.outcome

    @property
    def type(self) -> ArrayType:
        whole = self.parts.array.type
        spec = whole.sharding
        device = ShardSpec((spec.devices[self.at],), memory_kind=spec.memory_kind)
        return ArrayType(whole.kind, whole.shard_shape, device)


Ref = ClusterArray | ShardOfArray | Token
Argument = ClusterArray | BufferSpan
Awaited = Ref | BufferSpan


def when_known(refs: list[Awaited], done: Unready) -> None:
    """Tells, when all are ready or will never be, what is wrong with the first that is."""
    while refs:
        last = refs[-1].array if isinstance(refs[-1], ShardOfArray) else refs[-1]
        if not last.known:
            again = partial(when_known, refs, done)
            if last.outcome is not None:
                last.outcome.waits.append(again)
            else:
                last.when_settled(again)
            return
        refs.pop()
        if last.failure is not None:
            done(last.failure)
            return
    done(None)


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


class SharedShard(NamedTuple):
    """A shard of an array. `number`: core's, equal for devices that have the same."""

    array: ClusterArray
    number: int
    box: Box

    @property
    def contents(self) -> np.ndarray[Any, Any]:
        """If the array is in this process."""
        assert self.array.here is not None
        return np.asarray(self.array.here[self.box], self.array.here.dtype)


def sources_of(array_type: ArrayType, shards: Sequence[Ref]) -> list[SharedShard] | None:
    """None: their contents have to be put together anew. A view shares shards as they lie on their devices. So they
    have to be where the array has them, and to have the shape there that core knows: a single number is a row of one
    where core's array is a stack."""
    try:
        value_of(array_type, 0)
    except StatusError:  # the cluster does not know its type
        return None
    found = []
    devices = array_type.sharding.devices
    for device, shard, box in zip(devices, shards, boxes_of(array_type), strict=True):
        source = _source(shard, device)
        if source is None or _size(source.box) != _size(box):
            return None
        found.append(source)
    return found


def _source(shard: Ref, device: int) -> SharedShard | None:
    """None: it is not on this device."""
    if isinstance(shard, ShardOfArray):
        parts = shard.parts
        if parts.array.type.sharding.devices[shard.at] != device:
            return None
        if shard.alone is None:
            return SharedShard(parts.array, parts.number(shard.at), parts.boxes[shard.at])
        shard = shard.alone
    if isinstance(shard, Token) or shard.type.sharding.devices != (device,):
        return None
    return SharedShard(shard, 0, boxes_of(shard.type)[0])


def _size(box: Box) -> tuple[int, ...]:
    return tuple([each.stop - each.start for each in box])


def given_away(arguments: Sequence[Argument], donated: Collection[int], keep: Collection[int]) -> list[Argument] | None:
    """Those that are donated; None if one of them is to be kept, or given as another argument, too."""
    if not donated:
        return []
    if any(index in donated for index in keep):
        return None
    index, found = 0, list[Argument]()
    for each in arguments:
        if index in donated:
            found.append(each)
        index += 1 if isinstance(each, ClusterArray) else each.count
    keys = [
        id(each) if isinstance(each, ClusterArray) else (id(each.outcome), each.at) for each in (*found, *arguments)
    ]
    given, all_given = keys[: len(found)], keys[len(found) :]
    if len(set(all_given)) == len(all_given) or all(all_given.count(key) == 1 for key in given):
        return found
    return None
