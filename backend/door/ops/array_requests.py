"""Arrays: made of host buffers, put together and taken apart, copied to other devices, deleted.

Shapes, strides and indices come from the client and become views on its bytes, so each is checked: `host_view`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from .. import ifrt_shardings
from ..dtypes import STRING, dtype_of, name_of
from ..ifrt_messages import (
    ArrayCopySemantics,
    CompactLayoutProto,
    IfrtResponse,
    StatusCode,
    StringArrayContents,
)
from ..ifrt_shardings import ShardingError, ShardSpec
from ..reply import Reply
from ..session_devices import ArrayType, Ref, StatusError, invalid, unsupported
from ..session_state import ArrayValue, SessionState
from .operation import Operation

__all__ = ["OPERATIONS", "host_view", "sharding_of"]

LARGEST = 1 << 62  # elements
MOST_SHARDS = 1 << 20  # that a plan may speak of


# --- what requests say ------------------------------------------------------------------------------------


def sharding_of(state: SessionState, proto: Any) -> ShardSpec:
    try:
        return ifrt_shardings.read(proto, state.count)
    except ShardingError as error:
        raise invalid(str(error)) from None


def type_of(state: SessionState, kind: int, dims: Iterable[int], sharding: Any) -> ArrayType:
    shape = tuple(dims)
    if any(dim < 0 for dim in shape) or prod(shape) > LARGEST:
        raise invalid(f"{list(shape)} is not a shape that an array can have")
    spec = sharding_of(state, sharding)
    if not spec.fits(shape):
        raise invalid(
            f"an array of shape {list(shape)} cannot be cut into {list(spec.tiles.grid)} equal shards"
        )
    return ArrayType(kind, shape, spec)


def host_view(
    data: bytes | bytearray | memoryview, kind: int, shape: tuple[int, ...], strides: Sequence[int] | None
) -> np.ndarray[Any, Any]:
    """A host buffer as an array. It never reaches beyond the buffer, nor has it more elements than the buffer."""
    if kind == STRING:
        return _strings(data, shape)
    dtype = dtype_of(kind)
    if dtype is None:
        raise unsupported(f"arrays of {name_of(kind)} cannot be made of a host buffer here")
    count, size = prod(shape), dtype.itemsize
    there = data.nbytes if isinstance(data, memoryview) else len(data)
    if strides is not None and len(strides) != len(shape):
        raise invalid(f"{len(strides)} strides do not fit a shape of {len(shape)} dimensions")
    if not count:
        return np.empty(shape, dtype)
    if count * size > there:
        raise invalid(
            f"{count} elements of {name_of(kind)} are more than the {there} bytes of the host buffer"
        )
    if strides is None:
        return np.ndarray(shape, dtype, data)
    if any(stride <= 0 for dim, stride in zip(shape, strides, strict=True) if dim > 1):
        raise invalid(
            f"the strides {list(strides)} of a host buffer have to be positive: np.ascontiguousarray helps"
        )
    reach = sum((dim - 1) * stride for dim, stride in zip(shape, strides, strict=True) if dim > 1) + size
    if reach > there:
        raise invalid(f"strides {list(strides)} reach {reach} bytes into a host buffer of {there} bytes")
    meant = tuple(stride if dim > 1 else size for dim, stride in zip(shape, strides, strict=True))
    return np.ndarray(shape, dtype, data, strides=meant)


def _strings(data: bytes | bytearray | memoryview, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    try:
        found = [each.decode() for each in StringArrayContents.FromString(bytes(data)).strings]
    except Exception:
        raise invalid("the contents of an array of strings cannot be read") from None
    if len(found) != prod(shape):
        raise invalid(f"{len(found)} strings do not fit the shape {list(shape)}")
    return np.array(found, dtype=np.dtypes.StringDType()).reshape(shape)


def _strides(body: Any) -> list[int] | None:
    return list(body.byte_strides.strides) if body.HasField("byte_strides") else None


def _taken(state: SessionState, handle: int) -> bytes | bytearray | memoryview:
    data = state.incoming.take(handle)
    assert data is not None  # the session has waited for it
    return data


def _check_layout(layout: Any, rank: int) -> None:
    """Only the default: row by row."""
    serialized = layout.serialized_layout
    if not serialized.type_name or not serialized.data:
        return
    if serialized.type_name.endswith("CompactLayout"):
        order = list(CompactLayoutProto.FromString(serialized.data).major_to_minor)
        if order == list(range(rank)):
            return
    raise unsupported(
        f"arrays of host buffers are laid out row by row here, not by the {serialized.type_name} that was asked for: "
        "put it first, then change its layout in a jit"
    )


# --- making -----------------------------------------------------------------------------------------------


def make_from_host_buffer(state: SessionState, body: Any, reply: Reply) -> None:
    data = _taken(state, body.host_buffer_handle)
    array_type = type_of(state, body.dtype.kind, body.shape.dims, body.sharding)
    if not array_type.sharding.replicated:
        raise invalid("an array of one host buffer is on one device, or replicated")
    if body.HasField("layout"):
        _check_layout(body.layout, len(array_type.shape))
    view = host_view(data, array_type.kind, array_type.shape, _strides(body))
    ref = state.devices.put(array_type, [view] * len(array_type.sharding.devices))
    response = IfrtResponse()
    handle = state.keep(body.array_handle, array_type, ref)
    response.make_array_from_host_buffer_response.array_handle = handle
    reply.ok(response)


def make_from_shards(state: SessionState, body: Any, reply: Reply) -> None:
    taken = {handle: _taken(state, handle) for handle in set(_shard_buffers(body))}
    if len(body.array_handles) not in (0, len(body.specs)):
        raise invalid(f"{len(body.array_handles)} handles for {len(body.specs)} arrays")
    made = []
    for spec in body.specs:
        array = spec.array_spec
        array_type = type_of(state, array.dtype.kind, array.shape.dims, array.sharding)
        made.append((array_type, state.devices.put(array_type, _shards(array_type, spec, taken))))
    handles = list(body.array_handles) or [0] * len(made)
    response = IfrtResponse()
    found = response.make_arrays_from_host_buffer_shards_response
    found.SetInParent()
    found.array_handles.extend(_keep_all(state, handles, made))
    reply.ok(response)


def _shard_buffers(body: Any) -> Iterable[int]:
    return (buffer.host_buffer_handle for spec in body.specs for buffer in spec.host_buffers)


def _shards(array_type: ArrayType, spec: Any, taken: dict[int, Any]) -> list[np.ndarray[Any, Any]]:
    """For each shard its contents: one host buffer may be those of several."""
    wanted, count = array_type.shard_shape, len(array_type.sharding.devices)
    if len(spec.addressable_shard_indices) != len(spec.host_buffers):
        raise invalid("not every host buffer says which shards it is")
    found: list[Any] = [None] * count
    for at, buffer in zip(spec.addressable_shard_indices, spec.host_buffers, strict=True):
        shape = tuple(buffer.shape.dims)
        if shape != wanted or buffer.dtype.kind != array_type.kind:
            raise invalid(
                f"a shard of {name_of(buffer.dtype.kind)}{list(shape)} is none of an array whose shards are "
                f"{name_of(array_type.kind)}{list(wanted)}"
            )
        view = host_view(taken[buffer.host_buffer_handle], array_type.kind, shape, _strides(buffer))
        for index in at.indices:
            if not 0 <= index < count or found[index] is not None:
                raise invalid(
                    f"shard {index} of an array of {count} shards does not exist, or is given twice"
                )
            found[index] = view
    if any(each is None for each in found):
        raise invalid("not every shard of an array has contents")
    return found


def _keep_all(
    state: SessionState, handles: Sequence[int], made: Sequence[tuple[ArrayType, Ref]]
) -> list[int]:
    return [
        state.keep(handle, array_type, ref) for handle, (array_type, ref) in zip(handles, made, strict=True)
    ]


def make_errors(state: SessionState, body: Any, reply: Reply) -> None:
    """Arrays that are nothing but an error."""
    fault = StatusError(body.error.code or StatusCode.UNKNOWN, body.error.message)
    handles = list(body.array_handles)
    if len(handles) != len(body.array_specs):
        raise invalid(f"{len(handles)} handles for {len(body.array_specs)} arrays")
    state.poison(handles, fault)
    response = IfrtResponse()
    response.make_error_arrays_response.SetInParent()
    response.make_error_arrays_response.array_handles.extend(handles)
    reply.ok(response)


# --- together and apart -----------------------------------------------------------------------------------


def assemble(state: SessionState, body: Any, reply: Reply) -> None:
    parts = [state.array(handle) for handle in body.single_device_array_handles]
    kind = body.dtype.kind if body.HasField("dtype") else (parts[0].type.kind if parts else 0)
    array_type = type_of(state, kind, body.shape.dims, body.sharding)
    ref = _assembled(state, array_type, parts)
    response = IfrtResponse()
    handle = state.keep(body.result_handle, array_type, ref)
    response.assemble_array_from_single_device_arrays_response.array_handle = handle
    reply.ok(response)


def _assembled(state: SessionState, array_type: ArrayType, parts: Sequence[ArrayValue]) -> Ref:
    devices = array_type.sharding.devices
    if len(parts) != len(devices):
        raise invalid(f"{len(parts)} arrays cannot be the shards of an array on {len(devices)} devices")
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


def disassemble(state: SessionState, body: Any, reply: Reply) -> None:
    value = state.array(body.array_handle)
    handles = list(body.result_handles)
    parts = _parts(state, value)
    if len(handles) not in (0, len(parts)):
        raise invalid(f"{len(handles)} handles for the {len(parts)} shards of an array")
    response = IfrtResponse()
    found = response.disassemble_into_single_device_arrays_response
    found.SetInParent()
    made = [(part.type, part.ref) for part in parts]
    found.array_handles.extend(_keep_all(state, handles or [0] * len(parts), made))
    reply.ok(response)


def _parts(state: SessionState, value: ArrayValue) -> list[ArrayValue]:
    array_type, shape = value.type, value.type.shard_shape
    refs = state.devices.shards(value.ref)
    kind = array_type.sharding.memory_kind
    return [
        ArrayValue(ArrayType(array_type.kind, shape, ShardSpec((device,), memory_kind=kind)), ref)
        for device, ref in zip(array_type.sharding.devices, refs, strict=True)
    ]


def fully_replicated_shard(state: SessionState, body: Any, reply: Reply) -> None:
    value = state.array(body.array_handle)
    if value.type.shard_shape != value.type.shape:
        raise invalid("the array is not fully replicated")
    part = _parts(state, value)[0]
    response = IfrtResponse()
    handle = state.keep(body.result_handle, part.type, part.ref)
    response.fully_replicated_shard_response.array_handle = handle
    reply.ok(response)


def remap(state: SessionState, body: Any, reply: Reply) -> None:
    plan, inputs = body.plan, [state.array(handle) for handle in body.array_handles]
    if len(inputs) != len(plan.input_specs):
        raise invalid(f"{len(inputs)} arrays for a plan of {len(plan.input_specs)}")
    types = [type_of(state, spec.dtype.kind, spec.shape.dims, spec.sharding) for spec in plan.output_specs]
    shards = [_parts(state, value) for value in inputs]
    filled: list[list[ArrayValue | None]] = [
        [None] * len(array_type.sharding.devices) for array_type in types
    ]
    for source, at, target, to in _relabelled(plan, types):
        try:
            filled[target][to] = (
                shards[source][at] if at >= 0 else _on(shards[source], types[target].sharding.devices[to])
            )
        except IndexError:
            raise invalid("the plan of a remap names a shard that does not exist") from None
    made = []
    for array_type, parts in zip(types, filled, strict=True):
        made.append((array_type, _assembled(state, array_type, [part for part in parts if part is not None])))
    handles = list(body.result_handles) or [0] * len(made)
    if len(handles) != len(made):
        raise invalid(f"{len(handles)} handles for {len(made)} arrays")
    response = IfrtResponse()
    response.remap_arrays_response.SetInParent()
    response.remap_arrays_response.array_handles.extend(_keep_all(state, handles, made))
    reply.ok(response)


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
                    raise invalid(
                        f"the plan of a remap names device {device}, which the result does not have"
                    )
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
        if (
            min(taken[0], given[0]) < 0
            or min(taken[2], given[2]) < 1
            or max(taken[1], given[1]) > MOST_SHARDS
        ):
            raise invalid("the plan of a remap has an interval that makes no sense")
        for at, to in zip(range(*taken), range(*given), strict=False):
            if to >= count:
                raise invalid("the plan of a remap names a shard that does not exist")
            yield mapping.in_array, at, mapping.out_array, to


# --- elsewhere --------------------------------------------------------------------------------------------


def copy(state: SessionState, body: Any, reply: Reply) -> None:
    values = [state.array(handle) for handle in body.array_handles]
    handles = list(body.result_handles) or [0] * len(values)
    if len(handles) != len(values):
        raise invalid(f"{len(handles)} handles for {len(values)} arrays")
    devices = tuple(body.device_ids)
    if any(not 0 <= each < state.count for each in devices) or len(set(devices)) != len(devices):
        raise invalid(f"{list(devices)} are not devices of this session, each named once")
    kind = body.memory_kind if body.HasField("memory_kind") else None
    moved = []
    for value in values:
        spec = value.type.sharding
        if devices and len(devices) != len(spec.devices):
            raise invalid(f"an array on {len(spec.devices)} devices cannot be copied to {len(devices)}")
        target = spec.on(devices or spec.devices, spec.memory_kind if kind is None else kind)
        moved.append((ArrayType(value.type.kind, value.type.shape, target), value.ref))
    always = body.copy_semantics == ArrayCopySemantics.Value("ARRAY_COPY_SEMANTICS_ALWAYS_COPY")
    refs = state.devices.copy(moved, always)
    made = [(array_type, ref) for (array_type, _), ref in zip(moved, refs, strict=True)]
    response = IfrtResponse()
    response.copy_arrays_response.SetInParent()
    response.copy_arrays_response.array_handles.extend(_keep_all(state, handles, made))
    reply.ok(response)


# --- the end ----------------------------------------------------------------------------------------------


def delete(state: SessionState, body: Any, reply: Reply) -> None:
    for handle in body.array_handle:
        value = state.arrays.get(handle)
        if isinstance(value, ArrayValue):
            state.devices.delete(value.ref)
    response = IfrtResponse()
    response.delete_array_response.deletion_future_handle = state.keep_future(counted=False)
    reply.ok(response)


def is_deleted(state: SessionState, body: Any, reply: Reply) -> None:
    response = IfrtResponse()
    deleted = state.devices.is_deleted(state.array(body.array_handle).ref)
    response.is_array_deleted_response.deleted = deleted
    response.is_array_deleted_response.SetInParent()
    reply.ok(response)


def destruct(state: SessionState, body: Any, reply: Reply) -> None:
    for handle in body.array_handle:
        state.arrays.pop(handle, None)
    reply.empty("destruct_array_response")


OPERATIONS = (
    Operation(
        "make_array_from_host_buffer_request", make_from_host_buffer, lambda body: (body.array_handle,),
        needs=lambda body: (body.host_buffer_handle,),
    ),
    Operation(
        "make_arrays_from_host_buffer_shards_request", make_from_shards, lambda body: body.array_handles,
        needs=_shard_buffers,
    ),
    Operation("make_error_arrays_request", make_errors, lambda body: body.array_handles),
    Operation("assemble_array_from_single_device_arrays_request", assemble, lambda body: (body.result_handle,)),
    Operation("disassemble_into_single_device_arrays_request", disassemble, lambda body: body.result_handles),
    Operation("fully_replicated_shard_request", fully_replicated_shard, lambda body: (body.result_handle,)),
    Operation("remap_arrays_request", remap, lambda body: body.result_handles),
    Operation("copy_arrays_request", copy, lambda body: body.result_handles),
    Operation("delete_array_request", delete),
    Operation("is_array_deleted_request", is_deleted),
    Operation("destruct_array_request", destruct),
)  # fmt: skip
