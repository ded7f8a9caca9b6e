"""The accelerators and machines that Seaway knows, one TOML file for each generation, with a source for every figure.

A *device* is what a program sees as one device: a core of a TPU v3, a whole chip of a v4. Figures are for one device.
The exception is `ici_bandwidth`: it is for one link and direction, and the devices of a chip share it.
"""

from functools import cache

import msgspec

from core.model import Impossible

from .toml_tables import Table, figure, known_keys, nearest, packaged, subtable


class Chip(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    generation: str = ""
    peak_flops: int  # bf16, per second
    matmul_percent: int = 100  # of it that large matrix products reach
    hbm_bytes: int
    hbm_bandwidth: int  # bytes a second
    clock_hz: int
    torus_dims: int = 0  # 2 or 3; 0: a switch within a host, the network between hosts
    devices_per_chip: int = 1  # they share the chip's links, and have a direct connection to each other
    core_bandwidth: int = 0  # bytes a second and direction, between the devices of one chip
    core_latency: int = 0  # nanoseconds
    ici_bandwidth: int  # bytes a second, link and direction; without a torus: from a device into its host's switch
    ici_latency: int  # nanoseconds a hop
    wrap_min: int = 0  # number of chips from which an axis wraps (see `layout.wraps`); 0: no axis does
    network_bandwidth: int = 0  # bytes a second and device between hosts that no torus joins
    network_latency: int = 0
    pcie_bandwidth: int  # bytes a second and device
    pcie_latency: int
    devices_per_host: int = 1  # devices of a machine as it is sold
    pod: int = 0  # devices of the largest island that exists; 0: no bound
    sources: dict[str, str] = {}

    def __hash__(self) -> int:
        return hash((self.name, self.peak_flops, self.ici_bandwidth, self.ici_latency))


class MachineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A host: its cores, its memory and its network card."""

    cores: int
    host_memory: int
    nic_bandwidth: int  # bytes a second and direction, of all its network cards together
    disk_bandwidth: int = 2_000_000_000  # bytes a second; assumed, since it comes with what a user attaches
    sources: dict[str, str] = {}

    def __hash__(self) -> int:
        return hash((self.cores, self.host_memory, self.nic_bandwidth))


CHIP_UNITS = {
    "peak_flops": "flops", "matmul_percent": "number", "hbm_bytes": "bytes", "hbm_bandwidth": "rate",
    "clock_hz": "frequency", "torus_dims": "number", "devices_per_chip": "number", "core_bandwidth": "rate",
    "core_latency": "time", "ici_bandwidth": "rate", "ici_latency": "time", "wrap_min": "number",
    "network_bandwidth": "rate", "network_latency": "time", "pcie_bandwidth": "rate", "pcie_latency": "time",
    "devices_per_host": "number", "pod": "number",
}  # fmt: skip
MACHINE_UNITS = {"cores": "number", "host_memory": "bytes", "nic_bandwidth": "rate", "disk_bandwidth": "rate"}
POSITIVE = ("peak_flops", "matmul_percent", "hbm_bytes", "hbm_bandwidth", "clock_hz", "devices_per_chip",
            "ici_bandwidth", "pcie_bandwidth", "devices_per_host", "cores", "host_memory", "nic_bandwidth",
            "disk_bandwidth")  # fmt: skip


class Generation(msgspec.Struct, frozen=True):
    """A file of `sim/data/chips`: a chip, the machine in which it is sold, and what the number in its name counts."""

    chip: Chip
    machine: MachineSpec
    aliases: tuple[str, ...]
    # how many of the units that a name's number counts are in a chip: 2 in v4-512, which has 256 chips
    counted: int = 1


def chip(name: str) -> Chip:
    return generation(name).chip


def generation(name: str) -> Generation:
    found = _by_name().get(name.lower())
    if found is None:
        raise Impossible(f"no chip {name!r}; {nearest(name, _by_name())}")
    return found


def known(name: str) -> bool:
    return name.lower() in _by_name()


def generations() -> tuple[Generation, ...]:
    return tuple(dict.fromkeys(_by_name().values()))


@cache
def _by_name() -> dict[str, Generation]:
    found: dict[str, Generation] = {}
    for file, table in packaged("chips").items():
        one = _generation(f"sim/data/chips/{file}.toml", table)
        found |= dict.fromkeys((*one.aliases, one.chip.name), one)
    return found


def _generation(label: str, table: Table) -> Generation:
    known_keys(label, table, ("name", "generation", "aliases", "counted", "chip", "machine"))
    found = _chip_from(f"{label} [chip]", subtable(label, table, "chip"), None, "")
    named = {"name": table["name"], "generation": table["generation"]}
    machine = machine_from(f"{label} [machine]", subtable(label, table, "machine"), None, "")
    rest = {"aliases": table.get("aliases", []), "counted": table.get("counted", 1)}
    return msgspec.convert({"chip": found | named, "machine": machine, **rest}, Generation)


def chip_from(label: str, name: str, table: Table, source: str) -> Chip:
    """A user's own chip: all its figures, or only those in which it differs from the chip that it is `like`."""
    known_keys(label, table, ("like", *CHIP_UNITS))
    like = chip(str(table["like"])) if "like" in table else None
    figures = {key: value for key, value in table.items() if key != "like"}
    return msgspec.convert({**_chip_from(label, figures, like, source), "name": name}, Chip)


def _chip_from(label: str, table: Table, like: Chip | None, source: str) -> dict[str, object]:
    base = msgspec.structs.asdict(like) if like else {}
    values, sources = _figures(label, table, CHIP_UNITS, source)
    found = {**base, **values, "sources": base.get("sources", {}) | sources}
    required = [f.name for f in msgspec.structs.fields(Chip) if f.required and f.name != "name"]
    if missing := [key for key in required if key not in found]:
        raise Impossible(f"{label} lacks {', '.join(missing)}; or say which chip it is `like`")
    if found.get("torus_dims", 0) not in (0, 2, 3):
        raise Impossible(f"{label}: `torus_dims` is 2 or 3, or 0 for no torus")
    if not 0 < int(str(found.get("matmul_percent", 100))) <= 100:
        raise Impossible(f"{label}: `matmul_percent` is a part of the peak: at most 100")
    if found.get("devices_per_chip", 1) != 1 and not found.get("core_bandwidth"):
        raise Impossible(f"{label}: several devices a chip need a `core_bandwidth` between them")
    return found


def machine_from(label: str, table: Table, base: MachineSpec | None, source: str) -> MachineSpec:
    values, sources = _figures(label, table, MACHINE_UNITS, source)
    if base is not None:
        return msgspec.structs.replace(base, **values, sources=base.sources | sources)
    if missing := [key for key in MACHINE_UNITS if key not in values and key != "disk_bandwidth"]:
        raise Impossible(f"{label} lacks {', '.join(missing)}")
    return msgspec.convert({**values, "sources": sources}, MachineSpec)


def _figures(label: str, table: Table, units: dict[str, str], source: str) -> tuple[dict[str, int], dict[str, str]]:
    known_keys(label, table, units)
    found: dict[str, int] = {}
    sources: dict[str, str] = {}
    for key, value in table.items():
        found[key], sources[key] = figure(label, key, value, units[key], source)
        if key in POSITIVE and not found[key]:
            raise Impossible(f"{label}: `{key}` is zero")
        if not sources[key]:
            raise Impossible(f"{label}: `{key}` has no source")
    return found, sources
