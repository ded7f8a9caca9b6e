"""How many bytes of device memory a session's arrays take, and what it may have at most.

Several handles may name the same memory: an array and its shards, or the same array relabelled. Each refers to the
Allocations that it needs, so what they share is counted once. Memory that programs use while they run is not counted.
"""

from __future__ import annotations

from math import prod

from core.memory import size_text

from ..protocol import StatusCode, dtype_of
from .session_devices import ArrayType, StatusError

STRING_BYTES = 16  # of an element of an array of strings, besides long ones' contents


class Maker:
    """A request that may make arrays. `context`: the client's number for a line of its program, 0: none. The client
    keeps that line until it gets the number back, as often as it has sent it: with the request's answer, or when
    the last of the allocations is gone. `live`: these; `answered`: the answer did not have it. `name`: of the request,
    or of the function that it runs."""

    __slots__ = ("answered", "context", "live", "name")

    def __init__(self, context: int, name: str) -> None:
        self.context, self.name, self.live, self.answered = context, name, 0, False


class MemoryMeter:
    """`maker`: the request that takes memory just now. `over`: contexts to give back."""

    __slots__ = ("maker", "most", "over", "used")

    def __init__(self, most: int) -> None:
        self.most, self.used = most, 0
        self.maker, self.over = Maker(0, ""), list[int]()

    def check(self, nbytes: int) -> None:
        """Raises StatusError if so much more is too much."""
        if self.used + nbytes > self.most:
            raise StatusError(
                StatusCode.RESOURCE_EXHAUSTED,
                f"{size_text(nbytes)} more would be too much: arrays of this session take {size_text(self.used)}, and "
                f"a session may have {size_text(self.most)} (--memory-per-session of the door). Delete arrays, or "
                "donate arguments (jax.jit(donate_argnums=...))",
            )

    def take(self, nbytes: int) -> Allocation:
        if self.used + nbytes > self.most:
            self.check(nbytes)
        self.used += nbytes
        return Allocation(self, nbytes, self.maker)


class Allocation:
    """`nbytes`: without those of `parts`, into which it may have been split."""

    __slots__ = ("maker", "meter", "nbytes", "parts")

    def __init__(self, meter: MemoryMeter, nbytes: int, maker: Maker) -> None:
        self.meter, self.nbytes, self.maker = meter, nbytes, maker
        maker.live += 1
        self.parts: tuple[Allocation, ...] = ()

    def __del__(self) -> None:
        meter, maker = self.meter, self.maker
        meter.used -= self.nbytes
        maker.live -= 1
        if maker.answered and not maker.live:
            meter.over.append(maker.context)

    def cut(self, nbytes: int) -> Allocation:
        """So many bytes of it as an allocation of their own; none if it was released. It has not been split."""
        nbytes = min(nbytes, self.nbytes)
        self.nbytes -= nbytes
        return Allocation(self.meter, nbytes, self.maker)

    def split(self, count: int) -> tuple[Allocation, ...]:
        """The same for each caller. `count` is always the same for an allocation: the number of shards."""
        if not self.parts:
            each = self.nbytes // count
            self.nbytes -= each * count
            self.parts = tuple(Allocation(self.meter, each, self.maker) for _ in range(count))
        return self.parts


Memory = Allocation | tuple[Allocation, ...]  # of an array: whole, or a shard each


def shards_of(memory: Memory, count: int) -> tuple[Allocation, ...]:
    """An allocation for each shard of an array."""
    if isinstance(memory, tuple):
        return memory
    return (memory,) if count == 1 else memory.split(count)


def nbytes_of(memory: Memory) -> int:
    if isinstance(memory, tuple):
        return sum(nbytes_of(each) for each in memory)
    return memory.nbytes + sum(nbytes_of(each) for each in memory.parts)


def release(memory: Memory) -> None:
    """It is free, whoever refers to it."""
    for each in memory if isinstance(memory, tuple) else (memory,):
        each.meter.used -= each.nbytes
        each.nbytes = 0
        if each.parts:
            release(each.parts)


def bytes_of(array_type: ArrayType, contents: int = 0) -> int:
    """Of all shards. `contents`: of strings, if they are known."""
    dtype = dtype_of(array_type.kind)
    size = STRING_BYTES if dtype is None else dtype.itemsize
    shards = len(array_type.sharding.devices)
    return (size * prod(array_type.shard_shape) + (contents if dtype is None else 0)) * shards
