"""Arrays put together of shards, taken apart into them, and relabelled: no contents move, and no memory is taken.

Neighbours: `array_arguments`, `array_requests`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ...protocol import TOKEN, ShardSpec, name_of
from ..memory_meter import Allocation, shards_of
from ..reply import Operation, Reply
from ..session_arrays import ArrayValue
from ..session_devices import ArrayType, Ref, invalid
from ..session_state import SessionState
from .array_arguments import type_of

MOST_SHARDS = 1 << 20  # that a plan may speak of


def assemble(state: SessionState, body: Any, reply: Reply) -> None:
    parts = [state.arrays.get(handle) for handle in body.single_device_array_handles]
    kind = body.dtype.kind if body.HasField("dtype") else (parts[0].type.kind if parts else 0)
    array_type = type_of(state, kind, body.shape.dims, body.sharding)
    ref = _assembled(state, array_type, parts)
    handle = state.keep(body.result_handle, array_type, ref, _memory_of(parts))
    reply.answer("assemble_array_from_single_device_arrays_response", array_handle=handle)


def _assembled(state: SessionState, array_type: ArrayType, parts: Sequence[ArrayValue]) -> Ref:
    devices = array_type.sharding.devices
    if len(parts) != len(devices):
        raise invalid(f"{len(parts)} arrays cannot be the shards of an array on {len(devices)} devices")
    if array_type.kind == TOKEN:
        if any(part.type.kind != TOKEN or part.ref != parts[0].ref for part in parts):
            raise invalid("a token's shards are those of one token")
        return parts[0].ref
    wanted = array_type.shard_shape
    for device, part in zip(devices, parts, strict=True):
        if part.type.sharding.devices != (device,):
            raise invalid(f"an array on {part.type.sharding.devices} cannot be the shard of device {device}")
        if part.type.shape != wanted or part.type.kind != array_type.kind:
            raise invalid(
                f"an array {name_of(part.type.kind)}{list(part.type.shape)} cannot be a shard of an array whose shards "
                f"are {name_of(array_type.kind)}{list(wanted)}"
            )
    return state.devices.assemble(array_type, [part.ref for part in parts])


def _memory_of(parts: Sequence[ArrayValue]) -> tuple[Allocation, ...]:
    """Of an array that these are the shards of."""
    return tuple(each for part in parts for each in shards_of(part.memory, 1))


def disassemble(state: SessionState, body: Any, reply: Reply) -> None:
    parts = _parts(state, state.arrays.get(body.array_handle))
    kept = state.keep_all(body.result_handles, [(part.type, part.ref, part.memory) for part in parts])
    reply.answer("disassemble_into_single_device_arrays_response", array_handles=kept)


def _parts(state: SessionState, value: ArrayValue) -> list[ArrayValue]:
    array_type, shape = value.type, value.type.shard_shape
    refs = state.devices.shards(value.ref)
    kind = array_type.sharding.memory_kind
    return [
        ArrayValue(ArrayType(array_type.kind, shape, ShardSpec((device,), memory_kind=kind)), ref, memory)
        for device, ref, memory in zip(
            array_type.sharding.devices, refs, shards_of(value.memory, len(refs)), strict=True
        )
    ]


def fully_replicated_shard(state: SessionState, body: Any, reply: Reply) -> None:
    value = state.arrays.get(body.array_handle)
    if value.type.shard_shape != value.type.shape:
        raise invalid("the array is not fully replicated")
    part = _parts(state, value)[0]
    handle = state.keep(body.result_handle, part.type, part.ref, part.memory)
    reply.answer("fully_replicated_shard_response", array_handle=handle)


def remap(state: SessionState, body: Any, reply: Reply) -> None:
    plan, inputs = body.plan, [state.arrays.get(handle) for handle in body.array_handles]
    if len(inputs) != len(plan.input_specs):
        raise invalid(f"{len(inputs)} arrays for a plan of {len(plan.input_specs)}")
    types = [type_of(state, spec.dtype.kind, spec.shape.dims, spec.sharding) for spec in plan.output_specs]
    shards = [_parts(state, value) for value in inputs]
    filled: list[list[ArrayValue | None]] = [[None] * len(array_type.sharding.devices) for array_type in types]
    for source, at, target, to in _relabelled(plan, types):
        try:
            filled[target][to] = (
                shards[source][at] if at >= 0 else _on(shards[source], types[target].sharding.devices[to])
            )
        except IndexError:
            raise invalid("the plan of a remap names a shard that does not exist") from None
    made = []
    for array_type, parts in zip(types, filled, strict=True):
        there = [part for part in parts if part is not None]
        made.append((array_type, _assembled(state, array_type, there), _memory_of(there)))
    reply.answer("remap_arrays_response", array_handles=state.keep_all(body.result_handles, made))


def _on(parts: Sequence[ArrayValue], device: int) -> ArrayValue:
    found = next((part for part in parts if part.type.sharding.devices == (device,)), None)
    if found is None:
        raise invalid(f"the plan of a remap takes a shard of device {device} from an array that has none")
    return found


def _relabelled(plan: Any, types: Sequence[ArrayType]) -> Iterable[tuple[int, int, int, int]]:
    """Input array, its shard, output array, its shard. Shard -1: the one on the output shard's device."""
    for mapping in plan.mappings:  # JAX 0.10
        _check_arrays(plan, types, mapping.in_array, mapping.out_array)
        yield from _mapped(mapping, len(types[mapping.out_array].sharding.devices))
    for output in plan.input_devices_for_output:  # JAX 0.12
        for each in output.input_devices:
            _check_arrays(plan, types, each.in_array, output.out_array)
            devices = types[output.out_array].sharding.devices
            for device in each.device_list.device_ids:
                if device not in devices:
                    raise invalid(f"the plan of a remap names device {device}, which the result does not have")
                yield each.in_array, -1, output.out_array, devices.index(device)


def _check_arrays(plan: Any, types: Sequence[ArrayType], source: int, target: int) -> None:
    if not (0 <= source < len(plan.input_specs) and 0 <= target < len(types)):
        raise invalid("the plan of a remap names an array that does not exist")


def _mapped(mapping: Any, count: int) -> Iterable[tuple[int, int, int, int]]:
    """Intervals of shards; `count`: how many the output array has."""
    spans = zip(
        zip(mapping.from_start, mapping.from_end, mapping.from_step, strict=False),
        zip(mapping.to_start, mapping.to_end, mapping.to_step, strict=False), strict=False,
    )  # fmt: skip
    for taken, given in spans:
        if min(taken[0], given[0]) < 0 or min(taken[2], given[2]) < 1 or max(taken[1], given[1]) > MOST_SHARDS:
            raise invalid("the plan of a remap has an interval that makes no sense")
        for at, to in zip(range(*taken), range(*given), strict=False):
            if to >= count:
                raise invalid("the plan of a remap names a shard that does not exist")
            yield mapping.in_array, at, mapping.out_array, to


OPERATIONS = (
    Operation("assemble_array_from_single_device_arrays_request", assemble, ("result_handle",)),
    Operation("disassemble_into_single_device_arrays_request", disassemble, ("result_handles",)),
    Operation("fully_replicated_shard_request", fully_replicated_shard, ("result_handle",)),
    Operation("remap_arrays_request", remap, ("result_handles",)),
)
