"""The cluster as it was built: islands of hosts of devices, and the networks between them.

`Cluster.from_table` makes a cluster from a parsed TOML file. A cluster never changes; `slices.resources` keeps
which devices are in use. Hosts and devices have cluster-wide numbers: island i has the hosts
`[base_host, base_host + hosts)`, and each of its hosts has exactly `devices_per_host` consecutive devices. An island
may be a torus. Each host is then a `block` of the torus, and a device's number and its coordinates follow from each
other (see `torus`). Bandwidths and latencies of links are for cost models only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cached_property, lru_cache
from math import gcd, prod
from typing import TypeVar

import msgspec

from . import spans
from .errors import Impossible
from .place import Place, device_spans, line
from .spans import Spans
from .torus import Shape, unravel

# --- a table that a person wrote --------------------------------------------------------------------------------------

# The parser is Python's own. It takes any nesting by calling itself, and for a name of many parts the square of their
# number, so a small file that somebody made to do so would keep it busy for hours.

MOST = 4 << 20  # bytes
MOST_DOTS = 100  # in a line


def table_of(data: bytes, loads: Callable[[str], dict[str, object]]) -> dict[str, object]:
    """The table. Raises Impossible, which says what is wrong; the caller adds which file it is."""
    if len(data) > MOST:
        raise Impossible(f"has {len(data):,} bytes; {MOST:,} at most")
    try:
        text = data.decode()
        for number, line in enumerate(text.splitlines(), 1):
            if line.count(".") > MOST_DOTS:
                raise Impossible(f"has more than {MOST_DOTS} dots in line {number}")
        return loads(text)
    except ValueError as error:
        raise Impossible(f"is no TOML: {error}") from None
    except RecursionError:
        raise Impossible("is no TOML: it is nested too deeply") from None


GIB = 2**30
MOST_DEVICES, MOST_ISLANDS = 1 << 24, 1 << 16  # of a cluster
T = TypeVar("T")


class Island(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts whose devices share an interconnect."""

    name: str
    hosts: int
    devices_per_host: int  # devices of each host
    kind: str = "cpu"
    torus: Shape = ()  # () if the interconnect is not a torus
    wraps: tuple[bool, ...] = ()  # whether each axis of the torus wraps; () means that all do
    block: Shape = ()  # the part of the torus that is one host; () means: fill the innermost axes first
    memory: int = 16 * GIB  # bytes of each device
    host_memory: int = 64 * GIB  # bytes of each host
    host_disk: int = 0  # bytes of each host's disk for arrays that its memory has no room for
    spares: int = 0  # the last so many hosts are kept in reserve
    ici_bandwidth: int = 0  # bytes per second of each link; 0 if not stated
    ici_latency: int = 0  # nanoseconds for each hop
    assumed: bool = False  # whether `memory` is a default that the table did not state
    # Cluster sets these three:
    index: int = 0
    base_host: int = 0
    base_device: int = 0

    def __post_init__(self) -> None:
        _require(bool(self.name), "an island needs a name")
        for field in ("hosts", "devices_per_host"):
            _require(getattr(self, field) >= 1, f"island {self.name!r} needs at least one of `{field}`")
        _require(self.devices <= MOST_DEVICES, f"island {self.name!r} has more than {MOST_DEVICES:,} devices")
        for field in ("memory", "host_memory", "host_disk", "spares", "ici_bandwidth", "ici_latency"):
            _require(getattr(self, field) >= 0, f"island {self.name!r}: `{field}` is negative")
        _require(self.spares < self.hosts, f"island {self.name!r}: all {self.hosts} hosts are spares")
        if self.torus:
            self._check_torus()
        else:
            _require(not self.wraps and not self.block, f"island {self.name!r}: `wraps`, `block` need a `torus`")

    def _check_torus(self) -> None:
        here = f"island {self.name!r}: torus {dims(self.torus)}"
        _require(len(self.torus) <= 3 and min(self.torus) >= 1, f"{here}: one to three axes, each at least 1")
        _require(
            prod(self.torus) == self.devices,
            f"{here} has {prod(self.torus)} devices, {self.hosts} hosts of {self.devices_per_host} are {self.devices}",
        )
        if not self.wraps:
            msgspec.structs.force_setattr(self, "wraps", (True,) * len(self.torus))
        if not self.block:
            msgspec.structs.force_setattr(self, "block", _inner_block(self.torus, self.devices_per_host))
        _require(
            len(self.wraps) == len(self.torus) == len(self.block),
            f"{here}: `wraps` and `block` need one entry for each axis",
        )
        _require(
            min(self.block) >= 1
            and prod(self.block) == self.devices_per_host
            and all(t % b == 0 for t, b in zip(self.torus, self.block, strict=True)),
            f"{here} cannot be cut into hosts of {dims(self.block)} with {self.devices_per_host} devices each",
        )

    @property
    def devices(self) -> int:
        return self.hosts * self.devices_per_host

    @property
    def regular(self) -> int:
        """The number of hosts that are not spares."""
        return self.hosts - self.spares

    @property
    def host_span(self) -> Spans:
        return ((self.base_host, self.base_host + self.hosts),)

    @property
    def device_span(self) -> Spans:
        return ((self.base_device, self.base_device + self.devices),)

    @property
    def whole(self) -> Place:
        return line(self.index, self.base_device, self.devices)

    def host_of(self, device: int) -> int:
        return self.base_host + (device - self.base_device) // self.devices_per_host

    def devices_of(self, host: int) -> Spans:
        first = self.base_device + (host - self.base_host) * self.devices_per_host
        return ((first, first + self.devices_per_host),)

    def hosts_of(self, place: Place) -> Spans:
        return _hosts_of(place, self.base_device, self.devices_per_host, self.base_host)

    def coords(self, device: int) -> Shape:
        host, inner = divmod(device - self.base_device, self.devices_per_host)
        grid = zip(unravel(host, self._host_grid), self.block, unravel(inner, self.block), strict=True)
        return tuple(at * size + rest for at, size, rest in grid)

    @property
    def _host_grid(self) -> Shape:
        return tuple(t // b for t, b in zip(self.torus, self.block, strict=True))

    def describe(self) -> str:
        torus = f", torus {dims(self.torus)}" if self.torus else ""
        spares = f", {self.spares} of the hosts spare" if self.spares else ""
        return f"island {self.name!r}: {self.hosts} hosts x {self.devices_per_host} {self.kind}{torus}{spares}"


class Cluster(msgspec.Struct, frozen=True, dict=True):
    """The islands, numbered in the order given, and the network between them."""

    islands: tuple[Island, ...]
    dcn_bandwidth: int = 0  # bytes per second of each host; 0 if not stated
    dcn_latency: int = 0  # nanoseconds

    def __post_init__(self) -> None:
        _require(bool(self.islands), "a cluster needs an island")
        numbered: list[Island] = []
        host = device = 0
        for index, island in enumerate(self.islands):
            numbers = {"index": index, "base_host": host, "base_device": device}
            numbered.append(msgspec.structs.replace(island, **numbers))
            host, device = host + island.hosts, device + island.devices
        names = [island.name for island in numbered]
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        _require(twice is None, f"two islands have the name {twice!r}")
        _require(device <= MOST_DEVICES, f"the cluster has more than {MOST_DEVICES:,} devices")
        msgspec.structs.force_setattr(self, "islands", tuple(numbered))

    @cached_property
    def hosts(self) -> int:
        return sum(island.hosts for island in self.islands)

    @cached_property
    def devices(self) -> int:
        return sum(island.devices for island in self.islands)

    def island(self, name: str) -> Island:
        for island in self.islands:
            if island.name == name:
                return island
        raise Impossible(f"no island {name!r}; {_near(name, [island.name for island in self.islands])}")

    def island_of_host(self, host: int) -> Island:
        if not 0 <= host < self.hosts:
            raise Impossible(f"no host {host}; hosts are 0-{self.hosts - 1}")
        return self.islands[bisect_right(self._first_hosts, host) - 1]

    def island_of_device(self, device: int) -> Island:
        if not 0 <= device < self.devices:
            raise Impossible(f"no device {device}; devices are 0-{self.devices - 1}")
        return self.islands[bisect_right(self._first_devices, device) - 1]

    def host_of(self, device: int) -> int:
        return self.island_of_device(device).host_of(device)

    def devices_of(self, host: int) -> range:
        return range(*self.island_of_host(host).devices_of(host)[0])

    def hosts_of(self, place: Place) -> Spans:
        return self.islands[place.island].hosts_of(place)

    @cached_property
    def _first_hosts(self) -> list[int]:
        return [island.base_host for island in self.islands]

    @cached_property
    def _first_devices(self) -> list[int]:
        return [island.base_device for island in self.islands]

    def describe(self) -> str:
        return "\n".join(island.describe() for island in self.islands)

    @classmethod
    def from_table(cls, table: Mapping[str, object]) -> Cluster:
        """Make a cluster from a parsed TOML file.

        Each `[[island]]` table has the fields of `Island`; with `count` it stands for several identical islands.
        Keys that describe hardware to the simulator only (`SIMULATED_KEYS`) are accepted and ignored.
        """
        found: list[Island] = []
        _known_keys("the cluster", table, ["island", *CLUSTER_KEYS, *SIMULATED_KEYS])
        entries = table.get("island", [])
        if not isinstance(entries, list):
            raise Impossible("the cluster: `island` is a list of tables; write [[island]]")
        for number, entry in enumerate(entries, 1):
            found += _islands(f"island {number} of the table", entry)
            _require(len(found) <= MOST_ISLANDS, f"the cluster has more than {MOST_ISLANDS:,} islands")
        plain = {key: _convert(f"the cluster's `{key}`", table[key], int) for key in CLUSTER_KEYS if key in table}
        return cls(tuple(found), **plain)


# --- reading a table ----------------------------------------------------------------------------------------

CLUSTER_KEYS = ("dcn_bandwidth", "dcn_latency")
SIMULATED_KEYS = ("name", "note", "machine", "dcn", "chip", "shared", "profile")  # see docs/clusters.md
ISLAND_KEYS = ("name", "kind", "count", "hosts", "devices_per_host", "spares", "torus", "wraps", "block", "memory",
               "host_memory", "host_disk", "ici_bandwidth", "ici_latency")  # fmt: skip
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def _islands(where: str, entry: object) -> list[Island]:
    if not isinstance(entry, dict):
        raise Impossible(f"{where} is not a table")
    _known_keys(where, entry, ISLAND_KEYS)
    fields = dict(entry)
    for key in ("memory", "host_memory", "host_disk"):
        if isinstance(fields.get(key), str):
            fields[key] = _bytes(where, key, fields[key])
    fields["assumed"] = "memory" not in fields
    count = fields.pop("count", None)
    if count is None:
        return [_convert(where, fields, Island)]
    _require(type(count) is int and 1 <= count <= MOST_ISLANDS, f"{where}: `count` cannot be {count!r}")
    return [_convert(where, {**fields, "name": f"{fields.get('name', '')}{at}"}, Island) for at in range(count)]


def _convert(where: str, value: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Impossible(f"{where}: {error}") from None


def _bytes(where: str, key: str, text: str) -> int:
    number, unit = text[:-3].strip(), text[-3:]
    if unit in UNITS and number.isdecimal():
        return int(number) * UNITS[unit]
    raise Impossible(f"{where}: `{key}` cannot be {text!r}: write bytes, or a text like '16GiB'")


def _known_keys(where: str, table: Mapping[str, object], known: Iterable[str]) -> None:
    for key in table:
        if key not in known:
            raise Impossible(f"{where} has no key {key!r}; {_near(key, list(known))}")


def _near(word: str, known: list[str]) -> str:
    """Return the end of an error text: the known word most like this one, and the words there are."""
    close = get_close_matches(word, known, 1)
    shown = [repr(name) for name in known[:16]] + (["..."] if len(known) > 16 else [])
    return (f"nearest: {close[0]!r}; " if close else "") + f"there is: {', '.join(shown)}"


# --- small helpers ------------------------------------------------------------------------------------------


def dims(shape: Shape) -> str:
    """Return the shape as people read it: `4x8`."""
    return "x".join(map(str, shape)) or "1"


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise Impossible(text)


def _inner_block(torus: Shape, devices_per_host: int) -> Shape:
    """Return the default block of a host: as much as fits of the innermost axis, then of the next."""
    block: list[int] = []
    for size in reversed(torus):
        block.append(gcd(size, devices_per_host))
        devices_per_host //= block[-1]
    return tuple(reversed(block))


@lru_cache(maxsize=4096)
def _hosts_of(place: Place, base_device: int, devices_per_host: int, base_host: int) -> Spans:
    shift = base_host * devices_per_host - base_device
    return spans.normal(
        ((low + shift) // devices_per_host, (high - 1 + shift) // devices_per_host + 1)
        for low, high in device_spans(place)
    )


# --- clusters ready to use --------------------------------------------------------------------------------------------

# The paper states the number of hosts and of devices per host. It ran T5 on TPU v3, whose chips have two cores of 16
# GB each. Here a core is a device, and the two cores of a chip are neighbours on the torus's second axis. We assume
# that A is a whole pod, whose links wrap, and that B and C are parts of a pod, whose links do not.

PRESETS: dict[str, dict[str, object]] = {
    "A": {
        "island": [
            {"name": "a", "kind": "tpu-v3", "hosts": 512, "devices_per_host": 4, "memory": "16GiB",
             "torus": [32, 64], "block": [2, 2], "wraps": [True, True]},
        ],
    },
    "B": {
        "island": [
            {"name": "b", "kind": "tpu-v3", "hosts": 64, "devices_per_host": 8, "memory": "16GiB",
             "torus": [16, 32], "block": [2, 4], "wraps": [False, False]},
        ],
    },
    "C": {
        "island": [
            {"name": "c", "count": 4, "kind": "tpu-v3", "hosts": 4, "devices_per_host": 8, "memory": "16GiB",
             "torus": [4, 8], "block": [2, 4], "wraps": [False, False]},
        ],
    },
}  # fmt: skip


def small(hosts: int = 2, devices_per_host: int = 2, islands: int = 1) -> Cluster:
    """Return a cluster of identical islands of CPU hosts, named i0, i1, ...: for tests and examples."""
    island = {"name": "i", "count": islands, "hosts": hosts, "devices_per_host": devices_per_host}
    return Cluster.from_table({"island": [island]})
