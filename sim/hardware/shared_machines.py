"""Which processes share a machine: reads and checks the `[[shared]]` tables of a set-up.

    [[shared]]                # one machine; a process named in no table has a machine to itself
    cores = 4                 # default: as many as the machines of its hosts have
    hosts = [0, 1, "64-67"]   # numbers in the cluster, of any island
    controller = true
    clients = ["ann", "bob"]  # or true: all that are named nowhere else

`each = 4` puts four of the hosts on each of several machines, in order. `hosts = true` means all hosts. These keys
describe our own backend on one machine, and `seaway calibrate` writes them:

    python = true                            # threads of one process work one at a time, and messages are batched
    one_process = ["controller", "clients"]  # "hosts" too; several lists are several processes
    devices = true                           # what devices compute takes these cores, too
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from core.model import Cluster, Impossible
from core.protocol import peers

from .chips import MachineSpec
from .toml_tables import Table, figure, known_keys, whole

# The threads of each kind of process. A host's agent has one each for reading orders, passing them on, enqueueing,
# completions, contents and reports.
HOST, CONTROLLER, CLIENT = 6, 1, 2

KEYS = ("cores", "hosts", "each", "controller", "clients", "python", "one_process", "devices")
KINDS = ("controller", "clients", "hosts")  # kinds of processes
RANGE = re.compile(r"\s*(\d+)\s*-\s*(\d+)\s*")
SHOWN = 8


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """One machine, and the processes on it."""

    cores: int
    hosts: tuple[int, ...] = ()
    controller: bool = False
    clients: tuple[str, ...] = ()
    other_clients: bool = False  # all clients that are named nowhere else
    python: bool = False  # each process runs Python, so that one of its threads works at a time
    one_process: tuple[tuple[str, ...], ...] = ()  # of `KINDS`: which kinds run in one process
    devices: bool = False  # devices compute on these cores
    sources: dict[str, str] = {}  # for each figure that this table states

    @property
    def threads(self) -> int:
        """The number of threads of the processes that are known in advance."""
        return HOST * len(self.hosts) + CONTROLLER * self.controller + CLIENT * len(self.clients)

    @property
    def short(self) -> bool:
        """Whether a thread may have to wait for a core, or for another thread of its process."""
        return self.python or self.devices or self.other_clients or self.cores < self.threads

    def process_of(self, name: int) -> object:
        """The process in which a host, a client or the controller runs, among those on this machine."""
        kind = "hosts" if name >= 0 else "clients" if peers.is_client(name) else "controller"
        for at, together in enumerate(self.one_process):
            if kind in together:
                return together[0], at
        return name

    def describe(self) -> str:
        processes = ["the controller"] if self.controller else []
        if self.hosts:
            shown = ", ".join(map(str, self.hosts[:SHOWN])) + (", ..." if len(self.hosts) > SHOWN else "")
            processes.append(f"host{'s' if len(self.hosts) > 1 else ''} {shown}")
        processes += [f"client {name!r}" for name in self.clients]
        processes += ["all other clients" if self.clients else "all clients"] if self.other_clients else []
        what = f"{', '.join(processes)}: one machine of {self.cores} core{'s' if self.cores > 1 else ''}"
        how = ["Python processes"] if self.python else []
        how += [f"{' and '.join(each)} are one" for each in self.one_process]
        how += ["devices compute on them, too"] if self.devices else []
        return "; ".join([what, *how])


def placed(
    label: str, entries: object, cluster: Cluster, machines: Sequence[MachineSpec], source: str
) -> tuple[Shared, ...]:
    """The machines that the `[[shared]]` tables describe; `machines` has one entry for each island."""
    if not isinstance(entries, list | tuple):
        raise Impossible(f"{label}: `shared` is a list of tables; write [[shared]]")
    found: list[Shared] = []
    for at, entry in enumerate(entries):
        here = f"{label} [[shared]] {at}"
        if not isinstance(entry, Mapping):
            raise Impossible(f"{here} is no table; write `hosts`, `controller` or `clients` in it")
        found += _machines(here, entry, cluster, machines, source)
    _once(label, found)
    return tuple(found)


def _machines(label: str, entry: Table, cluster: Cluster, machines: Sequence[MachineSpec], source: str) -> list[Shared]:
    known_keys(label, entry, KEYS)
    hosts = _hosts(label, entry.get("hosts", ()), cluster)
    controller = _yes(label, "controller", entry.get("controller", False))
    clients = _clients(label, entry.get("clients", ()))
    others = entry.get("clients") is True
    if not (hosts or controller or clients or others):
        raise Impossible(f"{label} places no process on it; write `hosts`, `controller = true` or `clients`")
    python, devices = (_yes(label, key, entry.get(key, False)) for key in ("python", "devices"))
    together = _together(label, entry.get("one_process", ()))
    if together and not python:
        raise Impossible(f"{label}: `one_process` says which share an interpreter; write `python = true` with it")
    groups = [hosts]
    if "each" in entry:
        each = whole(label, "each", entry["each"])
        if controller or clients or others or not hosts:
            raise Impossible(f"{label}: `each` divides `hosts` over machines; place all else in a table of its own")
        groups = [hosts[at : at + each] for at in range(0, len(hosts), each)]
    made = []
    for group in groups:
        cores, sources = _cores(label, entry, group, cluster, machines, source)
        made.append(
            Shared(
                cores=cores, hosts=group, controller=controller, clients=clients, other_clients=others,
                python=python, one_process=together, devices=devices, sources=sources,
            )
        )  # fmt: skip
    return made


def _cores(
    label: str, entry: Table, hosts: tuple[int, ...], cluster: Cluster, machines: Sequence[MachineSpec], source: str
) -> tuple[int, dict[str, str]]:
    if "cores" in entry:
        cores, source = figure(label, "cores", entry["cores"], "number", source)
        if not cores:
            raise Impossible(f"{label}: `cores` is zero")
        return cores, {"cores": source}
    islands = dict.fromkeys(cluster.island_of_host(host).index for host in hosts) or {0: None}
    of = dict.fromkeys(machines[island].cores for island in islands)
    if len(of) > 1:
        counts = " and ".join(map(str, of))
        raise Impossible(f"{label}: machines of these hosts have {counts} cores; say how many `cores` this one has")
    return next(iter(of)), {}


def _yes(label: str, key: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise Impossible(f"{label}: `{key}` cannot be {given!r}; it is true or false")
    return given


def _together(label: str, given: object) -> tuple[tuple[str, ...], ...]:
    """Reads `one_process`: a list of kinds, or several lists."""
    listed: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    groups = listed if all(isinstance(each, list | tuple) for each in listed) else [listed]
    found = tuple(tuple(each) for each in groups if each)
    flat = [kind for group in found for kind in group]
    if any(kind not in KINDS for kind in flat) or len(set(flat)) < len(flat):
        raise Impossible(
            f"{label}: `one_process` cannot be {given!r}; write a list of some of {', '.join(KINDS)}, or several lists "
            "that have none in common"
        )
    return found


def _hosts(label: str, given: object, cluster: Cluster) -> tuple[int, ...]:
    if given is True or given is False:
        return tuple(range(cluster.hosts)) if given else ()
    listed = given if isinstance(given, list | tuple) else [given]
    found: list[int] = []
    for each in listed:
        if isinstance(each, str) and (match := RANGE.fullmatch(each)) and int(match[1]) <= int(match[2]):
            low, high = int(match[1]), int(match[2])
        elif isinstance(each, int) and not isinstance(each, bool):
            low = high = each
        else:
            raise Impossible(f"{label}: `hosts` cannot be {each!r}; write numbers, or '0-3' for several")
        if low < 0 or high >= cluster.hosts:
            wrong = low if low < 0 else high
            raise Impossible(f"{label}: there is no host {wrong}; hosts are 0 to {cluster.hosts - 1}")
        found += range(low, high + 1)
    return tuple(found)


def _clients(label: str, given: object) -> tuple[str, ...]:
    if given is True or given is False:
        return ()
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
        raise Impossible(f"{label}: `clients` cannot be {given!r}; write their names, or true for all")
    return tuple(given)


def _once(label: str, found: list[Shared]) -> None:
    """Refuses tables that put a process on two machines."""
    seen: dict[object, None] = {}
    for shared in found:
        here: list[object] = [f"host {host}" for host in shared.hosts]
        here += [f"client {name!r}" for name in shared.clients]
        here += ["the controller"] if shared.controller else []
        here += ["`clients = true`"] if shared.other_clients else []
        for each in here:
            if each in seen:
                raise Impossible(f"{label}: {each} stands in [[shared]] twice; a process is on one machine")
            seen[each] = None
