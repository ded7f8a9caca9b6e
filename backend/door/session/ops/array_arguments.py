"""What requests say of arrays, checked: shardings, types, and views on host buffers.

Shapes, strides and indices come from the client, for views on its bytes. Neighbours: `array_requests`, `array_shards`.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from ...protocol import (
    STRING,
    CompactLayoutProto,
    ShardingError,
    ShardSpec,
    StringArrayContents,
    dtype_of,
    ifrt_shardings,
    name_of,
)
from ..session_devices import ArrayType, invalid, unsupported
from ..session_state import SessionState

LARGEST = 1 << 62  # elements


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
        raise invalid(f"an array of shape {list(shape)} cannot be cut into {list(spec.tiles.grid)} equal shards")
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
        raise invalid(f"{count} elements of {name_of(kind)} are more than the {there} bytes of the host buffer")
    if strides is None:
        return np.ndarray(shape, dtype, data)
    if any(stride <= 0 for dim, stride in zip(shape, strides, strict=True) if dim > 1):
        raise invalid(f"the strides {list(strides)} of a host buffer have to be positive: np.ascontiguousarray helps")
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


def strides_of(body: Any) -> list[int] | None:
    return list(body.byte_strides.strides) if body.HasField("byte_strides") else None


def check_layout(layout: Any, rank: int) -> None:
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
