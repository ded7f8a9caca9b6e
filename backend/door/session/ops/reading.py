"""Waiting for arrays, and their contents, which a client fetches from a host buffer after the answer."""

from functools import partial
from typing import Any

import numpy as np

from ...protocol import STRING, StringArrayContents, name_of
from ..reply import Operation, Reply
from ..session_devices import StatusError, invalid, unsupported
from ..session_state import SessionState


def check_value_ready(state: SessionState, body: Any, reply: Reply) -> None:
    refs = [ref for held in state.arrays.named(list(body.value_handles)) for ref in held.waits()]
    state.devices.when_ready(refs, partial(_ready, reply, "check_value_ready_response"))


def _ready(reply: Reply, body: str, fault: StatusError | None) -> None:
    if fault is None:
        reply.answer(body)
    else:
        reply.fault(fault)


def check_future(state: SessionState, body: Any, reply: Reply) -> None:
    counted = state.futures.pop(body.future_handle, None)
    if counted is None:
        raise invalid(f"there is no future {body.future_handle}, or it has been asked for before")
    reply.counted = counted
    reply.answer("check_future_response")


def copy_to_host_buffer(state: SessionState, body: Any, reply: Reply) -> None:
    value = state.arrays.get(body.array_handle)
    if len(value.type.sharding.devices) != 1:
        raise invalid("only arrays of one device are copied to a host buffer: take it apart first")
    strides = tuple(body.byte_strides.strides) if body.HasField("byte_strides") else None
    done = partial(_fetched, state, reply, body.host_buffer_handle, value.type.kind, strides)
    state.devices.fetch(value.ref, done)


def _fetched(
    state: SessionState, reply: Reply, handle: int, kind: int, strides: tuple[int, ...] | None,
    contents: np.ndarray[Any, Any] | StatusError,
) -> None:  # fmt: skip
    if state.over:
        return
    if isinstance(contents, StatusError):  # raised, it would keep this frame, those below, and their arrays
        reply.fault(contents)
        return
    try:
        state.outgoing.put(handle, _as_bytes(contents, kind, strides))
    except StatusError as fault:
        reply.fault(fault)
        return
    reply.answer("copy_to_host_buffer_response")


def _as_bytes(contents: np.ndarray[Any, Any], kind: int, strides: tuple[int, ...] | None) -> bytes | memoryview:
    if kind == STRING:
        strings = [str(each).encode() for each in contents.reshape(-1)]
        return bytes(StringArrayContents(strings=strings).SerializeToString())
    if strides is not None:
        contents = _strided(contents, kind, strides)
    flat = np.ascontiguousarray(contents).reshape(-1)
    return flat.view(np.uint8).data if flat.size else b""


def _strided(contents: np.ndarray[Any, Any], kind: int, strides: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The elements in the order of these strides, if they are dense: one for each order of the dimensions."""
    if len(strides) != contents.ndim:
        raise invalid(f"{len(strides)} strides do not fit an array of {contents.ndim} dimensions")
    order = sorted(range(contents.ndim), key=lambda dim: (-strides[dim], dim))
    turned = np.ascontiguousarray(contents.transpose(order))
    long = [at for at, dim in enumerate(order) if contents.shape[dim] > 1]
    if turned.size and any(turned.strides[at] != strides[order[at]] for at in long):
        raise unsupported(f"an array of {name_of(kind)}{list(contents.shape)} is not read with gaps: {list(strides)}")
    return turned


OPERATIONS = (
    Operation("check_value_ready_request", check_value_ready),
    Operation("check_future_request", check_future),
    Operation("copy_to_host_buffer_request", copy_to_host_buffer),
)
