"""Which processes share a machine: `[[shared]]` tables of a set-up, and what is wrong with them.

    [[shared]]                # one machine; whoever stands in none has a machine to itself
    cores = 4                 # else what the machines of its hosts have
    hosts = [0, 1, "64-67"]   # numbers in the cluster, of any island
    controller = true
    clients = ["ann", "bob"]  # or true: all that are named nowhere else

`each = 4`: so many of the hosts a machine, one after another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from core.errors import Impossible
from core.topology import Cluster

from .chips import Machine
from .reading import Table, figure, known_keys, whole

# Of a host's agent: it reads orders, passes them on, enqueues, hears of completions; one each for contents and reports.
HOST, CONTROLLER, CLIENT = 6, 1, 2

KEYS = ("cores", "hosts", "each", "controller", "clients")
RANGE = re.compile(r"\s*(\d+)\s*-\s*(\d+)\s*")
SHOWN = 8


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """One machine, and the processes on it."""

    cores: int
    hosts: tuple[int, ...] = ()
    controller: bool = False
    clients: tuple[str, ...] = ()
    other_clients: bool = False  # all that are named nowhere else
    sources: dict[str, str] = {}  # of what this table states

    @property
    def threads(self) -> int:
        """Of the processes that are known ahead."""
        return HOST * len(self.hosts) + CONTROLLER * self.controller + CLIENT * len(self.clients)

    @property
    def short(self) -> bool:
        """Somebody may have to wait for a core."""
        return self.other_clients or self.cores < self.threads

    def describe(self) -> str:
        who = ["the controller"] if self.controller else []
        if self.hosts:
            shown = ", ".join(map(str, self.hosts[:SHOWN])) + (", ..." if len(self.hosts) > SHOWN else "")
            who.append(f"host{'s' if len(self.hosts) > 1 else ''} {shown}")
        who += [f"client {name!r}" for name in self.clients]
        who += ["all other clients" if self.clients else "all clients"] if self.other_clients else []
        return f"{', '.join(who)}: one machine of {self.cores} core{'s' if self.cores > 1 else ''}"


def placed(
    who: str, entries: object, cluster: Cluster, machines: Sequence[Machine], source: str
) -> tuple[Shared, ...]:
    """`machines`: by island."""
    if not isinstance(entries, list | tuple):
        raise Impossible(f"{who}: `shared` is a list of tables; write [[shared]]")
    found: list[Shared] = []
    for at, entry in enumerate(entries):
        here = f"{who} [[shared]] {at}"
        if not isinstance(entry, Mapping):
            raise Impossible(f"{here} is no table; write `hosts`, `controller` or `clients` in it")
        found += _machines(here, entry, cluster, machines, source)
    _once(who, found)
    return tuple(found)


def _machines(
    who: str, entry: Table, cluster: Cluster, machines: Sequence[Machine], source: str
) -> list[Shared]:
    known_keys(who, entry, KEYS)
    hosts = _hosts(who, entry.get("hosts", ()), cluster)
    controller = entry.get("controller", False)
    if not isinstance(controller, bool):
        raise Impossible(f"{who}: `controller` cannot be {controller!r}; it is true or false")
    clients = _clients(who, entry.get("clients", ()))
    others = entry.get("clients") is True
    if not (hosts or controller or clients or others):
        raise Impossible(f"{who} has nobody on it; write `hosts`, `controller = true` or `clients`")
    groups = [hosts]
    if "each" in entry:
        each = whole(who, "each", entry["each"])
        if controller or clients or others or not hosts:
            raise Impossible(
                f"{who}: `each` divides `hosts` over machines; place all else in a table of its own"
            )
        groups = [hosts[at : at + each] for at in range(0, len(hosts), each)]
    made = []
    for group in groups:
        cores, sources = _cores(who, entry, group, cluster, machines, source)
        made.append(
            Shared(
                cores=cores, hosts=group, controller=controller, clients=clients, other_clients=others,
                sources=sources,
            )
        )  # fmt: skip
    return made


def _cores(
    who: str, entry: Table, hosts: tuple[int, ...], cluster: Cluster, machines: Sequence[Machine], source: str
) -> tuple[int, dict[str, str]]:
    if "cores" in entry:
        cores, source = figure(who, "cores", entry["cores"], "number", source)
        if not cores:
            raise Impossible(f"{who}: `cores` is zero")
        return cores, {"cores": source}
    islands = dict.fromkeys(cluster.island_of_host(host).index for host in hosts) or {0: None}
    of = dict.fromkeys(machines[island].cores for island in islands)
    if len(of) > 1:
        counts = " and ".join(map(str, of))
        raise Impossible(
            f"{who}: machines of these hosts have {counts} cores; say how many `cores` this one has"
        )
    return next(iter(of)), {}


def _hosts(who: str, given: object, cluster: Cluster) -> tuple[int, ...]:
    listed = given if isinstance(given, list | tuple) else [given]
    found: list[int] = []
    for each in listed:
        if isinstance(each, str) and (match := RANGE.fullmatch(each)) and int(match[1]) <= int(match[2]):
            low, high = int(match[1]), int(match[2])
        elif isinstance(each, int) and not isinstance(each, bool):
            low = high = each
        else:
            raise Impossible(f"{who}: `hosts` cannot be {each!r}; write numbers, or '0-3' for several")
        if low < 0 or high >= cluster.hosts:
            wrong = low if low < 0 else high
            raise Impossible(f"{who}: there is no host {wrong}; hosts are 0 to {cluster.hosts - 1}")
        found += range(low, high + 1)
    return tuple(found)


def _clients(who: str, given: object) -> tuple[str, ...]:
    if given is True or given is False:
        return ()
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
        raise Impossible(f"{who}: `clients` cannot be {given!r}; write their names, or true for all")
    return tuple(given)


def _once(who: str, found: list[Shared]) -> None:
    """A process is on one machine."""
    seen: dict[object, None] = {}
    for shared in found:
        here: list[object] = [f"host {host}" for host in shared.hosts]
        here += [f"client {name!r}" for name in shared.clients]
        here += ["the controller"] if shared.controller else []
        here += ["`clients = true`"] if shared.other_clients else []
        for each in here:
            if each in seen:
                raise Impossible(f"{who}: {each} stands in [[shared]] twice; a process is on one machine")
            seen[each] = None
