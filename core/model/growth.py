"""How a cluster may grow while it runs: hosts and devices that are there keep their numbers.

So new islands come at the end, and new hosts in the last island, unless that is a torus: there, a device's number and
its coordinates follow from the torus's shape. `why_not_grown` says what else is wrong with a larger cluster, and what
to do. Hosts and clients know which devices each host has (`KnownHosts`), and are told when there are more.

Neighbours: `topology`, the clusters themselves; `resharding`, which asks `Hosts`.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from msgspec.structs import replace

from .errors import Impossible
from .resharding import Hosts
from .topology import MOST_DEVICES, Cluster, Island

AllHosts = tuple[tuple[int, int], ...]  # in the order of their numbers: so many hosts, with so many devices each
FIELDS = [name for name in Island.__struct_fields__ if name not in ("assumed", "index", "base_host", "base_device")]


def all_hosts(cluster: Cluster) -> AllHosts:
    found: list[tuple[int, int]] = []
    for island in cluster.islands:
        hosts, devices = island.hosts, island.devices_per_host
        if found and found[-1][1] == devices:
            hosts += found.pop()[0]
        found.append((hosts, devices))
    return tuple(found)


class KnownHosts:
    """Implements `Hosts` for a process that begins with some hosts and learns of more. What it has answered stays
    true."""

    def __init__(self, hosts: Hosts) -> None:
        self._told: AllHosts = ()
        self._hosts = hosts
        if isinstance(hosts, KnownHosts):
            self._told, self._hosts = hosts._told, hosts._hosts

    def learn(self, told: AllHosts) -> str:
        """Returns what is wrong with it; "" if nothing is."""
        if told == self._told:
            return ""
        if not told or min(map(min, told)) < 1 or sum(count * devices for count, devices in told) > MOST_DEVICES:
            return f"a cluster cannot have the hosts {told[:8]}"
        self._told, self._hosts = told, _Counted(told)
        return ""

    def host_of(self, device: int) -> int:
        return self._hosts.host_of(device)

    def devices_of(self, host: int) -> range:
        return self._hosts.devices_of(host)


class _Counted:
    """Implements `Hosts`."""

    def __init__(self, told: AllHosts) -> None:
        self._devices_each = [devices for _, devices in told]
        self._hosts = [0, *accumulate(count for count, _ in told)]
        self._devices = [0, *accumulate(count * devices for count, devices in told)]

    def host_of(self, device: int) -> int:
        at = self._at(self._devices, device, "device")
        return self._hosts[at] + (device - self._devices[at]) // self._devices_each[at]

    def devices_of(self, host: int) -> range:
        at = self._at(self._hosts, host, "host")
        first = self._devices[at] + (host - self._hosts[at]) * self._devices_each[at]
        return range(first, first + self._devices_each[at])

    @staticmethod
    def _at(firsts: list[int], number: int, what: str) -> int:
        if not 0 <= number < firsts[-1]:
            raise Impossible(f"no {what} {number}; {what}s are 0-{firsts[-1] - 1}, as far as is known here")
        return bisect_right(firsts, number) - 1


# --- what a larger cluster may be ---------------------------------------------------------------------------------


NUMBERED = ("name", "devices_per_host", "base_host", "base_device", "torus", "block", "wraps")


def same_numbers(cluster: Cluster, larger: Cluster) -> bool:
    """Whether all hosts and devices of a cluster have the same islands, numbers and places in another one."""
    pairs = list(zip(cluster.islands, larger.islands, strict=False))
    return len(pairs) == len(cluster.islands) and all(
        all(getattr(one, name) == getattr(other, name) for name in NUMBERED) and one.hosts <= other.hosts
        for one, other in pairs
    )


def why_not_grown(cluster: Cluster, larger: Cluster) -> str:
    """Why a running cluster cannot become this one; "" if it can."""
    names = [island.name for island in larger.islands]
    for at, island in enumerate(cluster.islands):
        if island.name not in names:
            return f"it has no island {island.name!r} any more: drain the hosts of an island, and leave it in the file"
        if names[at] != island.name:
            return f"island {names[at]!r} comes before island {island.name!r}: new islands come last, behind all others"
        wrong = _changed(island, larger.islands[at], last=island is cluster.islands[-1])
        if wrong:
            return wrong
    dcn = ("dcn_bandwidth", "dcn_latency")
    if changed := next((name for name in dcn if getattr(cluster, name) != getattr(larger, name)), ""):
        return f"`{changed}` has changed, and what is there does not change while it runs"
    if larger.hosts == cluster.hosts:
        return f"it has no more hosts than there are, {cluster.hosts}"
    return ""


def beginning(cluster: Cluster, hosts: int) -> Cluster:
    """The part of a cluster that its first hosts are. Raises Impossible if it could not grow from there."""
    if not 0 < hosts < cluster.hosts:
        raise Impossible(f"hosts before {hosts}, of {cluster.hosts}: 1 to {cluster.hosts - 1} can be there at first")
    last = cluster.island_of_host(hosts - 1)
    here = hosts - last.base_host
    if here < last.hosts and last.torus:
        raise Impossible(f"host {hosts} later: island {last.name!r} is a torus, of which all hosts come together")
    part = last if here == last.hosts else replace(last, hosts=here)
    return replace(cluster, islands=(*cluster.islands[: last.index], part))


def _changed(island: Island, larger: Island, last: bool) -> str:
    """What is wrong with what an island is to become."""
    here = f"island {island.name!r}"
    if island.hosts > larger.hosts:
        return f"{here} has {larger.hosts} hosts, not {island.hosts}: drain hosts that are to go, and leave them there"
    if island.hosts < larger.hosts and island.torus:
        return f"{here} is a torus, whose shape cannot change: give new hosts an island of their own, behind the others"
    for name in FIELDS:
        was, is_now = getattr(island, name), getattr(larger, name)
        if was != is_now and name != "hosts":
            return (
                f"{here}: `{name}` was {was!r} and is {is_now!r}. What is there does not change while it runs: change "
                "it back, or start the controller again"
            )
    if island.hosts < larger.hosts and not last:
        return (
            f"{here} has {larger.hosts} hosts, not {island.hosts}, but only the last island takes more, since hosts "
            "keep their numbers: give new hosts an island of their own, behind the others"
        )
    return ""


def larger_of(kept: Cluster, given: Cluster) -> Cluster | None:
    """The cluster with which a controller starts again that has had the hosts of `kept`, and is given another; None if
    some host would be gone, or be another one."""
    if same_numbers(kept, given):
        return given
    return None if why_not_grown(given, kept) else kept
