"""Compile options: what is allowed is passed on, and nothing else, whatever a client's XLA flags are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend import xla
from backend.door.protocol.ifrt_messages import CompileOptionsProto, XlaCompileOptionsProto
from backend.door.session.ops.executables import safe_options
from backend.door.session.session_devices import StatusError
from backend.xla.compile_options import OF_THE_MACHINE

from ..session_rig import SessionRig, compile_options
from ..wheel_descriptors import wheel_files


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
    both = options + more
    hostile = b"\x0a" + bytes([len(both)]) + both
    assert xla.flags_of(both) == {(109, b"/tmp/dumps")}
    data, devices = safe_options(hostile, 1)
    assert devices == (0,)
    assert b"/tmp/dumps" not in data
    assert CompileOptionsProto.FromString(data) == kept(inner, 1)


def test_flags_of_speed_are_passed_on_and_unknown_ones_refused() -> None:
    options = XlaCompileOptionsProto.FromString(compile_options((0,)))
    flags = options.compile_options.env_option_overrides
    flags["xla_embed_ir_in_executable"].bool_field = True
    assert list(kept(options.SerializeToString()).env_option_overrides) == ["xla_embed_ir_in_executable"]
    for name, says in (
        ("invalid_key", "No such compile option: 'invalid_key'"),
        ("xla_dump_to", "the compile option 'xla_dump_to' is not passed on: .* Leave it out, or give it to the door"),
        ("xla_no_such_flag", "the compile option 'xla_no_such_flag' is not passed on"),
        ("xla_" + "x" * 1000, "'xla_x{76}' is not"),
    ):
        flags[name].string_field = "x"
        with pytest.raises(StatusError, match=says):
            kept(options.SerializeToString())
        del flags[name]


def with_flags(options: bytes, debug: bytes) -> bytes:
    """The same options with these serialized DebugOptions."""
    inner = XlaCompileOptionsProto.FromString(options).compile_options.SerializeToString()
    build = b"\x1a" + bytes([len(debug)]) + debug
    both = inner + b"\x1a" + bytes([len(build)]) + build
    return bytes(b"\x0a" + bytes([len(both)]) + both)


@pytest.mark.parametrize(
    ("debug", "serdes", "warns"),
    [
        (b"\x98\x06\x01", 6, True),  # field 99 is 1
        (b"\x98\x06\x00", 6, False),
        (b"\x98\x06\x00\xb0\x06\x08", 6, False),  # and field 102, the number of CPU devices, is 8
        (b"\x98\x06\x01", 3, False),  # a client of another version has other flags
        (b"\xff\xff", 6, False),
        (b"\x9b\x06\x9c\x06", 6, False),  # field 99 is a group, as it never is
    ],
)
def test_flags_of_the_client_s_environment_are_a_warning_once_a_session(
    debug: bytes, serdes: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    rig = SessionRig(flags=frozenset({(99, 0)}), serdes=serdes)
    for _ in range(2):
        rig.compile(compile_options__data=with_flags(compile_options(), debug))
    said = [each for each in caplog.messages if "XLA flags" in each]
    assert len(said) == warns
    assert all("differ in fields 99 of xla.DebugOptions" in each for each in said)


def test_what_is_not_compared_is_the_machine_and_what_jax_sets() -> None:
    file = wheel_files()["xla/xla.proto"]
    (options,) = (each for each in file.message_type if each.name == "DebugOptions")
    names = {each.number: each.name for each in options.field}
    assert {names[number] for number in OF_THE_MACHINE} == {
        "xla_gpu_cuda_data_dir", "xla_force_host_platform_device_count", "xla_detailed_logging",
        "xla_gpu_kernel_cache_file", "xla_gpu_per_fusion_autotune_cache_dir",
    }  # fmt: skip


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
