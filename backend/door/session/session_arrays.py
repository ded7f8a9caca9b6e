"""A session's arrays by handle. Those that one program made with consecutive handles are one entry.

    named(handles)     what a request names; arrays that are one entry and are named together stay one
    get(handle)        one array; it is an entry of its own from then on
    keep, forget       entries come and go, several arrays at once

A step of a training loop names a thousand arrays that live and die together, so what is done for each of them in
Python decides what the step costs. Neighbours: `session_state`, `ops`; `session_devices.Refs` is the devices' half.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from core.model import Range, RangeTable, ranges

from ..protocol import StatusCode
from .memory_meter import Allocation, Memory, bytes_of
from .session_devices import ArrayType, Ref, Refs, StatusError, invalid

SERVER_MADE = 1 << 48  # the first handle that the server makes; the client's are below


class ArrayValue:
    __slots__ = ("count", "memory", "ref", "type")

    def __init__(self, array_type: ArrayType, ref: Ref, memory: Memory) -> None:
        self.type, self.ref, self.memory = array_type, ref, memory
        self.count = 1

    def part(self, at: int) -> ArrayValue:
        raise AssertionError("one array has no parts")

    def waits(self) -> Sequence[Ref]:
        """What tells when it is ready, whatever becomes of this entry."""
        return (self.ref,)


class ArrayRow:
    """The types of all results of a program. `total`: bytes of all of them."""

    __slots__ = ("sizes", "total", "types")

    def __init__(self, types: Sequence[ArrayType]) -> None:
        self.types = tuple(types)
        self.sizes = tuple(map(bytes_of, types))
        self.total = sum(self.sizes)


class ArrayValues:
    """Arrays that one program made: `count` of its results, from the one at `at` on."""

    __slots__ = ("at", "count", "memory", "ref", "row")

    def __init__(self, row: ArrayRow, at: int, ref: Refs, memory: Allocation) -> None:
        self.row, self.at, self.count = row, at, ref.count
        self.ref, self.memory = ref, memory

    @property
    def types(self) -> tuple[ArrayType, ...]:
        return self.row.types[self.at : self.at + self.count]

    def part(self, at: int) -> ArrayValues:
        """Keep the first `at`, return the others."""
        first = self.at + at
        nbytes = sum(self.row.sizes[first : self.at + self.count])
        rest = ArrayValues(self.row, first, self.ref.part(at), self.memory.cut(nbytes))
        self.count = at
        return rest

    def alone(self) -> ArrayValue:
        return ArrayValue(self.row.types[self.at], self.ref.alone(), self.memory)

    def waits(self) -> Sequence[Ref]:
        return self.ref.waits()


class ArrayTable:
    """`most`: arrays that there may be. A handle may stand for an error instead of an array."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: RangeTable[ArrayValue | ArrayValues] = RangeTable()
        self._faults: dict[int, StatusError] = {}
        self._number = 0  # of arrays
        self._top = 0  # the highest of the client's handles that there was

    def __len__(self) -> int:
        return self._number + len(self._faults)

    def __contains__(self, handle: int) -> bool:
        return handle in self._faults or self._held.find(handle) is not None

    # --- what a handle stands for --------------------------------------------------------------------------

    def get(self, handle: int) -> ArrayValue:
        """Raises the fault that made it unusable."""
        found = self.find(handle)
        if found is None:
            raise self._unknown(handle)
        return found

    def find(self, handle: int) -> ArrayValue | None:
        held = self._held.alone(handle)
        return None if held is None else self._single(handle, held)

    def _single(self, handle: int, held: ArrayValue | ArrayValues) -> ArrayValue:
        if isinstance(held, ArrayValues):
            held = self._held[handle] = held.alone()
        return held

    def _unknown(self, handle: int) -> StatusError:
        return self._faults.get(handle) or invalid(f"there is no array {handle}")

    def named(self, handles: Sequence[int], edges: Iterable[int] = ()) -> list[ArrayValue | ArrayValues]:
        """What these handles stand for, in their order. No entry is cut by an `edge`, which is an index of `handles`.
        Raises the fault of the first that is unusable."""
        folded = ranges.folded(handles, few=2)
        found: list[ArrayValue | ArrayValues] = []
        for each in folded:
            alone = self._held.get(each) if type(each) is int else None
            if type(alone) is not ArrayValue:
                break
            found.append(alone)
        else:
            return found
        self._cut(folded, edges)  # first of all: a handle may be named twice, and its entry cut by the second
        found.clear()
        for each in folded:
            first, count = ranges.span(each)
            for handle, held in self._held.parts(first, count):
                if held is None:
                    raise self._unknown(handle)
                found.append(held if held.count > 1 else self._single(handle, held))
        return found

    def there(self, handles: Sequence[int]) -> list[ArrayValue | ArrayValues]:
        """The same in any order, each once, without those that stand for nothing, or for an error."""
        folded = ranges.ascending(set(handles), few=2)
        self._cut(folded)
        return [held for each in folded for _, held in self._held.parts(*ranges.span(each)) if held is not None]

    def _cut(self, folded: Iterable[int | Range], edges: Iterable[int] = ()) -> None:
        index, held, following = 0, self._held, iter(edges)
        edge = next(following, None)
        for each in folded:
            first, count = ranges.span(each)
            held.cut(first)
            held.cut(first + count)
            while edge is not None and edge < index + count:
                held.cut(first + edge - index)
                edge = next(following, None)
            index += count

    # --- entries come and go -------------------------------------------------------------------------------

    def keep(self, handle: int, value: ArrayValue | ArrayValues) -> None:
        """Keeps an array, or several from this handle on, after `check_room` and `check_new`."""
        if isinstance(value, ArrayValues) and value.count == 1:
            value = value.alone()
        self._held.put(handle, value)
        self._number += value.count
        last = handle + value.count - 1
        if self._top < last < SERVER_MADE:
            self._top = last

    def check_room(self, count: int) -> None:
        if self._number + len(self._faults) + count > self._most:
            raise StatusError(StatusCode.RESOURCE_EXHAUSTED, f"a session may have {self._most} arrays at a time")

    def check_new(self, handles: Sequence[int]) -> None:
        """Raises StatusError unless all are the client's to choose, and none is in use."""
        if self._top < min(handles) and min(handles) > 0 and max(handles) < SERVER_MADE:
            return
        for handle in handles:
            if not 0 < handle < SERVER_MADE or handle in self:
                raise invalid(f"{handle} is not a handle for a new array: it is in use, or not the client's to choose")

    def poison(self, handle: int, fault: StatusError) -> None:
        """Whatever uses this handle of the client's will end with this fault. One that is in use stays what it is."""
        if len(self) < self._most and handle not in self:
            self._faults[handle] = fault
            self._top = max(self._top, handle)

    def forget(self, handles: Sequence[int]) -> None:
        """In any order; a client drops arrays in the opposite order."""
        for each in ranges.ascending(set(handles), few=2):
            first, count = ranges.span(each)
            for handle, held in list(self._held.parts(first, count)):
                if held is None:
                    self._faults.pop(handle, None)
                else:
                    self._held.drop(handle)
                    self._number -= held.count

    def entries(self) -> Collection[ArrayValue | ArrayValues]:
        return self._held.values()

    def clear(self) -> None:
        self._held = RangeTable()
        self._number = 0
        self._faults.clear()
