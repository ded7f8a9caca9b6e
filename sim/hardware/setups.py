"""Set-ups: a cluster with its chips, machines and network, by name, from a file, or from a table.

`load("A")`, `load("v4-512")`, `load("2xv3-1024")`, `load("my-cluster.toml")`; and any of these with changes:
`load("A", hosts=25_000)`, `load("C", islands=64, dcn={"latency": "50 us"})`.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from core.model import CLUSTER_KEYS, ISLAND_KEYS, MOST_ISLANDS, PRESETS, Cluster, Impossible

from . import chips
from .chips import Chip, Generation, MachineSpec
from .layout import OVERRIDES as OF_ISLANDS
from .layout import fill
from .profiles import Profile, profile_in
from .shared_machines import Shared, placed
from .toml_tables import Table, figure, known_keys, nearest, packaged, subtable, toml, whole


class Dcn(msgspec.Struct, frozen=True, kw_only=True):
    """The data-centre network, between hosts."""

    latency: int  # nanoseconds one way
    bandwidth: int  # bytes a second of one host's network cards, each way
    oversubscription: float = 1.0  # by which factor all hosts together can send more than the network carries
    jitter: int = 0  # nanoseconds: each message takes up to this much longer, uniformly distributed
    sources: dict[str, str] = {}


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    cluster: Cluster
    chips: tuple[Chip, ...]  # by island
    machines: tuple[MachineSpec, ...]  # by island
    dcn: Dcn
    note: str = ""
    # machines with several processes; every other process has a machine to itself
    shared: tuple[Shared, ...] = ()
    profile: Profile | None = None  # what its hosts cost, if the file says so; `seaway calibrate` writes it

    @property
    def machine(self) -> MachineSpec:
        """The machine of the first island; `machines` has those of all islands."""
        return self.machines[0]

    def figures(self) -> Iterator[tuple[str, str, int, str]]:
        """Every figure of the set-up: its part (a chip, "host", "DCN"), its name, its value in the base unit, its
        source."""
        parts: dict[str, Chip | MachineSpec | Dcn | Shared] = {chip.name: chip for chip in self.chips}
        parts |= {f"{chip.name} host": machine for chip, machine in zip(self.chips, self.machines, strict=True)}
        parts |= {f"shared machine {at}": machine for at, machine in enumerate(self.shared)}
        for of, part in [*parts.items(), ("DCN", self.dcn)]:
            for key, source in part.sources.items():
                yield of, key, getattr(part, key), source

    def describe(self) -> str:
        """The set-up as text: its parts, and which figures are assumed."""
        assumed = [f"{of} {key}" for of, key, _, source in self.figures() if source.startswith("assumed")]
        lines = [f"{self.name}: {self.note}" if self.note else self.name, self.cluster.describe()]
        lines += [machine.describe() for machine in self.shared[:SHOWN]]
        lines += [f"... and {len(self.shared) - SHOWN} more"] if len(self.shared) > SHOWN else []
        lines += [f"assumed: {', '.join(assumed)}"] if assumed else []
        return "\n".join(lines)


KEYS = ("name", "note", "island", "machine", "dcn", "chip", "shared", "profile", *CLUSTER_KEYS)
OVERRIDES = ("islands", *OF_ISLANDS, "machine", "dcn", "chip", "shared")
SHOWN = 8  # shared machines that `describe` lists
DCN_UNITS = {"latency": "time", "bandwidth": "rate", "jitter": "time"}


def load(what: str | Path | Mapping[str, object], **overrides: object) -> Setup:
    """A set-up by name, from a TOML file or from a table. Overrides (`hosts`, `devices_per_host`, `torus`, ...)
    apply to each of its islands; `islands` says how many alike islands there are, `shared` which processes share a
    machine."""
    label, table = _table(what)
    try:
        return _setup(label, table, overrides)
    except Impossible as error:
        raise Impossible(str(error) if label in str(error) else f"{label}: {error}") from None


def _setup(label: str, table: Table, overrides: Mapping[str, object]) -> Setup:
    known_keys(label, table, KEYS)
    for key in overrides:
        if key not in OVERRIDES:
            raise Impossible(f"load() has no option {key!r}; {nearest(key, OVERRIDES)}")
    parts = {part: subtable(label, table, part) | subtable("load()", overrides, part) for part in PARTS}
    own = _own_chips(label, parts["chip"])
    islands, found = _islands(label, table, overrides, own)
    cluster = Cluster.from_table({"island": islands})
    machines = tuple(
        msgspec.structs.replace(_machine(label, one, parts["machine"]), host_memory=island.host_memory)
        for one, island in zip(found, cluster.islands, strict=True)
    )
    core_keys = {key.removeprefix("dcn_"): table[key] for key in CLUSTER_KEYS if key in table}
    dcn = _dcn(label, core_keys | parts["dcn"], machines[0])
    costs = subtable(label, table, "profile")
    return Setup(
        name=str(table.get("name", "cluster")),
        cluster=msgspec.structs.replace(cluster, dcn_bandwidth=dcn.bandwidth, dcn_latency=dcn.latency),
        chips=tuple(one.chip for one in found),
        machines=machines,
        dcn=dcn,
        note=_note(table, overrides),
        shared=placed(label, overrides.get("shared", table.get("shared", ())), cluster, machines, _stated(label)),
        profile=profile_in(label, str(table.get("name", "cluster")), costs) if costs else None,
    )


PARTS = ("machine", "dcn", "chip")


def _table(what: str | Path | Mapping[str, object]) -> tuple[str, Table]:
    if isinstance(what, Mapping):
        return str(what.get("name", "the cluster")), what
    if isinstance(what, Path) or what.endswith(".toml"):
        return str(what), {"name": Path(what).stem, **toml(Path(what))}
    return f"cluster {what!r}", named(what)


def _note(table: Table, overrides: Table) -> str:
    changed = ", ".join(f"{key}={value}" for key, value in overrides.items())
    return "; changed: ".join(filter(None, (str(table.get("note", "")), changed)))


def _own_chips(label: str, tables: Table) -> dict[str, Generation]:
    """The chips under `[chip.NAME]`: new, or known with other figures; each with the machine in which it is sold."""
    found: dict[str, Generation] = {}
    for name in tables:
        table = subtable(f"{label} [chip]", tables, name)
        if chips.known(name):
            name = chips.chip(name).name
            table.setdefault("like", name)
        like = chips.generation(str(table.get("like", "cpu")))
        chip = chips.chip_from(f"{label} [chip.{name}]", name, table, _stated(label))
        found[name] = msgspec.structs.replace(like, chip=chip, aliases=())
    return found


def _islands(
    label: str, table: Table, overrides: Table, own: Mapping[str, Generation]
) -> tuple[list[dict[str, object]], list[Generation]]:
    entries = table.get("island", [])
    if not isinstance(entries, list) or not entries:
        raise Impossible(f"{label} has no islands; write [[island]] tables with `kind` and `hosts`")
    if "islands" in overrides and len(entries) > 1:
        raise Impossible(f"{label} lists {len(entries)} islands, so `islands` cannot say how many there are")
    found: list[dict[str, object]] = []
    of: list[Generation] = []
    for at, entry in enumerate(entries):
        where = f"{label} [[island]] {at}"
        if not isinstance(entry, Mapping):
            raise Impossible(f"{where} is no table")
        known_keys(where, entry, ISLAND_KEYS)
        changed = {key: value for key, value in overrides.items() if key in OF_ISLANDS}
        if "islands" in overrides:
            changed["count"] = whole("load()", "islands", overrides["islands"])
        kind = str(changed.get("kind", entry.get("kind", "cpu")))
        one = own.get(kind) or chips.generation(kind)
        one = own.get(one.chip.name, one)
        found.append(fill(where, entry, changed, one))
        of += [one] * whole(where, "count", found[-1].get("count", 1), MOST_ISLANDS - len(of))
    return found, of


def _machine(label: str, one: Generation, table: Table) -> MachineSpec:
    return chips.machine_from(f"{label} [machine]", table, one.machine, _stated(label))


def _dcn(label: str, table: Table, machine: MachineSpec) -> Dcn:
    label = f"{label} [dcn]"
    known_keys(label, table, (*DCN_UNITS, "oversubscription"))
    values = {"bandwidth": machine.nic_bandwidth}
    sources = {"bandwidth": machine.sources["nic_bandwidth"]}
    for key, value in {**packaged("")["network"], **table}.items():
        if key in DCN_UNITS:
            values[key], sources[key] = figure(label, key, value, DCN_UNITS[key], _stated(label))
    if not values["bandwidth"]:
        raise Impossible(f"{label}: `bandwidth` is zero")
    share = table.get("oversubscription", 1.0)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 1 <= share < float("inf"):
        raise Impossible(f"{label}: `oversubscription` cannot be {share!r}: 1.0 is none, 2.0 halves the network")
    return msgspec.convert({**values, "oversubscription": float(share), "sources": sources}, Dcn)


def _stated(label: str) -> str:
    return f"stated in {label}"


# --- set-ups with a name ----------------------------------------------------------------------------------------------

# The number in a slice's name counts what its maker counts: cores for v3, v4 and v5p (so v4-512 has 256 chips), chips
# for the others. `4xv5e-256` is four islands of 256 chips, joined by the data-centre network.

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
