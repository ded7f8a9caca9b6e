"""A session without sockets: requests go in as bytes, answers come out as lines of text that read like an exchange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from backend.door.protocol.ifrt_messages import (
    DTypeProto,
    HloShardingProto,
    IfrtRequest,
    IfrtResponse,
    OpSharding,
    ShardingProto,
    SingleDeviceShardingProto,
    StatusCode,
    XlaCompileOptionsProto,
)
from backend.door.session.door_session import DoorSession
from backend.door.session.session_port import Version
from backend.door.session.session_state import SessionLimits

from .fake_devices import FakeDevices

F32 = DTypeProto.KIND_F32


def named(type_name: str, message: Any) -> Any:
    found = ShardingProto()
    found.serialized_sharding.type_name = f"xla::ifrt::{type_name}"
    found.serialized_sharding.data = message.SerializeToString()
    return found


def single(device: int = 0, kind: str | None = None) -> Any:
    return named("SingleDeviceSharding", SingleDeviceShardingProto(device_id=device, memory_kind=kind))


def tiled(grid: Sequence[int], devices: Sequence[int], **more: Any) -> Any:
    op = OpSharding(type=OpSharding.OTHER, tile_assignment_dimensions=grid, iota_reshape_dims=[len(devices)])
    op.iota_transpose_perm.append(0)
    for name, value in more.items():
        op.ClearField(name)
        if isinstance(value, list):
            getattr(op, name).extend(value)
        else:
            setattr(op, name, value)
    proto = HloShardingProto(xla_op_sharding=op)
    proto.devices.device_ids.extend(devices)
    return named("HloSharding", proto)


def replicated(devices: Sequence[int]) -> Any:
    proto = HloShardingProto(xla_op_sharding=OpSharding(type=OpSharding.REPLICATED))
    proto.devices.device_ids.extend(devices)
    return named("HloSharding", proto)


def compile_options(devices: Sequence[int] = (0,)) -> bytes:
    options = XlaCompileOptionsProto()
    build = options.compile_options.executable_build_options
    build.num_replicas, build.num_partitions = 1, len(devices)
    build.device_assignment.replica_count = 1
    build.device_assignment.computation_count = len(devices)
    for device in devices:
        build.device_assignment.computation_devices.add(replica_device_ids=[device])
    return bytes(options.SerializeToString())


class SessionRig:
    """The link of a session, and its client: `sent` are the answers, `closed` how the stream was ended."""

    session_id = 0x5EA

    def __init__(self, *, limits: SessionLimits | None = None, serdes: int = 6, **devices: Any) -> None:
        self.devices = FakeDevices(**devices)
        self.sent: list[Any] = []
        self.closed: tuple[int, str] | None = None
        self.resumed = 0
        self.session = DoorSession(Version(25, serdes), self, limits or SessionLimits(), self.devices)
        self._op = 0

    # --- SessionLink ---------------------------------------------------------------------------------------

    def send(self, response: bytes) -> None:
        self.sent.append(IfrtResponse.FromString(response))

    def close(self, code: int, text: str) -> None:
        self.closed = code, text

    def resume(self) -> None:
        self.resumed += 1

    def busy(self) -> bool:
        return self.session.busy

    def ended(self) -> str:
        """How the session ended its stream; "": it did not."""
        return "" if self.closed is None else f"{StatusCode.Name(self.closed[0])}: {self.closed[1]}"

    # --- requests ------------------------------------------------------------------------------------------

    def request(self, number: int = 0) -> Any:
        """A request with this number, or the next one."""
        self._op += not number
        request = IfrtRequest()
        request.request_metadata.op_id = number or self._op
        return request

    def receive(self, request: Any) -> int:
        """The session gets it. Returns its number."""
        self.session.receive(request.SerializeToString())
        return int(request.request_metadata.op_id)

    def ask(self, name: str, context: int = 0, **fields: Any) -> int:
        """Sends a request; returns its number. A list sets a repeated field, a message is copied."""
        request = self.request()
        request.request_metadata.user_context_id = context
        body = getattr(request, f"{name}_request")
        body.SetInParent()
        for field, value in fields.items():
            if isinstance(value, list | tuple):
                getattr(body, field).extend(value)
            elif hasattr(value, "SerializeToString"):
                getattr(body, field).CopyFrom(value)
            else:
                setattr(body, field, value)
        return self.receive(request)

    def array(self, handle: int, contents: Sequence[float] = (1, 2), device: int = 0, **more: Any) -> int:
        """Stores a host buffer, and makes an array of it."""
        data = np.array(contents, np.float32)
        self.session.store(handle, data.tobytes())
        return self.make(handle, data.shape, single(device), **more)

    def make(self, handle: int, shape: Sequence[int], sharding: Any, strides: Sequence[int] | None = None) -> int:
        request = self.request()
        body = request.make_array_from_host_buffer_request
        body.dtype.kind = F32
        body.shape.SetInParent()
        body.shape.dims.extend(shape)
        body.sharding.CopyFrom(sharding)
        body.host_buffer_handle = body.array_handle = handle
        if strides is not None:
            body.byte_strides.SetInParent()
            body.byte_strides.strides.extend(strides)
        return self.receive(request)

    def compile(self, program: bytes = b"one_more", devices: Sequence[int] = (0,), **more: Any) -> int:
        """Compiles a program of the fake; returns the executable's handle, 0 if there is no answer yet."""
        request = self.request()
        body = request.compile_request
        body.program.type_name, body.program.data = "xla::ifrt::XlaProgram", program
        body.compile_options.type_name = "xla::ifrt::XlaCompileOptions"
        body.compile_options.data = compile_options(devices)
        for name, value in more.items():
            target, _, field = name.partition("__")
            if field:
                setattr(getattr(body, target), field, value)
            else:
                getattr(body, target).extend(value)
        found = self.answer(self.receive(request))
        return 0 if found is None else int(found.compile_response.loaded_executable_handle)

    def execute(self, executable: int, arguments: Sequence[int], results: Sequence[int] = (), **options: Any) -> int:
        request = self.request()
        body = request.loaded_executable_execute_request
        body.loaded_executable_handle = executable
        body.args_handles.extend(arguments)
        body.result_array_handle.extend(results)
        for name, value in options.items():
            if isinstance(value, list):
                getattr(body.execute_options, name).extend(value)
            elif name == "result_status_handle":
                body.result_status_handle = value
            else:
                setattr(body.execute_options, name, value)
        return self.receive(request)

    def read(self, array: int, buffer: int = 7000) -> int:
        return self.ask("copy_to_host_buffer", array_handle=array, host_buffer_handle=buffer)

    def contents(self, array: int, buffer: int = 7000) -> list[float]:
        """What an array of one device holds, read as a client reads it."""
        assert self.status(self.read(array, buffer)) == "ok"
        data = self.session.lookup(buffer)
        assert data is not None
        self.session.forget(buffer)
        found: list[float] = np.frombuffer(data, np.float32).tolist()
        return found

    # --- answers -------------------------------------------------------------------------------------------

    def answer(self, op: int) -> Any:
        return next((each for each in self.sent if each.response_metadata.op_id == op), None)

    def status(self, op: int) -> str:
        """ "ok", "CODE: text", or "-": there is no answer yet."""
        found = self.answer(op)
        if found is None:
            return "-"
        status = found.response_metadata.status
        return f"{StatusCode.Name(status.code)}: {status.message}" if status.code else "ok"

    def lines(self) -> list[str]:
        """All answers, a line each: number, what it answers, its sequence number."""
        found = []
        for each in self.sent:
            about, body = each.response_metadata, each.WhichOneof("response")
            what = body.removesuffix("_response") if body else StatusCode.Name(about.status.code)
            found.append(f"{about.op_id} {what} #{about.seq_num}" if body else f"{about.op_id} {what}")
        return found
