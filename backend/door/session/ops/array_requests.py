"""Arrays: made of host buffers, copied to other devices, deleted.

Memory is taken before devices are asked for it. Neighbours: `array_arguments`, `array_shards`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...protocol import ArrayCopySemantics, StatusCode, dtype_of, name_of
from ..memory_meter import Memory, bytes_of, nbytes_of, release
from ..reply import Operation, Reply
from ..session_arrays import ArrayValue
from ..session_devices import ArrayCopy, ArrayType, Ref, StatusError, invalid, unsupported
from ..session_state import SessionState
from .array_arguments import check_layout, host_view, strides_of, type_of

ALWAYS_COPY, DONATE_INPUT = (
    ArrayCopySemantics.Value(f"ARRAY_COPY_SEMANTICS_{name}") for name in ("ALWAYS_COPY", "DONATE_INPUT")
)

# --- making -----------------------------------------------------------------------------------------------


def _taken(state: SessionState, handle: int) -> bytes | bytearray | memoryview:
    data = state.incoming.take(handle)
    assert data is not None  # the session has waited for it
    return data


def make_from_host_buffer(state: SessionState, body: Any, reply: Reply) -> None:
    data = _taken(state, body.host_buffer_handle)
    array_type = type_of(state, body.dtype.kind, body.shape.dims, body.sharding)
    if not array_type.sharding.replicated:
        raise invalid("an array of one host buffer is on one device, or replicated")
    if body.HasField("layout"):
        check_layout(body.layout, len(array_type.shape))
    view = host_view(data, array_type.kind, array_type.shape, strides_of(body))
    memory = state.memory.take(bytes_of(array_type, len(data)))
    ref = state.devices.put(array_type, [view] * len(array_type.sharding.devices))
    handle = state.keep(body.array_handle, array_type, ref, memory)
    reply.answer("make_array_from_host_buffer_response", array_handle=handle)


def make_from_shards(state: SessionState, body: Any, reply: Reply) -> None:
    taken = {handle: _taken(state, handle) for handle in set(_shard_buffers(body))}
    made = []
    for spec in body.specs:
        array = spec.array_spec
        array_type = type_of(state, array.dtype.kind, array.shape.dims, array.sharding)
        shards = _shards(array_type, spec, taken)
        memory = state.memory.take(bytes_of(array_type, sum(map(len, taken.values()))))
        made.append((array_type, state.devices.put(array_type, shards), memory))
    kept = state.keep_all(body.array_handles, made)
    reply.answer("make_arrays_from_host_buffer_shards_response", array_handles=kept)


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
        view = host_view(taken[buffer.host_buffer_handle], array_type.kind, shape, strides_of(buffer))
        for index in at.indices:
            if not 0 <= index < count or found[index] is not None:
                raise invalid(f"shard {index} of an array of {count} shards does not exist, or is given twice")
            found[index] = view
    if any(each is None for each in found):
        raise invalid("not every shard of an array has contents")
    return found


def make_errors(state: SessionState, body: Any, reply: Reply) -> None:
    """Arrays that are nothing but an error."""
    fault = StatusError(body.error.code or StatusCode.UNKNOWN, body.error.message)
    handles = list(body.array_handles)
    if len(handles) != len(body.array_specs):
        raise invalid(f"{len(handles)} handles for {len(body.array_specs)} arrays")
    state.poison("array_handles", handles, fault)
    reply.answer("make_error_arrays_response", array_handles=handles)


# --- elsewhere --------------------------------------------------------------------------------------------


def copy(state: SessionState, body: Any, reply: Reply) -> None:
    values = [state.arrays.get(handle) for handle in body.array_handles]
    devices = tuple(body.device_ids)
    if any(not 0 <= each < state.count for each in devices) or len(set(devices)) != len(devices):
        raise invalid(f"{list(devices)} are not devices of this session, each named once")
    kind = body.memory_kind if body.HasField("memory_kind") else None
    types = []
    for value in values:
        spec = value.type.sharding
        if devices and len(devices) != len(spec.devices):
            raise invalid(f"an array on {len(spec.devices)} devices cannot be copied to {len(devices)}")
        target = spec.on(devices or spec.devices, spec.memory_kind if kind is None else kind)
        types.append(ArrayType(value.type.kind, value.type.shape, target))
    made = moved(state, values, types, body.copy_semantics)
    reply.answer("copy_arrays_response", array_handles=state.keep_all(body.result_handles, made))


def reshard(state: SessionState, body: Any, reply: Reply) -> None:
    """Arrays on any other devices, cut in any other way."""
    values = [state.arrays.get(handle) for handle in body.array_handles]
    if len(body.array_specs) != len(values):
        raise invalid(f"{len(body.array_specs)} specs for {len(values)} arrays")
    types = [type_of(state, spec.dtype.kind, spec.shape.dims, spec.sharding) for spec in body.array_specs]
    made = moved(state, values, types, body.copy_semantics)
    reply.answer("reshard_arrays_response", array_handles=state.keep_all(body.result_handles, made))


def moved(
    state: SessionState, values: Sequence[ArrayValue], types: Sequence[ArrayType], semantics: int
) -> list[tuple[ArrayType, Ref, Memory]]:
    """These arrays as arrays of these types. What has its type already may stay in the same memory."""
    always, donate = semantics == ALWAYS_COPY, semantics == DONATE_INPUT
    copies, memory = [], list[Memory]()
    for value, target in zip(values, types, strict=True):
        _check_copy(value.type, target)
        if target.sharding == value.type.sharding and not always:
            memory.append(value.memory)
        else:
            copies.append(ArrayCopy(value.type, target, value.ref))
            strings = dtype_of(target.kind) is None
            memory.append(state.memory.take(nbytes_of(value.memory) if strings else bytes_of(target)))
    refs = iter(state.devices.copy(copies, always, donate))
    made = []
    for value, target, held in zip(values, types, memory, strict=True):
        stays = held is value.memory
        made.append((target, value.ref if stays else next(refs), held))
        if donate and not stays:
            release(value.memory)
    return made


def _check_copy(source: ArrayType, target: ArrayType) -> None:
    if (source.kind, source.shape) != (target.kind, target.shape):
        raise invalid(
            f"an array {name_of(source.kind)}{list(source.shape)} is not resharded to "
            f"{name_of(target.kind)}{list(target.shape)}: astype and reshape change that"
        )
    if source.sharding.cuts_as(target.sharding, source.shape):
        return
    if not (source.sharding.exact and target.sharding.exact):
        raise unsupported(
            "an array is not cut otherwise if its shards are parts of a sum, or if it is not known which device has "
            "which (the versions of jaxlib differ on the two sides of the door): reshard it in a jit"
        )
    if dtype_of(source.kind) is None:
        raise unsupported(f"arrays of {name_of(source.kind)} are not cut otherwise: put them with the other sharding")


def bitcast(state: SessionState, body: Any, reply: Reply) -> None:
    raise unsupported("arrays are not reinterpreted where they lie: jax.lax.bitcast_convert_type does it in a jit")


# --- the end ----------------------------------------------------------------------------------------------


def delete(state: SessionState, body: Any, reply: Reply) -> None:
    for held in state.arrays.there(list(body.array_handle)):
        state.devices.delete(held.ref)
        release(held.memory)
    reply.answer("delete_array_response", deletion_future_handle=state.keep_future(counted=False))


def is_deleted(state: SessionState, body: Any, reply: Reply) -> None:
    deleted = state.devices.is_deleted(state.arrays.get(body.array_handle).ref)
    reply.answer("is_array_deleted_response", deleted=deleted)


def destruct(state: SessionState, body: Any, reply: Reply) -> None:
    state.arrays.forget(list(body.array_handle))
    reply.answer("destruct_array_response")


OPERATIONS = (
    Operation(
        "make_array_from_host_buffer_request", make_from_host_buffer, ("array_handle",),
        needs=lambda body: (body.host_buffer_handle,),
    ),
    Operation(
        "make_arrays_from_host_buffer_shards_request", make_from_shards, ("array_handles",),
        needs=_shard_buffers,
    ),
    Operation("make_error_arrays_request", make_errors, ("array_handles",)),
    Operation("copy_arrays_request", copy, ("result_handles",)),
    Operation("reshard_arrays_request", reshard, ("result_handles",), executes=True),
    Operation("bitcast_arrays_request", bitcast, ("result_handles",)),
    Operation("delete_array_request", delete),
    Operation("is_array_deleted_request", is_deleted),
    Operation("destruct_array_request", destruct),
)  # fmt: skip
