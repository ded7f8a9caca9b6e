"""`noise.compute`: hosts take longer by themselves, and a collective as long as its slowest host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import seaway as sw

CALLS = 200
MORE = 0.1


def took(hosts: int, fidelity: Any, collective: bool) -> Any:
    """Milliseconds of each gang of 10 ms, on so many hosts."""
    noise: Any = {"compute": MORE}
    with sw.simulate("B", hosts=hosts, noise=noise, seed=3, profile="ideal", fidelity=fidelity) as session:
        step = sw.synthetic("step", devices=8 * hosts, duration="10ms", collective=collective)
        sw.block_until_ready([step(np.float32(0)) for _ in range(CALLS)])
    return session.trace.gangs()["duration_us"].to_numpy() / 1e3


@pytest.mark.parametrize("hosts", [1, 4, 64])
def test_a_collective_takes_as_long_as_the_slowest_of_its_hosts(hosts: int) -> None:
    """The mean of the largest of n uniform draws is n / (n + 1) of their range; its deviation is known, too."""
    found = took(hosts, "cohort", collective=True)
    mean = 10 * (1 + MORE * hosts / (hosts + 1))
    deviation = 10 * MORE * (hosts / (hosts + 2)) ** 0.5 / (hosts + 1)
    assert found.mean() == pytest.approx(mean, abs=4 * deviation / CALLS**0.5)
    assert found.std() == pytest.approx(deviation, rel=0.25)


@pytest.mark.parametrize("collective", [True, False])
def test_the_fidelities_draw_the_same(collective: bool) -> None:
    exact, cohort = (took(4, fidelity, collective) for fidelity in ("exact", "cohort"))
    assert (exact == cohort).all()
