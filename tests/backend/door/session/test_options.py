"""Compile options: what is allowed is passed on, and nothing else, whatever a client's XLA flags are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.door.protocol.ifrt_messages import CompileOptionsProto, XlaCompileOptionsProto
from backend.door.session.ops.executables import safe_options
from backend.door.session.session_devices import StatusError

from ..session_rig import compile_options


def kept(data: bytes, known: int = 4) -> Any:
    return CompileOptionsProto.FromString(safe_options(data, known)[0])


def test_what_programs_need_is_passed_on() -> None:
    options = XlaCompileOptionsProto.FromString(compile_options((1, 0)))
    build = options.compile_options.executable_build_options
    build.use_spmd_partitioning = build.use_shardy_partitioner = True
    build.allow_spmd_sharding_propagation_to_output.extend([True, False])
    options.compile_options.profile_version = 3
    shape = options.compile_options.argument_layouts.add(element_type=11, dimensions=[2, 3])
    shape.layout.minor_to_major.extend([0, 1])
    data, devices = safe_options(options.SerializeToString(), 2)
    assert CompileOptionsProto.FromString(data) == options.compile_options
    assert devices == (1, 0)


def test_flags_that_write_files_are_left_out() -> None:
    """debug_options is field 3 of executable_build_options, which is field 3; the door's messages do not have it."""
    inner = compile_options((0,))
    options = XlaCompileOptionsProto.FromString(inner).compile_options.SerializeToString()
    dump = b"\xea\x06\x0a/tmp/dumps"  # DebugOptions.xla_dump_to = 109
    build = b"\x1a" + bytes([len(dump)]) + dump
    more = b"\x1a" + bytes([len(build)]) + build
    overrides = b"\x3a\x1c\x0a\x0bxla_dump_to\x12\x0d\x0a\x0b/tmp/others"  # env_option_overrides
    both = options + more + overrides
    hostile = b"\x0a" + bytes([len(both)]) + both
    parsed = XlaCompileOptionsProto.FromString(hostile).compile_options
    assert parsed.env_option_overrides["xla_dump_to"].string_field == "/tmp/others"
    data, devices = safe_options(hostile, 1)
    assert devices == (0,)
    assert b"/tmp/dumps" not in data
    assert b"/tmp/others" not in data
    assert CompileOptionsProto.FromString(data) == kept(inner, 1)


def test_flags_of_speed_are_passed_on_and_unknown_ones_refused() -> None:
    options = XlaCompileOptionsProto.FromString(compile_options((0,)))
    flags = options.compile_options.env_option_overrides
    flags["xla_embed_ir_in_executable"].bool_field = True
    flags["xla_gpu_cuda_data_dir"].string_field = "/somewhere"
    assert list(kept(options.SerializeToString()).env_option_overrides) == ["xla_embed_ir_in_executable"]
    flags["invalid_key"].string_field = "x"
    with pytest.raises(StatusError, match="No such compile option: 'invalid_key'"):
        kept(options.SerializeToString())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda build: build.ClearField("device_assignment"), "no device assignment"),
        (lambda build: setattr(build, "num_partitions", 3), "1 replicas and 3 partitions"),
        (lambda build: setattr(build.device_assignment, "replica_count", 2), "its device assignment has 2 and 2"),
        (lambda build: build.device_assignment.computation_devices.add(), "does not have a device for each"),
        (lambda build: _set(build, 0, 4), "device 4 is not one of this session's: they are 0 to 3"),
        (lambda build: _set(build, 0, -1), "device -1 is not one"),
        (lambda build: _set(build, 0, 1), "names a device twice"),
        (lambda build: build.result_layout.layout.minor_to_major.append(1), "the layout [1] is not one of 0"),
        (lambda build: _nest(build.result_layout, 5), "nested too deeply"),
        (lambda build: build.result_layout.dimensions.append(-5), "a negative dimension"),
    ],
)
def test_what_makes_no_sense_is_refused(change: Any, says: str) -> None:
    options = XlaCompileOptionsProto.FromString(compile_options((0, 1)))
    change(options.compile_options.executable_build_options)
    with pytest.raises(StatusError) as raised:
        safe_options(options.SerializeToString(), 4)
    assert says in raised.value.text


def _set(build: Any, row: int, device: int) -> None:
    build.device_assignment.computation_devices[row].replica_device_ids[0] = device


def _nest(shape: Any, depth: int) -> None:
    for _ in range(depth):
        shape = shape.tuple_shapes.add()


@given(st.binary(max_size=60))
def test_hostile_bytes_are_refused_or_name_the_sessions_devices(data: bytes) -> None:
    try:
        _, devices = safe_options(data, 4)
    except StatusError:
        return
    assert set(devices) <= set(range(4))
