"""Which ports contents pass on their way from devices to devices, and how fast each of them is.

    devices' own -> their host's -> [its island's uplink -> the other's downlink] -> the receiving host's -> devices'

Over a torus these are links: those of the chips that take part, and those of all chips on the side that the host turns
to the other one; hosts in between are not modelled. Otherwise they are what the devices reach of their host's network
cards (cards of their own, or PCIe), and all these cards; where the network is oversubscribed, all traffic that leaves
an island, or comes to it, shares one port. Within a host they are what the devices' links carry out, and in.

Devices that take part in one transfer share a port, since core sends their pieces one behind the other, and drivers
read ahead. So two transfers of the same devices share it, too; of two that have only some devices in common, each has
these to itself.

Neighbours: `ports` are what can carry one thing at a time; `bulk` takes contents from port to port. The functions that
matter: `route`, `ways_of`, `taking_part`.
"""

from functools import cache, lru_cache, partial
from math import prod
from typing import Any, NamedTuple

from core.model import Cluster, Island, Layout, Layouts, Piece, of_each, sends

from ..hardware import Setup, link
from .held_roads import Collectives
from .ports import Ports

Name = int


class IslandRoads(NamedTuple):
    """The bandwidths of an island, in bytes a second; with 0, sending takes no time."""

    nic: float  # of all cards of a host
    card: float  # what one device reaches of that
    ici: float  # a link of a chip; without a torus: of a device into its host's switch
    torus: bool
    hop: int = 0  # nanoseconds from a host to another, over the torus
    core: float = 0  # between devices of one chip; 0: as `ici`
    hbm: float = 0  # within a device
    chip: int = 1  # devices of a chip, which share its links


def ways_of(setup: Setup) -> tuple[IslandRoads, ...]:
    """By island."""
    found = []
    usual = setup.dcn.bandwidth == setup.machine.nic_bandwidth
    for island, chip, machine in zip(setup.cluster.islands, setup.chips, setup.machines, strict=True):
        ici, nic = link(island, chip), machine.nic_bandwidth if usual else setup.dcn.bandwidth
        # a host's cards are no faster than the buses behind them
        nic = min(nic, chip.pcie_bandwidth * island.devices_per_host)
        card = min(chip.pcie_bandwidth, chip.network_bandwidth or chip.pcie_bandwidth)
        found.append(
            IslandRoads(nic, card, ici.bandwidth, bool(island.torus), int(ici.latency), chip.core_bandwidth,
                 chip.hbm_bandwidth, chip.devices_per_chip)
        )  # fmt: skip
    return tuple(found)


class Leg(NamedTuple):
    """A part of a route. `after`: nanoseconds from here to the next port. `far`: things that arrive here at one time
    pass in the order of their senders; else, of their receivers."""

    port: int
    bandwidth: float
    after: int = 0
    far: bool = False


Route = tuple[Leg, ...]
Devices = tuple[int, ...]


def taking(nbytes: int, bandwidth: float) -> int:
    return int(nbytes * 1e9 / bandwidth) if bandwidth else 0


