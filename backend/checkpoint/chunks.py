"""How an array is cut into files, and which of its holders writes which file. All hosts compute the same result.

A file holds a part of one shard, so no two hosts write to one file. If several devices hold a shard, they share its
files: replicated data are written once, and all holders write a part.
"""

from collections.abc import Iterator, Sequence
from math import prod

from core.model import ITEM_BYTES, Index, Layout, Shards

LARGEST = 64 << 20  # approximate bytes of a file; a reader of any part of it reads all of it
SMALLEST = 4 << 20  # bytes, below which sharing is not worth another file
Box = tuple[slice, ...]


def chunk_of(shape: Sequence[int], dtype: str, split: Sequence[Sequence[int]], mesh: Sequence[int]) -> tuple[int, ...]:
    """The shape of one file's part: a shard, cut along its first dimensions until it is small enough."""
    dims = split or ((),) * len(shape)
    parts = [prod(mesh[axis] for axis in axes) for axes in dims]
    found = [max(1, size // count) for size, count in zip(shape, parts, strict=True)]
    replicas = prod(mesh) // max(1, prod(parts))
    nbytes = prod(found) * ITEM_BYTES[dtype]
    wanted = min(LARGEST, max(SMALLEST, -(-nbytes // replicas)))
    for dimension, size in enumerate(found):
        if nbytes <= wanted:
            break
        cuts = min((cut for cut in divisors(size) if nbytes <= wanted * cut), default=size)
        if nbytes < wanted * cuts // 16:
            # no divisor of this size fits, for example of a prime: the next dimension is cut instead
            continue
        found[dimension] = size // cuts
        nbytes //= cuts
    return tuple(found)


def divisors(number: int) -> list[int]:
    small = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})


def cells(low: Sequence[int], high: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Row-major. There may be more than fit in memory, if a stranger says so."""
    if not low:
        yield ()
        return
    for before in cells(low[:-1], high[:-1]):
        for at in range(low[-1], high[-1]):
            yield *before, at


def ours(layout: Layout, chunk: Sequence[int], salt: int, devices: Sequence[int]) -> Iterator[tuple[Index, Box, Box]]:
    """What these (virtual) devices write: (shard, where in the shard, where in the array). Every file has one writer.

    `salt`: the array's number, so that small arrays do not all have the same writer."""
    shards = Shards(layout)
    if not prod(layout.shape):
        return
    mine = set(devices)
    for shard in dict.fromkeys(shards.shard_of(device) for device in devices):
        holders = [shards.device(shard, replica) for replica in range(shards.replicas)]
        start = [part * size for part, size in zip(shard, shards.size, strict=True)]
        counts = [size // part for size, part in zip(shards.size, chunk, strict=True)]
        for number, where in enumerate(cells([0] * len(counts), counts)):
            if holders[(number + salt) % shards.replicas] not in mine:
                continue
            low = [at * part for at, part in zip(where, chunk, strict=True)]
            inside = tuple(slice(a, a + part) for a, part in zip(low, chunk, strict=True))
            whole = tuple(slice(first + a, first + a + part) for first, a, part in zip(start, low, chunk, strict=True))
            yield shard, inside, whole
