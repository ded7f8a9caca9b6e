"""The model's parts: a cluster without one can be simulated, and a part is worth the error that it removes."""

from __future__ import annotations

import copy
import tomllib

import pytest

import seaway as sw
from experiments.bench.prediction import parts
from experiments.bench.prediction.parts import PARTS, without, worth

from .test_prediction import CLUSTER, a_row

COSTS = ("complete", "complete_more")


@pytest.mark.parametrize("part", PARTS)
def test_a_cluster_without_a_part_is_another_that_can_be_simulated(part: str) -> None:
    table = tomllib.loads(CLUSTER.replace("python = true", "python = true\ndevices = true"))
    table["profile"]["costs"] = {cost: 1000 * at for at, cost in enumerate(COSTS, start=5)}
    before = copy.deepcopy(table)
    changed = without(part, table)
    assert table == before
    assert changed != before
    with sw.simulate(changed, hosts=2, progress=False) as session:
        step = sw.synthetic("step", devices=sw.slice(devices=2), duration="1ms", collective=False)
        step(1.0).block_until_ready()
        assert session.now() > 0.001


def test_a_part_is_worth_the_error_that_predictions_have_without_it() -> None:
    with_it = [a_row(0.1), a_row(-0.2, quantity="hop"), a_row(0.3, quantity="share")]
    without_it = [a_row(0.5), a_row(-0.4, quantity="hop")]
    found = worth("wake", with_it, without_it)
    assert (found.errors, found.without) == ([0.1, -0.2], [0.5, -0.4])
    figures = parts.shown([found]).splitlines()[-1].split()
    assert figures[:5] == ["wake", "2", "15.0%", "45.0%", "+30.0"]
