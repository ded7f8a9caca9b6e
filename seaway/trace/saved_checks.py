"""What the columns of a saved trace must satisfy before anything is computed from them: it may be a stranger's file.

Neighbours: `storage`, which reads them; `facts`, which relies on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from core.model import spans
from core.record import NAMES, Lists, TracedPlace

from ..machines import TraceIsland

Column = npt.NDArray[np.integer]
MOST_DEVICES = 1 << 22  # of all islands: numbers of devices become arrays
FAR = 1 << 62  # beyond this, differences of times do not fit into 64 bits


class Senseless(Exception):
    """What is wrong."""


def check(
    tables: Mapping[str, Mapping[str, Column]],
    words: Sequence[object],
    places: Mapping[int, TracedPlace],
    islands: Sequence[TraceIsland] | None,
) -> None:
    """Raises Senseless if a column refers to what is not there, or a number cannot be."""
    if not all(isinstance(word, str) for word in words) or len(set(words)) != len(words):
        raise Senseless("its words are not texts that differ")
    for key, place in places.items():
        _check_place(key, place)
    if islands is not None:
        _check_islands(islands)
        everywhere = spans.normal((each.base_device, each.base_device + each.devices) for each in islands)
        if outside := [key for key, place in places.items() if spans.minus(place.devices, everywhere)]:
            raise Senseless(f"its place {outside[0]} is on no island")
    runs = len(tables["runs"]["run"])
    for table, columns in tables.items():
        for name, column in columns.items():
            most = len(words) if name in NAMES else runs if name == "run" and table != "runs" else FAR
            lowest = -1 if most < FAR else -FAR
            if len(column) and not (lowest <= int(column.min()) and int(column.max()) < most):
                raise Senseless(f"a number in column {name!r} of {table} is out of bounds")
    for name in ("hosts", "ends"):
        _check_lists(tables["arrivals"]["after"], tables["gangs"][name], name)


def _check_place(key: object, place: TracedPlace) -> None:
    numbers: tuple[object, ...] = (
        place.island,
        place.devices_per_host,
        place.first,
        *(each for pair in place.devices for each in pair),
    )
    known = isinstance(key, int) and -FAR < key < FAR
    if not known or not all(isinstance(each, int) and 0 <= each <= MOST_DEVICES for each in numbers):
        raise Senseless(f"its place {key!r:.20} has a number that cannot be")
    if not place.devices or place.devices_per_host < 1 or place.first > place.devices[0][0]:
        raise Senseless(f"its place {key!r} has no devices")
    if any(low >= high for low, high in place.devices) or spans.normal(place.devices) != place.devices:
        raise Senseless(f"its place {key!r} has devices twice")


def _check_islands(islands: Sequence[TraceIsland]) -> None:
    device = host = 0
    for island in sorted(islands, key=lambda each: each.base_device):
        if (
            island.hosts < 1
            or island.devices_per_host < 1
            or island.base_device < device
            or island.base_host < host
        ):
            raise Senseless(f"its island {island.name!r:.40} has a number that cannot be")
        device, host = island.base_device + island.devices, island.base_host + island.hosts
        if max(device, host) > MOST_DEVICES:
            raise Senseless(f"it has more than {MOST_DEVICES:,} devices")


def _check_lists(packed: Column, begins: Column, name: str) -> None:
    """Each list that is referred to lies in the column, with its head."""
    starts = np.unique(begins[begins >= 0]).astype(np.int64)
    if not len(starts):
        return
    head = Lists.HEAD.size
    if int(starts[-1]) + head > len(packed):
        raise Senseless(f"column {name!r} of gangs refers to a list that is not there")
    count = packed[starts[:, None] + np.arange(1, 5)].astype(np.int64) @ (1 << np.arange(0, 32, 8))
    form = packed[starts].astype(np.int64)
    width, steps = form & ~Lists.STEPS, (form & Lists.STEPS) > 0
    length = head + np.where(steps, Lists.OF_STEPS.size + width * (count - 1), width * count)
    if (
        not np.isin(width, (1, 2, 3, 4, 8)).all()
        or (count < 1).any()
        or (starts + length > len(packed)).any()
    ):
        raise Senseless(f"column {name!r} of gangs refers to a list that is damaged")
