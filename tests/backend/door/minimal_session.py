"""A session that answers Init with CPU devices that compute nothing, keeps host buffers, and logs its calls."""

from __future__ import annotations

from backend.door.protocol.ifrt_messages import IfrtRequest, IfrtResponse
from backend.door.session.session_callbacks import SessionCallbacks
from backend.door.session.session_port import SessionLink, Version

UNIMPLEMENTED = 12


class MinimalSession:
    """`log`: what the transport called, in order."""

    busy = False

    def __init__(self, version: Version, link: SessionLink, devices: int = 2) -> None:
        self.version, self.link, self.devices = version, link, devices
        self.log: list[tuple[str, object]] = []
        self.callbacks = SessionCallbacks()
        self.buffers: dict[int, bytes] = {}

    def receive(self, request: bytes) -> None:
        asked = IfrtRequest.FromString(request)
        self.log.append(("receive", asked.WhichOneof("request")))
        answer = IfrtResponse()
        answer.response_metadata.op_id = asked.request_metadata.op_id
        if asked.HasField("init_request"):
            self._init(answer.init_response)
        else:
            answer.response_metadata.status.code = UNIMPLEMENTED
            answer.response_metadata.status.message = f"no {asked.WhichOneof('request')} here"
        self.link.send(answer.SerializeToString())

    def _init(self, init: IfrtResponse) -> None:
        init.session_id = self.link.session_id
        init.platform_name, init.platform_version, init.runtime_type = "cpu", "minimal", "proxy"
        for number in range(self.devices):
            memory = init.memories.add(id=number, memory_space_kind="unpinned_host", device_ids=[number])
            memory.debug_string = memory.to_string = f"memory {number}"
            device = init.all_devices.add(id=number, local_device_id=number, local_hardware_id=number)
            device.device_kind, device.platform_name = "cpu", "cpu"
            device.default_memory_id = number
            device.memory_ids.append(number)
            device.debug_string = device.to_string = f"device {number}"
            init.primary_device_ids.append(number)
            init.addressable_device_ids.append(number)

    def store(self, handle: int, data: bytes | bytearray | memoryview) -> None:
        self.log.append(("store", handle))
        self.buffers[handle] = bytes(data)

    def lookup(self, handle: int) -> bytes | None:
        self.log.append(("lookup", handle))
        return self.buffers.get(handle)

    def forget(self, handle: int) -> None:
        self.log.append(("forget", handle))
        self.buffers.pop(handle, None)

    def ended(self, why: str) -> None:
        self.log.append(("ended", why))
