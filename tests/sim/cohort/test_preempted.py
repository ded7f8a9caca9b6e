"""The fidelities agree on a slice that gives way to a client of a higher priority, and comes back."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.controller import Config
from core.model.program import Program
from core.schedule.policy import Priority
from sim.hardware import load
from sim.hardware.profiles import profile
from sim.simulation import Simulation
from tests.core.build import chain
from tests.laws import examples
from tests.sim import scene

MS = 1_000_000


def alone(program: Program) -> Program:
    return msgspec.structs.replace(
        program, slices=tuple(msgspec.structs.replace(spec, exclusive=True) for spec in program.slices)
    )


def played(fidelity: Any, seed: int) -> dict[str, Any]:
    """A client of each priority calls again and again, and lets its slice go now and then."""
    rng = Random(seed)
    hosts = rng.choice((4, 8))
    sim = Simulation(
        load("B", hosts=hosts, devices_per_host=4), policy=Priority, profile=profile("seaway"), fidelity=fidelity,
        config=Config(fanout=2, preempt_keep=rng.choice((1, 5)) * MS, preempt_longest=rng.choice((10, 30)) * MS),
    )  # fmt: skip

    def calls(priority: int) -> Callable[[], Any]:
        program = alone(chain(rng.randint(1, 3), 4 * rng.randint(1, hosts)))
        name = program.slices[0].name
        client = sim.client(f"c{priority}", priority=priority)
        number: Any = client.call(lambda c, now: c.register(program, now))
        pauses = [(rng.randint(0, 2 * MS), rng.random() < 0.3) for _ in range(rng.randint(3, 10))]

        def steps() -> Any:
            for pause, release in pauses:
                yield sim.env.timeout(pause)
                yield from client.turn()
                client.act(lambda c, now: c.submit(number, (bytes(program.args[0].nbytes),), now))
                if release:
                    client.act(lambda c, now: c.release_slice(name, now))
            yield from client.turn()
            client.act(lambda c, now: c.close(now))

        return steps

    for priority in range(rng.randint(2, 4)):
        sim.env.process(calls(priority)())
    sim.run(until=300 * MS)
    found = scene.rows(sim, "gangs", "transfers", "runs")
    found["told"] = sim.told
    return found


@given(seed=st.integers(0, 1 << 20))
@examples(4)
def test_who_gives_way_does_so_at_the_same_time(seed: int) -> None:
    scene.agree(lambda fidelity: played(fidelity, seed), seed)


@pytest.mark.parametrize("seed", [2])
def test_somebody_does_give_way(seed: int) -> None:
    assert any("gives way" in text for _, text in played("cohort", seed)["told"])
