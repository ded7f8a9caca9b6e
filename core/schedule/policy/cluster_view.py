"""What a placement sees of the cluster, and what it may do.

Neighbours: `placement`, which is handed it; the controller's `placements`, which does what is said here.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Literal, Protocol

import msgspec

from ...model import Island, spans
from .slice_use import NEVER, SliceUse


class IslandUse(msgspec.Struct, eq=False):
    """An island, as it is now."""

    island: Island
    _free: Callable[[int], Sequence[int]]

    @property
    def name(self) -> str:
        return self.island.name

    @property
    def kind(self) -> str:
        return self.island.kind

    @property
    def free_devices(self) -> Sequence[int]:
        """Numbers of the devices that no slice has. `island.coords` says where one is on a torus."""
        return self._free(self.island.index)

    @property
    def free(self) -> int:
        return len(self.free_devices)


class SliceActions(Protocol):
    """What the view is made over."""

    def islands(self) -> Sequence[IslandUse]: ...
    def waiting(self) -> list[SliceUse]: ...
    def running(self) -> list[SliceUse]: ...
    def suits(self, use: SliceUse) -> list[int]: ...
    def transfers(self) -> Mapping[tuple[str, str], int]: ...
    def fits(self, use: SliceUse, island: int, gone: Sequence[SliceUse]) -> bool: ...
    def start(self, use: SliceUse, island: int, devices: Sequence[int], layout: str) -> bool: ...
    def keep(self, use: SliceUse, island: int) -> bool: ...
    def suspend(self, use: SliceUse) -> bool: ...
    def move(self, use: SliceUse, island: int) -> bool: ...
    def resize(self, use: SliceUse, devices: int) -> bool: ...
    def wake(self, at: int) -> None: ...


class ClusterView:
    """All slices and islands, as they are now."""

    __slots__ = ("_actions", "now")

    def __init__(self, actions: SliceActions, now: int) -> None:
        self._actions, self.now = actions, now

    # --- what there is -------------------------------------------------------------------------------------------

    @property
    def islands(self) -> Sequence[IslandUse]:
        return self._actions.islands()

    @property
    def waiting(self) -> list[SliceUse]:
        """The slices that want devices and have none, in the order in which they were asked for."""
        return self._actions.waiting()

    @property
    def running(self) -> list[SliceUse]:
        """Those that have devices, in the order in which they were asked for."""
        return self._actions.running()

    @property
    def leaving(self) -> list[SliceUse]:
        """Those that have devices, and were told to leave them."""
        return [use for use in self._actions.running() if use.state == "leaving"]

    @property
    def transfers(self) -> Mapping[tuple[str, str], int]:
        """By the names of two islands: bytes that programs send from the first to the second, and that have not all
        come. What is ordered counts from then on, though it may still wait for what makes it."""
        return self._actions.transfers()

    def suits(self, use: SliceUse) -> list[IslandUse]:
        """The islands that have the name and the kind that the slice asks for."""
        islands = self.islands
        return [islands[index] for index in self._actions.suits(use)]

    def free_at(self, use: SliceUse, island: IslandUse) -> tuple[int, int]:
        """When this island should have room for a slice that waits, if nothing else starts, and how many devices more
        will be free then. On a torus, one that has a mesh needs a block there. Ends are expected ones. (NEVER, 0):
        nobody knows."""
        index, fits = island.island.index, self._actions.fits
        if island.free >= use.devices and fits(use, index, ()):
            return self.now, island.free - use.devices
        here = sorted((each.ends(self.now), each.devices, each.number, each)
                      for each in self.running if each.at and each.at.index == index)  # fmt: skip
        free = [*accumulate((each[1] for each in here), initial=island.free)]
        gone = [each[3] for each in here]
        count = bisect_left(free, use.devices)
        count = bisect_left(range(len(free)), True, count, key=lambda count: fits(use, index, gone[:count]))
        if count == len(free) or here[count - 1][0] == NEVER:
            return NEVER, 0
        return here[count - 1][0], free[count] - use.devices

    def together(self, uses: Iterable[SliceUse]) -> dict[int, IslandUse]:
        """Which of these slices have room at one time, each alone on its devices, if all others leave: the first ones
        first. By their numbers, where: one that runs stays on its island. Any devices will do: a torus may have less
        room."""
        islands = self.islands
        room = [island.free for island in islands]
        for index in range(len(islands)):
            here = [use.where for use in self.running if use.at and use.at.index == index]
            room[index] += spans.count(spans.union(*here))
        found = {}
        for use in uses:
            fit = [use.at.index] if use.at is not None else self._actions.suits(use)
            for index in sorted(fit, key=lambda index: -room[index]):
                if room[index] >= use.devices:
                    room[index] -= use.devices
                    found[use.number] = islands[index]
                    break
        return found

    # --- what is done --------------------------------------------------------------------------------------------

    def start(
        self, use: SliceUse, island: IslandUse | None = None, *, devices: Iterable[int] = (),
        layout: Literal["", "packed", "spread"] = "",
    ) -> bool:  # fmt: skip
        """Give a slice that waits devices: on this island, or where it fits best; these ones, or the best there.

        False: there is no room. layout: another one than it asks for. One that comes back with views of arrays of other
        slices gets the devices that it had, whatever is said here.
        """
        return self._actions.start(use, -1 if island is None else island.island.index, tuple(devices), layout)

    def keep(self, use: SliceUse, island: IslandUse | None = None) -> bool:
        """Keep devices for a slice that waits, where it should have them soonest: what is started later in this
        decision, or moved, does not get them. False: it fits nowhere."""
        return self._actions.keep(use, -1 if island is None else island.island.index)

    def suspend(self, use: SliceUse) -> bool:
        """Take its devices from a slice. Its arrays go to host memory, calls that have been admitted run to their end
        or are cut at a step's end, and then it is one of those that wait. False: it cannot leave now; if it has just
        come back, the policy is asked again when it can."""
        return self._actions.suspend(use)

    def move(self, use: SliceUse, island: IslandUse | None = None) -> bool:
        """Copy a slice's arrays to other devices, where it goes on. False: there are none, or it is on its way; or that
        has just failed, and the policy is asked again when it may be tried again."""
        return self._actions.move(use, -1 if island is None else island.island.index)

    def resize(self, use: SliceUse, devices: int) -> bool:
        """Offer a slice of several sizes another one of them; its client moves to it when it can. False: there is no
        room, or it has not taken the last offer."""
        return self._actions.resize(use, devices)

    def wake(self, at: int) -> None:
        """Ask again at this time, though nothing may have happened."""
        self._actions.wake(at)
