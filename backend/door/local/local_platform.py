"""What a session is told of JAX's devices in this process. Neighbour: `local_devices`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backend.pjrt.code import stablehlo_executables

from ..session import DeviceFacts, MemoryFacts, Platform


def platform_of(devices: Sequence[Any]) -> Platform:
    first = devices[0]
    facts, memories = [], []
    for number, device in enumerate(devices):
        kinds = [each.kind for each in device.addressable_memories()]
        ids = tuple(number * len(kinds) + at for at in range(len(kinds)))
        default = ids[kinds.index(device.default_memory().kind)]
        memories += [
            MemoryFacts(name, each.kind, (number,), repr(each), str(each))
            for name, each in zip(ids, device.addressable_memories(), strict=True)
        ]
        attributes = {
            name: tuple(value) if isinstance(value, list | tuple) else value
            for name in ("coords", "core_on_chip", "slice_index")
            if (value := getattr(device, name, None)) is not None
        }
        attributes.setdefault("slice_index", 0)  # pathwaysutils' elastic module asks each device for it
        facts.append(
            DeviceFacts(number, device.device_kind, default, ids, repr(device), str(device), attributes)
        )
    name = "cuda" if first.platform == "gpu" else first.platform
    return Platform(
        name, str(first.client.platform_version), str(first.client.runtime_type), tuple(facts), tuple(memories),
        stablehlo_executables.serdes(),
    )  # fmt: skip
