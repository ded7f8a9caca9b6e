"""The interface of a placement: a policy that also says which slices have devices now, which ones, and how many.

Other policies say only in which order slices wait (`Policy.slice_rank`). A `Placement` is asked whenever a slice is
asked for, released or lost, when devices come or go, and at the times that it names (`ClusterView.wake`). It spans all
islands. It acts by calls of the view, at once, so what it sees next is true:

    class FirstComeFirstServed(Placement):
        def decide(self, cluster: ClusterView) -> None:
            for wanted in cluster.waiting:
                if not cluster.start(wanted):
                    return

What it does not start waits. It must not read a clock, and must answer alike when it sees alike. Gangs enter in the
order of their runs (`pick`), unless another policy's `pick` is inherited before this one's.

Neighbours: the controller's `placements` keeps what is known of slices, and does what is said here.
"""

from abc import abstractmethod
from typing import ClassVar

from .base import Policy, Ready, Ticket
from .cluster_view import ClusterView


class Placement(Policy):
    """The base class of policies that place slices. Only `decide` must be written."""

    takes_the_only_one = True
    resizes: ClassVar[bool] = False  # if True, slices of several sizes grow and shrink only as it says

    @abstractmethod
    def decide(self, cluster: ClusterView) -> None:
        """Start, suspend, move and resize slices. What is left alone stays as it is."""

    def pick(self, ready: Ready, now: int) -> Ticket:
        return ready.best()


class FirstFit(Placement):
    """Each slice starts as soon as it fits, in the order in which they were asked for. Wide ones may starve."""

    def decide(self, cluster: ClusterView) -> None:
        for use in cluster.waiting:
            cluster.start(use)


class InTurn(Placement):
    """First come, first served: none starts before one that was asked for earlier."""

    def decide(self, cluster: ClusterView) -> None:
        for use in cluster.waiting:
            if not cluster.start(use):
                return


class Spread(Placement):
    """First come, first served; each on the island with most free devices, over as many hosts as can be."""

    def decide(self, cluster: ClusterView) -> None:
        for use in cluster.waiting:
            islands = sorted(cluster.suits(use), key=lambda island: -island.free)
            if not any(cluster.start(use, island, layout="spread") for island in islands):
                return


class BestKind(Placement):
    """First come, first served; each on the free devices of the kind on which it takes least time.

    It waits for devices that would be free later if it would be over earlier there.
    """

    def decide(self, cluster: ClusterView) -> None:
        for use in cluster.waiting:
            over = {}
            for island in cluster.suits(use):
                at, _ = cluster.free_at(use, island)
                over[at + use.left(island.kind, cluster.now), island.island.index] = island
            if not over or not cluster.start(use, over[min(over)]):
                return
