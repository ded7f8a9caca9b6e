"""How long a computation takes on its devices: its own time, and that of its collectives."""

from __future__ import annotations

from core.model.place import line
from sim.hardware.ici import collective_time, kernel_time
from sim.hardware.kernels import Collective, Kernel

from .test_ici import PLAIN, torus


def test_a_kernel_takes_its_own_time_and_that_of_its_collectives() -> None:
    island = torus(4, 4)
    reduce, gather = Collective("all-reduce", 4096, count=3), Collective("all-gather", 512, ((4, 1),))
    kernel = Kernel("step", 330_000, (reduce, gather))
    parts = [collective_time(one, island.whole, island, PLAIN) for one in (reduce, gather)]
    assert min(parts) > 0
    for _ in range(2):  # first computed, then cached
        assert kernel_time(kernel, island.whole, island, PLAIN) == 330_000 + sum(parts)
    assert kernel_time(kernel, line(0, 0, 4), island, PLAIN) < 330_000 + sum(parts)
    assert kernel_time(Kernel("add", 17), island.whole, island, PLAIN) == 17
