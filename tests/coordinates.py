"""The device at given coordinates of a torus: `Island.coords`, the other way round."""

from __future__ import annotations

from functools import cache

from core.model.topology import Island


def device_at(island: Island, coords: tuple[int, ...]) -> int:
    return _devices(island)[coords]


@cache
def _devices(island: Island) -> dict[tuple[int, ...], int]:
    devices = range(island.base_device, island.base_device + island.devices)
    return {island.coords(device): device for device in devices}
