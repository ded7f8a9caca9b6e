"""What is alive when memory is full, and who made it: clients print it by the lines of their own programs.

    dump_of(arrays) -> ObjectStoreDumpProto       for the `payload` of a status, under the key DUMP

Each allocation knows its `Maker`, whose context is the client's number for a line of its program; so an error costs
a look at all arrays, and nothing else costs anything. Neighbours: `memory_meter`, `door_session`.
"""

import time
from collections.abc import Iterator
from typing import Any

from ..protocol import ObjectStoreDumpProto
from .memory_meter import Allocation, Memory
from .session_arrays import ArrayTable

DUMP = "type.googleapis.com/ifrt_proxy_contrib_pathways.ObjectStoreDumpProto"
MOST = 64  # lines and makers, those with the most memory


def dump_of(arrays: ArrayTable) -> Any:
    seen: set[int] = set()
    made: dict[tuple[int, str], list[int]] = {}  # (context, name) -> [arrays, bytes]
    for held in arrays.entries():
        count = held.count
        for each in _allocations(held.memory):
            if each.nbytes and id(each) not in seen:
                seen.add(id(each))
                row = made.setdefault((each.maker.context, each.maker.name), [0, 0])
                row[0] += count
                row[1] += each.nbytes
                count = 0
    found = ObjectStoreDumpProto(device="the door", dump_timestamp_ns=time.time_ns())
    found.dump.SetInParent()
    largest = sorted(made.items(), key=lambda item: -item[1][1])
    for (context, name), (count, nbytes) in largest[:MOST]:
        line = found.dump.per_error_context.add(error_context_id=context)
        line.per_creator.add(
            creator=name.removesuffix("_request"), ready_obj_count=count, ready_total_size=nbytes
        )  # fmt: skip
    if len(largest) > MOST:
        found.dump.warning = f"{len(largest) - MOST} lines with less memory are left out"
    return found


def _allocations(memory: Memory) -> Iterator[Allocation]:
    for each in memory if isinstance(memory, tuple) else (memory,):
        yield each
        yield from _allocations(each.parts)
