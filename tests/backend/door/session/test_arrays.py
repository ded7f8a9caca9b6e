"""Arrays: views on host buffers, shards together and apart, relabelled, elsewhere; and what a client may get wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.door.protocol.ifrt_messages import (
    DTYPES,
    STRING,
    ByteStrides,
    DTypeProto,
    ShapeProto,
    StringArrayContents,
    dtype_of,
)
from backend.door.session.ops.array_arguments import host_view
from backend.door.session.session_devices import StatusError
from backend.door.session.session_state import SessionLimits

from ..session_rig import F32, SessionRig, replicated, single, tiled

# --- views on host buffers ---------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 4), max_size=4), st.randoms(use_true_random=False), st.sampled_from(sorted(DTYPES)))
def test_any_dense_order_of_dimensions_is_read_as_it_was_written(shape: list[int], random: Any, kind: int) -> None:
    dtype = dtype_of(kind)
    assert dtype is not None
    order = random.sample(range(len(shape)), len(shape))
    whole = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    laid = np.ascontiguousarray(whole.transpose(order)) if shape else whole
    strides = [laid.strides[order.index(dim)] for dim in range(len(shape))]
    found = host_view(laid.tobytes(), kind, tuple(shape), strides)
    np.testing.assert_array_equal(found.astype(np.complex128), whole.astype(np.complex128))


@given(
    st.binary(max_size=64),
    st.lists(st.integers(0, 1 << 40), max_size=4),
    st.lists(st.integers(-(1 << 40), 1 << 40), max_size=4) | st.none(),
    st.sampled_from([1, 2, F32, 12, 21, 99, 1000]),
)
def test_no_view_reaches_beyond_its_buffer_or_is_larger(
    data: bytes, shape: list[int], strides: list[int] | None, kind: int
) -> None:
    try:
        found = host_view(data, kind, tuple(shape), strides)
    except StatusError:
        return
    assert found.shape == tuple(shape)
    if found.size and kind != STRING:
        low, high = np.lib.array_utils.byte_bounds(found)
        assert high - low <= len(data)
        assert found.nbytes <= len(data)
        found.copy()  # reads every element


@pytest.mark.parametrize(
    ("shape", "strides", "says"),
    [
        ((3,), None, "3 elements of f32 are more than the 8 bytes"),
        ((2,), (8,), "reach 12 bytes"),
        ((2,), (-4,), "have to be positive"),
        ((2,), (0,), "have to be positive"),
        ((2,), (4, 4), "2 strides do not fit a shape of 1 dimensions"),
        ((1 << 62, 1 << 62), None, "is not a shape"),
        ((-1,), None, "is not a shape"),
    ],
)
def test_shapes_and_strides_that_do_not_fit_are_refused(
    shape: Sequence[int], strides: Sequence[int] | None, says: str
) -> None:
    rig = SessionRig()
    rig.session.store(1, b"\0" * 8)
    assert says in rig.status(rig.make(1, shape, single(), strides))
    assert rig.devices.log == []


def test_strides_of_dimensions_of_size_one_mean_nothing() -> None:
    rig = SessionRig()
    rig.session.store(1, np.array([1, 2], np.float32).tobytes())
    rig.make(1, (1, 2), single(), (-999, 4))
    assert rig.contents(1) == [1, 2]


def test_elements_of_less_than_a_byte_take_one() -> None:
    kind = DTypeProto.KIND_S4
    found = host_view(bytes([1, 7, 15]), kind, (3,), None)
    assert (found.astype(int).tolist(), found.dtype) == ([1, 7, -1], dtype_of(kind))


def test_strings_are_a_message() -> None:
    data = StringArrayContents(strings=[b"a", "\u00e9".encode()]).SerializeToString()
    assert host_view(data, STRING, (2,), None).tolist() == ["a", "\u00e9"]
    with pytest.raises(StatusError, match="2 strings do not fit"):
        host_view(data, STRING, (3,), None)
    with pytest.raises(StatusError, match="cannot be read"):
        host_view(b"\xff\xff", STRING, (3,), None)


# --- shards -----------------------------------------------------------------------------------------------


def from_shards(
    rig: SessionRig, handle: int, shape: Sequence[int], sharding: Any,
    buffers: Sequence[tuple[int, Sequence[int], Sequence[int]]], kind: int = F32,
) -> int:  # fmt: skip
    """`buffers`: handle, shape, and the shards that it is."""
    request = rig.request(1000 + handle)
    body = request.make_arrays_from_host_buffer_shards_request
    body.array_handles.append(handle)
    spec = body.specs.add()
    spec.array_spec.dtype.kind = F32
    spec.array_spec.shape.dims.extend(shape)
    spec.array_spec.sharding.CopyFrom(sharding)
    for buffer, dims, indices in buffers:
        spec.addressable_shard_indices.add(indices=indices)
        each = spec.host_buffers.add(host_buffer_handle=buffer)
        each.dtype.kind = kind
        each.shape.dims.extend(dims)
    return rig.receive(request)


def floats(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


def test_shards_come_in_any_order_and_one_buffer_may_be_several() -> None:
    rig = SessionRig()
    rig.session.store(1, floats(1, 2))
    rig.session.store(2, floats(3, 4))
    assert rig.status(from_shards(rig, 5, (4,), tiled([2], [3, 1]), [(2, (2,), [1]), (1, (2,), [0])])) == "ok"
    rig.session.store(9, floats(7))
    assert rig.status(from_shards(rig, 6, (1,), replicated([0, 1, 2]), [(9, (1,), [0, 1, 2])])) == "ok"
    rig.ask("disassemble_into_single_device_arrays", array_handle=5, result_handles=[10, 11])
    assert [rig.contents(10), rig.contents(11)] == [[1, 2], [3, 4]]
    rig.ask("fully_replicated_shard", array_handle=6, result_handle=12)
    assert rig.contents(12) == [7]
    assert rig.devices.log == ["put [4] on [3, 1]", "put [1] on [0, 1, 2]"]


@pytest.mark.parametrize(
    ("buffers", "kind", "says"),
    [
        ([(1, (2,), [0])], F32, "not every shard of an array has contents"),
        ([(1, (2,), [0]), (2, (2,), [0])], F32, "shard 0 of an array of 2 shards does not exist, or is given twice"),
        ([(1, (2,), [0]), (2, (2,), [2])], F32, "shard 2 of an array of 2 shards does not exist"),
        ([(1, (2,), [0]), (2, (2,), [-1])], F32, "shard -1 of an array of 2 shards does not exist"),
        ([(1, (1,), [0]), (2, (2,), [1])], F32, "a shard of f32[1] is none of an array whose shards are f32[2]"),
        ([(1, (2,), [0]), (2, (2,), [1])], 12, "a shard of f64[2] is none of an array whose shards are f32[2]"),
    ],
)
def test_shards_that_do_not_make_the_array_are_refused(buffers: Any, kind: int, says: str) -> None:
    rig = SessionRig()
    rig.session.store(1, floats(1, 2))
    rig.session.store(2, floats(3, 4))
    assert says in rig.status(from_shards(rig, 5, (4,), tiled([2], [0, 1]), buffers, kind))
    assert rig.devices.log == []
    assert says in rig.status(rig.ask("check_value_ready", value_handles=[5]))


def test_arrays_of_one_device_are_put_together_in_the_shardings_order() -> None:
    rig = SessionRig()
    rig.array(1, (1, 2), device=2)
    rig.array(2, (3, 4), device=0)
    made = {"shape": {"dims": [4]}, "single_device_array_handles": [1, 2], "result_handle": 5}
    assert rig.status(assemble(rig, tiled([2], [2, 0]), **made)) == "ok"
    rig.ask("disassemble_into_single_device_arrays", array_handle=5, result_handles=[10, 11])
    assert [rig.contents(10), rig.contents(11)] == [[1, 2], [3, 4]]


def assemble(rig: SessionRig, sharding: Any, shape: Any, **fields: Any) -> int:
    return rig.ask("assemble_array_from_single_device_arrays", sharding=sharding, shape=ShapeProto(**shape), **fields)


@pytest.mark.parametrize(
    ("sharding", "dims", "parts", "says"),
    [
        (tiled([2], [0, 1]), [4], [1, 2], "an array on (2,) cannot be the shard of device 0"),
        (tiled([2], [2, 0]), [4], [1], "1 arrays cannot be the shards of an array on 2 devices"),
        (tiled([2], [2, 0]), [8], [1, 2], "cannot be a shard of an array whose shards are f32[4]"),
        (tiled([2], [2, 0]), [3], [1, 2], "cannot be cut into [2] equal shards"),
    ],
)
def test_arrays_that_are_not_the_shards_are_refused(sharding: Any, dims: Any, parts: Any, says: str) -> None:
    rig = SessionRig()
    rig.array(1, (1, 2), device=2)
    rig.array(2, (3, 4), device=0)
    made = assemble(rig, sharding, {"dims": dims}, single_device_array_handles=parts, result_handle=5)
    assert says in rig.status(made)


def test_reading_several_devices_at_once_and_taking_apart_into_too_few_are_refused() -> None:
    rig = SessionRig()
    rig.session.store(1, floats(1, 2))
    rig.make(1, (2,), replicated([0, 1]))
    assert "take it apart first" in rig.status(rig.read(1))
    apart = rig.ask("disassemble_into_single_device_arrays", array_handle=1, result_handles=[5])
    assert "1 handles for 2 arrays" in rig.status(apart)


# --- relabelled -------------------------------------------------------------------------------------------


def remap(rig: SessionRig, array: int, result: int, shape: Sequence[int], sharding: Any, **plan: Any) -> int:
    request = rig.request()
    body = request.remap_arrays_request
    body.array_handles.append(array)
    body.result_handles.append(result)
    for specs in (body.plan.input_specs, body.plan.output_specs):
        spec = specs.add()
        spec.dtype.kind = F32
        spec.shape.dims.extend(shape)
        spec.sharding.CopyFrom(sharding)
    if "mapping" in plan:
        names = ("from_start", "from_end", "from_step", "to_start", "to_end", "to_step")
        body.plan.mappings.add(**{name: [value] for name, value in zip(names, plan["mapping"], strict=True)})
    else:
        each = body.plan.input_devices_for_output.add()
        each.input_devices.add().device_list.device_ids.extend(plan["devices"])
    return rig.receive(request)


def two_shards() -> SessionRig:
    rig = SessionRig()
    rig.session.store(1, floats(1, 2))
    rig.session.store(2, floats(3, 4))
    from_shards(rig, 1, (4,), tiled([2], [0, 1]), [(1, (2,), [0]), (2, (2,), [1])])
    return rig


@pytest.mark.parametrize("plan", [{"mapping": (0, 2, 1, 0, 2, 1)}, {"devices": [0, 1]}])
def test_both_versions_relabel_shards(plan: Any) -> None:
    rig = two_shards()
    assert rig.status(remap(rig, 1, 5, (4,), tiled([2], [0, 1]), **plan)) == "ok"
    rig.ask("disassemble_into_single_device_arrays", array_handle=5, result_handles=[10, 11])
    assert [rig.contents(10), rig.contents(11)] == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({"mapping": (0, 1, 1, 0, 1, 1)}, "1 arrays cannot be the shards"),
        ({"mapping": (0, 2, 1, 1, 3, 1)}, "names a shard that does not exist"),
        ({"mapping": (5, 7, 1, 0, 2, 1)}, "names a shard that does not exist"),
        ({"mapping": (-2, 0, 1, 0, 2, 1)}, "makes no sense"),
        ({"mapping": (0, 2, 0, 0, 2, 1)}, "makes no sense"),
        ({"mapping": (0, 1 << 40, 1, 0, 1 << 40, 1)}, "makes no sense"),
        ({"mapping": (0, 2, 1, 1, -1, 1)}, "1 arrays|0 arrays|shards"),
        ({"devices": [3]}, "device 3, which the result does not have"),
        ({"devices": [0]}, "1 arrays cannot be the shards"),
    ],
)
def test_plans_that_make_no_sense_are_refused(plan: Any, says: str) -> None:
    rig = two_shards()
    status = rig.status(remap(rig, 1, 5, (4,), tiled([2], [0, 1]), **plan))
    assert any(part in status for part in says.split("|")), status


# --- elsewhere, and the end -------------------------------------------------------------------------------


def test_copies_are_shard_for_shard() -> None:
    rig = two_shards()
    assert rig.status(rig.ask("copy_arrays", array_handles=[1], device_ids=[3, 2], result_handles=[5])) == "ok"
    rig.ask("copy_arrays", array_handles=[1], device_ids=[0, 1], result_handles=[6], copy_semantics=1)
    assert rig.devices.log[-2:] == ["copy [4] to [3, 2]", "copy [4] to [0, 1] always"]


@pytest.mark.parametrize("devices", [[0], [0, 9], [0, 0], [-1, 0]])
def test_copies_to_devices_that_do_not_fit_are_refused(devices: list[int]) -> None:
    rig = two_shards()
    copy = rig.ask("copy_arrays", array_handles=[1], device_ids=devices, result_handles=[5])
    assert rig.status(copy).startswith("INVALID_ARGUMENT")
    assert rig.devices.log == ["put [4] on [0, 1]"]


def test_deleting_frees_and_the_handle_lives_on_until_it_is_destructed() -> None:
    rig = SessionRig()
    rig.array(1)
    assert not rig.answer(rig.ask("is_array_deleted", array_handle=1)).is_array_deleted_response.deleted
    rig.ask("delete_array", array_handle=[1, 77])
    assert rig.answer(rig.ask("is_array_deleted", array_handle=1)).is_array_deleted_response.deleted
    rig.ask("destruct_array", array_handle=[1])
    assert "there is no array 1" in rig.status(rig.ask("is_array_deleted", array_handle=1))


def test_contents_are_read_in_the_order_that_strides_ask_for() -> None:
    rig = SessionRig()
    rig.session.store(1, np.arange(6, dtype=np.float32).tobytes())
    rig.make(1, (2, 3), single())
    read = rig.ask(
        "copy_to_host_buffer", array_handle=1, host_buffer_handle=7, byte_strides=ByteStrides(strides=[4, 8])
    )
    assert rig.status(read) == "ok"
    found = rig.session.lookup(7)
    assert found is not None
    assert np.frombuffer(found, np.float32).tolist() == [0, 3, 1, 4, 2, 5]
    gaps = rig.ask(
        "copy_to_host_buffer", array_handle=1, host_buffer_handle=8, byte_strides=ByteStrides(strides=[100, 8])
    )
    assert "is not read with gaps" in rig.status(gaps)


def test_an_empty_array_has_a_buffer_of_no_bytes() -> None:
    rig = SessionRig()
    rig.session.store(1, b"")
    rig.make(1, (0, 3), single())
    assert rig.contents(1) == []


# --- bounds -----------------------------------------------------------------------------------------------


def test_arrays_are_bounded_and_destructing_makes_room() -> None:
    rig = SessionRig(limits=SessionLimits(arrays=2))
    rig.array(1)
    rig.array(2)
    assert "a session may have 2 arrays" in rig.status(rig.array(3))
    rig.ask("destruct_array", array_handle=[1])
    assert rig.status(rig.array(4)) == "ok"


def test_host_buffers_that_nobody_asks_for_are_bounded_and_end_the_session() -> None:
    rig = SessionRig(limits=SessionLimits(host_bytes=10))
    rig.session.store(1, b"\0" * 8)
    rig.make(1, (2,), single())
    rig.session.store(2, b"\0" * 8)
    assert rig.ended() == ""
    rig.session.store(3, b"\0" * 8)
    assert "may have" in rig.ended()


def test_contents_that_nobody_fetches_are_bounded() -> None:
    rig = SessionRig(limits=SessionLimits(host_bytes=10))
    rig.array(1)
    assert rig.status(rig.read(1, 7)) == "ok"
    assert "RESOURCE_EXHAUSTED" in rig.status(rig.read(1, 8))
    rig.session.forget(7)
    assert rig.status(rig.read(1, 8)) == "ok"
