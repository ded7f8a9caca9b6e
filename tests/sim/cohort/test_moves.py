"""The fidelities agree on arrays that move from slice to slice, whatever their size, and whichever hosts they reach."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.controller import Config
from core.model.program import Value
from sim.hardware import load
from sim.hardware.profiles import profile
from sim.simulation import Simulation
from tests.core.build import Build, sharding
from tests.sim import move_scene, scene

SEEDS = st.integers(0, 1 << 20)


def assert_equal(drawn: scene.Scene) -> None:
    exact, cohort = scene.play(drawn, "exact"), scene.play(drawn, "cohort")
    for what in exact:
        assert cohort[what] == exact[what], f"seed {drawn.seed}: {what}"


@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_moves_take_the_same_time(seed: int) -> None:
    """Between disjoint and overlapping slices, of an island or two; resharded or not; several runs under way."""
    assert_equal(move_scene.draw(seed))


@pytest.mark.parametrize("seed", range(4))
def test_moves_take_the_same_time_on_64_hosts(seed: int) -> None:
    drawn = move_scene.draw(seed, hosts=64)
    drawn.acts, drawn.clients = 3, 1
    assert_equal(drawn)


def leaving(fidelity: Any, delay: int) -> dict[str, Any]:
    """A client puts an array, calls a program that moves what it makes of it from slice to slice, and leaves while the
    array is on its way."""
    build = Build("moves", here=16, there=16)
    x = build.arg("here", 1 << 16, split="0")
    x = build.call("f", "here", [x], [build.value("here", 32, split="0")], cost=20_000)
    x = build.call("g", "there", [x], cost=20_000)
    program = build.program(build.call("h", "here", [x], cost=20_000))
    sim = Simulation(
        load("B", hosts=8, devices_per_host=4), profile=profile("seaway"), fidelity=fidelity, chunk=1 << 10,
        pool=1 << 14, config=Config(fanout=2),
    )  # fmt: skip
    client = sim.client("c")
    client.call(lambda c, now: c.register(program, now))
    here = program.slices[0]
    put = client.call(lambda c, now: c.put(Value((1 << 16,), "float32", 0, sharding("0")), here, now))
    client.call(lambda c, now: c.submit(1, (put,), now))
    sim.run(until=sim.now + delay)
    client.call(lambda c, now: c.close(now))
    sim.run(until=sim.now + 200_000_000)
    known = ("hosts", "ends")
    return {
        table: [
            {name: each for name, each in row.items() if name not in known} for row in sim.trace.rows(table)
        ]
        for table in ("gangs", "transfers", "runs")
    }


@pytest.mark.parametrize("delay", [100_000, 1_000_000, 2_000_000])
def test_contents_that_were_spoilt_spoil_what_is_made_of_them(delay: int) -> None:
    exact, cohort = leaving("exact", delay), leaving("cohort", delay)
    assert cohort == exact
    assert all(row["ended"] >= 0 for table in ("gangs", "transfers") for row in exact[table])
    assert len(exact["transfers"]) == (
        1 if delay < 1_000_000 else 3
    )  # the put, and moves if the run has begun


@pytest.mark.full
@given(seed=SEEDS)
@settings(max_examples=200, deadline=None)
def test_moves_agree_in_many_more_scenes(seed: int) -> None:
    assert_equal(move_scene.draw(seed))
