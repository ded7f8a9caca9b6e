"""Clients that share an island, tiny: shares are computed correctly, and every measurement has all its clients."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from experiments.bench.frame.deployed import deployed
from experiments.bench.real import compiling, sharing


def gangs(owners: str, each_us: float) -> pd.DataFrame:
    ended = each_us * np.arange(1, 1 + len(owners))
    return pd.DataFrame({"client": list(owners), "ended_us": ended})


def test_shares_are_those_of_the_middle_second() -> None:
    frame = gangs("a" * 1_000 + "abbb" * 250 + "b" * 1_000, 1_000.0)
    assert sharing.shares_of(frame, ["a", "b", "c"]) == [0.25, 0.75, 0.0]


def test_shares_of_a_short_measurement_are_those_of_its_middle_half() -> None:
    assert sharing.shares_of(gangs("a" * 25 + "ab" * 25 + "b" * 25, 10.0), ["a", "b"]) == [0.5, 0.5]


def test_the_largest_miss_is_relative_to_its_share() -> None:
    assert sharing.missed([0.25, 0.75], [1, 3]) == 0.0
    assert sharing.missed([0.2, 0.8], [1, 3]) == pytest.approx(0.2)
    assert sharing.missed([0.0, 1.0], [1, 3]) == 1.0


def test_all_clients_are_counted_when_they_run_together() -> None:
    with deployed(sharing.HOSTS, processes=1, controller=["--policy", "stride"]) as cluster:
        one = sharing.together(cluster, [1], "100us", 1, 1, seconds=0.2)
        two = sharing.together(cluster, [1, 3], "100us", 4, 3, seconds=0.5)
    assert len(one.gangs) == 1
    assert (one.shares, one.switches) == ([1.0], 0.0)
    assert len(two.gangs) == 2
    assert all(number > 0 and number % 4 == 0 for number in two.gangs)
    assert sum(two.shares) == pytest.approx(1.0)
    assert two.switches > 0
    assert min(one.rate, one.cpu, two.rate, two.cpu) > 0


@pytest.mark.full
def test_a_client_goes_on_while_another_compiles() -> None:
    found = compiling.measured(operations=20, seconds=0.3)
    assert min(found) > 0
