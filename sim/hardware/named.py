"""Set-ups with a name: the paper's A, B and C, and any slice as it is sold, such as `v4-512`.

The number in a slice's name counts what its maker counts: cores for v3, v4 and v5p (so v4-512 has 256 chips),
chips for the others. `4xv5e-256` is four islands of 256 chips, joined by the data-centre network.
"""

from __future__ import annotations

import re

from core.model import PRESETS, Impossible

from . import chips
from .toml_tables import nearest

NOTES = {
    "A": "the paper's set-up A: 2048 TPU v3 cores, 4 a host, one island",
    "B": "the paper's set-up B: 512 TPU v3 cores, 8 a host, one island",
    "C": "the paper's set-up C: four islands of 32 TPU v3 cores, 8 a host, joined by the data-centre network",
}
SLICE = re.compile(r"(?:(\d+)x)?([a-z][a-z0-9]*?(?:-[a-z0-9]+?)?|\d+x)-(\d+)", re.IGNORECASE)


def named(what: str) -> dict[str, object]:
    """The table that a file of this name would hold."""
    if what.upper() in PRESETS:
        return {"name": what.upper(), "note": NOTES.get(what.upper(), ""), **PRESETS[what.upper()]}
    match = SLICE.fullmatch(what)
    if match is None or not chips.known(match[2]):
        examples = [f"{one.aliases[0]}-{64 * one.counted}" for one in chips.generations()]
        raise Impossible(f"no cluster {what!r}; {nearest(what, [*PRESETS, *examples])}; or the path of a TOML file")
    count, one, number = int(match[1] or 1), chips.generation(match[2]), int(match[3])
    return _slice(what, count, one, number)


def _slice(what: str, count: int, one: chips.Generation, number: int) -> dict[str, object]:
    chip, counted = one.chip, one.counted
    devices, odd = divmod(number * chip.devices_per_chip, counted)
    if odd or devices < 1 or count < 1:
        raise Impossible(f"no cluster {what!r}: a {chip.name} chip counts {counted}, so the number is a multiple of it")
    devices_per_host = min(devices, chip.devices_per_host)
    if devices % devices_per_host:
        raise Impossible(f"no cluster {what!r}: {devices} devices are not whole hosts of {devices_per_host}")
    island: dict[str, object] = {
        "name": "i", "kind": chip.name, "hosts": devices // devices_per_host, "devices_per_host": devices_per_host,
    }  # fmt: skip
    if count > 1:
        island["count"] = count
    chips_ = devices // chip.devices_per_chip
    note = f"{f'{count} islands of ' if count > 1 else ''}{chips_} {chip.generation} chips, {devices} devices"
    if chip.pod and devices > chip.pod:
        note += f"; more than a pod, which has {chip.pod}: no such island can be bought"
    return {"name": what, "note": note, "island": [island]}
