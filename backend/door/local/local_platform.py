"""What a session is told of this process's devices: `platform_of`. Neighbour: `local_devices`."""

from collections.abc import Sequence
from typing import Any

from backend.pjrt.code import stablehlo_executables
from backend.xla import flags_of

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
        # pathwaysutils' elastic module asks each device for its slice_index
        attributes = {"slice_index": 0} | stablehlo_executables.attributes_of(device)
        facts.append(DeviceFacts(number, device.device_kind, default, ids, repr(device), str(device), attributes))
    name, client = stablehlo_executables.platform_name(first), first.client
    return Platform(
        name, str(client.platform_version), str(client.runtime_type), tuple(facts), tuple(memories),
        stablehlo_executables.serdes(), flags_of(stablehlo_executables.own_options()),
    )  # fmt: skip
