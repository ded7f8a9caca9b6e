"""Random worlds for a placement: slices that are asked for and released, and hosts that are lost, as plain values.

Times are those of jobs, seconds to hours. In a world of `crowded_slices`, narrow slices follow each other, and a wide
one wants devices, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar

import msgspec

from core.model import Cluster, Island

S = 1_000_000_000
LASTS = (5 * S, 30 * S, 120 * S, 900 * S, 7200 * S)
CROWD = 130  # slices of a client of a crowded world, one after the other
FLAT = Island(name="flat", hosts=2, devices_per_host=4, kind="slow")
GRID = Island(name="grid", hosts=4, devices_per_host=2, kind="slow", torus=(2, 4), wraps=(False, False))
TORUS = Island(name="torus", hosts=2, devices_per_host=4, kind="fast", torus=(2, 4))
SMALL = Island(name="small", hosts=1, devices_per_host=4, kind="fast")
Loss = tuple[int, int, int]  # a host, when it is lost, when it comes back


class ComingSlice(msgspec.Struct, frozen=True):
    """A slice that is asked for at a time, and released when it has had devices for so long."""

    PLAINER: ClassVar[tuple[dict[str, Any], ...]] = (
        {"sizes": ()}, {"mesh": ()}, {"kind": ""}, {"exclusive": True}, {"says": 0}, {"client": 0}, {"again": 0},
        {"at": 0}, {"devices": 1, "mesh": ()}, {"lasts": LASTS[1]},
    )  # fmt: skip

    at: int
    client: int  # its weight and its priority grow with its number
    devices: int
    lasts: int
    says: int = 0  # how long it says that it needs them, but half as long on fast ones; 0: nothing
    mesh: tuple[int, ...] = ()
    kind: str = ""
    exclusive: bool = True
    sizes: tuple[int, ...] = ()  # if a policy resizes: it may have any of these
    again: int = 0  # when it is released, the next one like it is asked for; so many of them

    def __str__(self) -> str:
        said = {"mesh": "x".join(map(str, self.mesh)), "kind": self.kind, "of sizes": self.sizes, "says": self.says / S}
        more = "".join(f", {what} {value}" for what, value in said.items() if value) + ", shared" * (not self.exclusive)
        return f"{self.devices} device{'s' * (self.devices != 1)} for {self.lasts // S} s{more}"


class PlacementWorld(msgspec.Struct, frozen=True):
    coming: tuple[ComingSlice, ...]
    islands: tuple[Island, ...]
    losses: tuple[Loss, ...] = ()

    def __str__(self) -> str:
        slices, islands = len(self.coming), "; ".join(Cluster(self.islands).describe().splitlines())
        return f"{slices} slice{'s' * (slices != 1)}; {islands}"

    def plainer(self) -> Iterator[PlacementWorld]:
        for losses in ((), self.losses[1:]):
            yield PlacementWorld(self.coming, self.islands, losses)
        yield PlacementWorld(self.coming, self.islands[:1])


def draw_slices(rng: Random) -> PlacementWorld:
    islands = tuple(rng.sample((FLAT, GRID, TORUS, SMALL), rng.randint(1, 2)))
    largest, losses, slices = max(island.devices for island in islands), [], []
    for _ in range(rng.choice((0, 0, 1, 2))):
        at = rng.randint(1, 600) * S
        losses.append((rng.randrange(islands[0].hosts), at, at + rng.randint(5, 300) * S))
    for _ in range(rng.randint(2, 12)):
        lasts, mesh = rng.choice(LASTS), rng.choice(((), (), (2, 2), (4, 1), (2, 4)))
        devices = mesh[0] * mesh[1] if mesh else rng.choice((1, 2, 2, 3, 4, largest))
        sizes = (devices, 2 * devices) if not mesh and rng.random() < 0.5 else ()
        at, says = rng.choice((0, 60, 1000)), rng.choice((0, lasts, lasts, lasts // 3, 4 * lasts))
        slices.append(
            ComingSlice(
                rng.randint(0, at) * S, rng.randrange(4), devices, lasts, says, mesh,
                rng.choice(("", "", islands[0].kind)), rng.random() < 0.85, sizes, rng.choice((0, 0, 3)),
            )
        )  # fmt: skip
    return PlacementWorld(tuple(slices), islands, tuple(losses))


def crowded_slices(rng: Random) -> PlacementWorld:
    """The crowd has two halves of the devices, and does not give them back together; the wide one needs both."""
    says, lasts = rng.choice((0, 1)), (50 * S, rng.choice((35, 70)) * S)
    crowd = [ComingSlice(each * S, each, 4, lasts[each], says * lasts[each], again=CROWD) for each in (0, 1)]
    alone = ComingSlice(rng.randint(5, 60) * S, 2, 8, rng.choice(LASTS[:4]))
    return PlacementWorld((*crowd, alone), (rng.choice((FLAT, GRID, TORUS)),))
