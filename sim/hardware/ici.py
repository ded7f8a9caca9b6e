"""How long a collective takes on the links between its group's devices, by the standard cost formulas.

Let each of N members have V bytes in all at the end, and let a link carry W bytes a second one way:
- all-gather on a ring of n, in both directions at once: V (n-1)/n / 2W, and n/2 hops; on a line, whose ends have one
  neighbour: V (n-1)/n / W, and n-1 hops; behind a switch: V (n-1)/n / W, and log2 n steps.
- on several axes the data are split, and every part takes the axes in another order, so that all links work. With
  the best split, the time is set by the set S of axes that has the fewest links for what it must carry at
  least: the maximum over S of V (P-1)/N / (sum of W over S), where P is the number of members along S.
- reduce-scatter takes as long as all-gather; all-reduce is a reduce-scatter and an all-gather.
- all-to-all: each axis carries the data that cross its middle, and all axes do so at once.
- permute: each member sends to the next; a link carries as many messages as a step has hops.
"""

from functools import lru_cache
from itertools import combinations
from math import ceil, prod

from core.model import Island, Place

from .axes import Axis, AxisGroup, axes_of, groups_of, hops_to_next, hosts_joined, link, network
from .chips import Chip
from .kernels import Collective, Kernel

SECOND = 1e9  # in nanoseconds
FIRST = 8  # steps of a permute by which its other steps are judged

Where = tuple[Place, Island, Chip]
# Keyed by the kernel's identity (the kernel is kept alive beside it): hashing hundreds of collectives would take
# longer than all else here.
_prices: dict[int, tuple[Kernel, dict[Where, int]]] = {}


def kernel_time(kernel: Kernel, place: Place, island: Island, chip: Chip) -> int:
    """Nanoseconds that a computation takes on the devices of a place: its own time, and that of each collective."""
    if id(kernel) not in _prices:
        if len(_prices) > 4096:
            _prices.clear()
        _prices[id(kernel)] = kernel, {}
    _, prices = _prices[id(kernel)]
    where = place, island, chip
    if where not in prices:
        of_all = sum(collective_time(one, place, island, chip) for one in kernel.collectives)
        prices[where] = kernel.duration + of_all
    return prices[where]


@lru_cache(maxsize=65_536)
def collective_time(collective: Collective, place: Place, island: Island, chip: Chip) -> int:
    """Nanoseconds of all `count` executions, without what compute beside them hides. Where groups lie differently,
    the slowest one counts."""
    groups = groups_of(place, collective.groups)
    longest = max(_of_group(collective, group, place, island, chip) for group in groups)
    return collective.count * max(0, longest - collective.hidden)


def road_times(kernel: Kernel, place: Place, island: Island, chip: Chip, small: int) -> tuple[int, int] | None:
    """For how long its collectives take the links between devices, and the hosts' network cards. None: neither. What
    has `small` bytes or less, or goes from one device of a chip to another, takes neither."""
    links = cards = 0
    for one in kernel.collectives:
        if one.nbytes > small:
            took = collective_time(one, place, island, chip)
            groups = groups_of(place, one.groups)
            if island.torus:
                links += took * any(hops_to_next(place, group, island, chip).any() for group in groups)
            else:
                joined = max(hosts_joined(place, group, island) for group in groups)
                cards += took * (joined > 1)
                links += took * (groups[0].size > joined)
    return (links, cards) if links or cards else None


def _of_group(collective: Collective, group: AxisGroup, place: Place, island: Island, chip: Chip) -> int:
    nbytes = collective.nbytes
    if group.size == 1:
        return 0
    if collective.kind == "permute":
        return ceil(_permute(nbytes, group, place, island, chip))
    axes = axes_of(place, group, island, chip)
    if collective.kind == "all-to-all":
        return ceil(all_to_all(nbytes, axes))
    if collective.kind == "all-gather":
        return ceil(gather(nbytes * group.size, axes))
    return ceil(gather(nbytes, axes)) * (2 if collective.kind == "all-reduce" else 1)


def gather(total: int, axes: tuple[Axis, ...]) -> float:
    """Nanoseconds until every member has all of `total` bytes, when each member begins with an equal share."""
    least = max(
        (prod(axis.size for axis in some) - 1) / sum(axis.ways * axis.bandwidth for axis in some)
        for count in range(1, len(axes) + 1)
        for some in combinations(axes, count)
    )
    members = prod(axis.size for axis in axes)
    return total / members * least * SECOND + sum(axis.steps * axis.latency for axis in axes)


def all_to_all(nbytes: int, axes: tuple[Axis, ...]) -> float:
    """Nanoseconds until every member has sent each other member its part of the `nbytes` that it holds."""
    slowest = max(_crossing(axis) / axis.bandwidth for axis in axes)
    steps = sum((1 if axis.kind == "switch" else axis.steps) * axis.latency for axis in axes)
    return nbytes * slowest * SECOND + steps


def _crossing(axis: Axis) -> float:
    """How much the busiest link carries one way, when each member sends one unit in all."""
    if axis.kind == "switch":
        return (axis.size - 1) / axis.size
    halves = (axis.size // 2) * ((axis.size + 1) // 2) / axis.size
    return halves / 2 if axis.kind == "ring" else halves


# --- permute: each member sends to the next -------------------------------------------------------------------


def _permute(nbytes: int, group: AxisGroup, place: Place, island: Island, chip: Chip) -> float:
    """Nanoseconds of a permute. The latency is that of the longest step, and the step from the last member back to
    the first counts as one. Most steps resemble the first few; where those have several hops, as many messages
    share a link."""
    if not island.torus:
        away = network(island, chip) if hosts_joined(place, group, island) > 1 else link(island, chip)
        return away.latency + nbytes / away.bandwidth * SECOND
    hops = hops_to_next(place, group, island, chip)
    far = hops[hops > 0]
    if not len(far):
        return chip.core_latency + nbytes / chip.core_bandwidth * SECOND
    first = hops[: min(FIRST, group.size - 1)]
    most = first[first > 0] if first.any() else far
    together = 1 if len(far) < len(hops) else chip.devices_per_chip  # devices of a chip that send out of it
    hop = link(island, chip)
    return int(far.max()) * hop.latency + nbytes * together * float(most.mean()) / hop.bandwidth * SECOND