class Roads:
    """`latency`: of the network between hosts; `pcie_latency`: of the bus at either end; `client_nic`: the bandwidth of
    a client's card."""

    def __init__(
        self, cluster: Cluster, ways: tuple[IslandRoads, ...], latency: int, pcie_latency: int, client_nic: float,
        oversubscription: float, ports: Ports,
    ) -> None:  # fmt: skip
        self._cluster, self._ways, self._oversubscription = cluster, ways, oversubscription
        self.ports, self.collectives = ports, Collectives(cluster, ports, [each.chip for each in ways])
        self._island_of = [island.index for island in cluster.islands for _ in range(island.hosts)]
        # how long the first byte is under way from a card to a card, with the buses at both ends
        self.way = latency + 2 * pcie_latency
        self.client_nic = client_nic
        self.route = lru_cache(maxsize=1 << 16)(self._route)

    # --- which way ------------------------------------------------------------------------------------------

    def by_torus(self, sender: Name, receiver: Name) -> bool:
        if sender < 0 or receiver < 0 or self._island_of[sender] != self._island_of[receiver]:
            return False
        ways = self._ways[self._island_of[sender]]
        return ways.torus and bool(ways.ici)

    def by_card(self, sender: Name, receiver: Name) -> bool:
        """Whether contents between these hosts go over their network cards."""
        return sender != receiver and not self.by_torus(sender, receiver)

    def by_uplink(self, sender: Name, receiver: Name) -> bool:
        """Whether they share an uplink of the sender's island with others."""
        return self._oversubscription > 1 and self._island_of[sender] != self._island_of[receiver]

    def _number(self, *name: Any) -> int:
        """The number of a port, named by its kind, then the host or the devices that have it."""
        port = self.ports.number(name)
        self.collectives.add(port, name)
        return port

    # --- from port to port ----------------------------------------------------------------------------------

    def _route(self, sender: Name, receiver: Name, sources: Devices = (), targets: Devices = ()) -> Route:
        """`sources`, `targets`: the devices of the two hosts that take part, which share the work; none: not known, or
        no device's contents."""
        if sender == receiver:
            return self._within(sender, sources, targets)
        if self.by_torus(sender, receiver):
            return self._over_torus(sender, receiver, sources, targets)
        return self._over_cards(sender, receiver, sources, targets)

    def _within(self, host: Name, sources: Devices, targets: Devices) -> Route:
        ways = self._ways[self._island_of[host]]
        if not sources:
            devices = self._cluster.island_of_host(host).devices_per_host
            return (Leg(self._number("own", host), ways.ici * (devices // ways.chip)),)
        if sources == targets and len(sources) == 1:
            return (Leg(self._number("memory", sources), ways.hbm),)
        one, other = _chips(sources, ways), _chips(targets, ways)
        if one == other and len(one) == 1 and ways.core:
            return (Leg(self._number("core", one), ways.core),)
        return (
            Leg(self._number("from", one), ways.ici * len(one)),
            Leg(self._number("to", other), ways.ici * len(other), far=True),
        )

    def _over_torus(self, sender: Name, receiver: Name, sources: Devices, targets: Devices) -> Route:
        island = self._cluster.island_of_host(sender)
        ways = self._ways[island.index]
        out, into = faces(island, ways.chip, sender, receiver)
        one, other = _chips(sources, ways), _chips(targets, ways)
        found = []
        if 0 < len(one) < out.links:
            found.append(Leg(self._number("links", one, *out[:2]), ways.ici * len(one)))
        found.append(Leg(self._number("side", sender, *out[:2]), ways.ici * out.links, ways.hop))
        found.append(Leg(self._number("side in", receiver, *into[:2]), ways.ici * into.links, far=True))
        if 0 < len(other) < into.links:
            found.append(Leg(self._number("links in", other, *into[:2]), ways.ici * len(other), far=True))
        return tuple(found)

    def _over_cards(self, sender: Name, receiver: Name, sources: Devices, targets: Devices) -> Route:
        one, other = (self._island_of[host] for host in (sender, receiver))
        here, there = self._ways[one], self._ways[other]
        found = []
        if 0 < len(sources) * here.card < here.nic:
            found.append(Leg(self._number("cards", sources), here.card * len(sources)))
        if self.by_uplink(sender, receiver):
            found.append(Leg(self._number("out", sender), here.nic))
            found.append(Leg(self._number("uplink", one), self._shared(one), self.way, far=True))
            found.append(Leg(self._number("downlink", other), self._shared(other), far=True))
        else:
            found.append(Leg(self._number("out", sender), here.nic, self.way))
        found.append(Leg(self._number("in", receiver), there.nic, far=True))
        if 0 < len(targets) * there.card < there.nic:
            found.append(Leg(self._number("cards in", targets), there.card * len(targets), far=True))
        return tuple(found)

    def _shared(self, index: int) -> float:
        return self._ways[index].nic * self._cluster.islands[index].hosts / self._oversubscription


# --- which links of a torus one host turns to another -----------------------------------------------------------------


class Face(NamedTuple):
    """One side of a host: contents pass it along this axis, in this direction. `links`: how many chips have one."""

    axis: int
    upwards: bool
    links: int


@cache
def faces(island: Island, devices_per_chip: int, sender: int, receiver: int) -> tuple[Face, Face]:
    """The side by which contents leave, on the way along the first axis on which the two hosts differ; and the one by
    which they come, along the last such axis."""
    hosts = tuple(size // part for size, part in zip(island.torus, island.block, strict=True))
    here, there = (_at(island, host) for host in (sender, receiver))
    axes = [number for number, (one, other) in enumerate(zip(here, there, strict=True)) if one != other]
    chips = (*island.block[:-1], -(-island.block[-1] // devices_per_chip))
    found = []
    for axis in (axes[0], axes[-1]):
        ahead = (there[axis] - here[axis]) % hosts[axis]
        upwards = 2 * ahead <= hosts[axis] if island.wraps[axis] else there[axis] > here[axis]
        found.append(Face(axis, upwards, prod(chips) // chips[axis]))
    return found[0], found[1]


def _at(island: Island, host: int) -> tuple[int, ...]:
    """Where a host lies among the hosts."""
    first = island.coords(island.base_device + (host - island.base_host) * island.devices_per_host)
    return tuple(at // part for at, part in zip(first, island.block, strict=True))


# --- which devices take part ------------------------------------------------------------------------------------------


def _chips(devices: Devices, ways: IslandRoads) -> Devices:
    """Each named by its first device, since islands differ in how many devices a chip has."""
    return tuple(dict.fromkeys(device - device % ways.chip for device in devices))


class Taking(NamedTuple):
    """The devices of a sender and of a receiver that take part in a transfer between the two; and of pieces that a
    device keeps (by number): that device."""

    sources: Devices
    targets: Devices
    kept: dict[int, Devices]


def _sends(source: Layout, target: Layout, sender: Name, hosts: Cluster) -> list[tuple[int, int, Piece]]:
    """(which device sends a piece, which one gets it first, the piece)."""
    return [
        (source.place.device(piece.source), target.place.device(piece.targets[0]), piece)
        for piece in sends(source, target, sender, hosts)
    ]


@lru_cache(maxsize=1 << 14)
def taking_part(sources: Layouts, targets: Layouts, sender: Name, hosts: Cluster) -> dict[Name, Taking]:
    """By receiver of what this host sends."""
    found: dict[Name, tuple[dict[int, None], dict[int, None], dict[int, Devices]]] = {}
    for first, pieces in of_each(sources, targets, partial(_sends, sender=sender, hosts=hosts)):
        for one, other, piece in pieces:
            ones, others, kept = found.setdefault(piece.receiver, ({}, {}, {}))
            if one == other:
                kept[first + piece.number] = (one,)
            else:
                ones[one] = others[other] = None
    return {
        receiver: Taking(tuple(sorted(ones)), tuple(sorted(others)), kept)
        for receiver, (ones, others, kept) in found.items()
    }
