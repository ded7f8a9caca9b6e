"""The first request, which tells a client what devices it has, and questions about devices."""

from collections.abc import Mapping
from typing import Any

from ...protocol import IfrtResponse
from ..reply import Operation, Reply
from ..session_devices import invalid
from ..session_state import SessionState

CLIENT_ATTRIBUTES = {"serialize_with_sdy": True, "supports_executable_serialization": False}
SESSION = "seaway_session"  # the attribute of devices by which our half of the client finds its session
PLATFORM_IDS = {"cpu": 1, "cuda": 2, "tpu": 3}


def init(state: SessionState, body: Any, reply: Reply) -> None:
    platform = state.devices.platform
    response = IfrtResponse()
    found = response.init_response
    found.session_id = state.session_id
    found.platform_name, found.platform_version = platform.name, platform.version
    found.platform_id = PLATFORM_IDS.get(platform.name, 0)
    found.runtime_type = platform.runtime
    for device in platform.devices:
        entry = found.all_devices.add(
            id=device.id, local_device_id=device.id, local_hardware_id=device.id, platform_name=platform.name,
            device_kind=device.kind, default_memory_id=device.default_memory, memory_ids=device.memories,
            debug_string=device.text, to_string=device.repr,
        )  # fmt: skip
        set_attributes(entry.attributes, {**device.attributes, SESSION: f"{state.session_id:x}"})
        found.primary_device_ids.append(device.id)
        found.addressable_device_ids.append(device.id)
    kinds = sorted({memory.kind for memory in platform.memories})
    for memory in platform.memories:
        found.memories.add(
            id=memory.id, memory_space_kind=memory.kind, kind_id=kinds.index(memory.kind),
            device_ids=memory.devices, debug_string=memory.text, to_string=memory.repr,
        )  # fmt: skip
    set_attributes(found.client_attributes, CLIENT_ATTRIBUTES)
    reply.ok(response)


def set_attributes(proto: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        entry = proto.attributes[name]
        if isinstance(value, bool):
            entry.bool_value = value
        elif isinstance(value, int):
            entry.int64_value = value
        elif isinstance(value, float):
            entry.float_value = value
        elif isinstance(value, tuple):
            entry.int64_list_value.elements.extend(value)
            entry.int64_list_value.SetInParent()
        else:
            entry.string_value = str(value).encode()


def default_device_assignment(state: SessionState, body: Any, reply: Reply) -> None:
    replicas, partitions = body.num_replicas, body.num_partitions
    if not 0 < replicas * partitions <= state.count:
        raise invalid(f"{replicas} replicas of {partitions} partitions do not fit on {state.count} devices")
    response = IfrtResponse()
    found = response.get_default_device_assignment_response.device_assignment
    found.replica_count, found.computation_count = replicas, partitions
    for partition in range(partitions):
        ids = [replica * partitions + partition for replica in range(replicas)]
        found.computation_devices.add(replica_device_ids=ids)
    reply.ok(response)


def default_layout(state: SessionState, body: Any, reply: Reply) -> None:
    shape = tuple(body.dims)
    if not 0 <= body.device_id < state.count or any(dim < 0 for dim in shape):
        raise invalid(f"device {body.device_id} or shape {list(shape)} is not one that this session can have")
    text = state.devices.default_layout(body.dtype.kind, shape, body.device_id, body.memory_kind)
    reply.answer("get_default_layout_response", serialized_pjrt_layout=text.encode())


OPERATIONS = (
    Operation("init_request", init),
    Operation("get_default_device_assignment_request", default_device_assignment),
    Operation("get_default_layout_request", default_layout),
)
