"""The fidelities agree on calls of many arrays: fed back, read one by one, given up apart, and passed on alone."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from core.client.client_limits import Submitted
from core.model.program import Program
from sim.engine.jitter import Noise
from sim.hardware import load
from sim.hardware.profiles import profile
from sim.simulation import Simulation
from tests.core.build import Build
from tests.intervals import intervals
from tests.sim.scene import Caller, S, agree

MANY, STEPS = 24, 12
LITERAL = bytes(16)


def train(donate: bool) -> Program:
    build = Build("train", s=8)
    params = [build.arg("s", 4, donate=donate) for _ in range(MANY)]
    batch = build.arg("s", 4)
    given = tuple(range(MANY)) if donate else ()
    build.call("train", "s", [*params, batch], [batch.value] * (MANY + 1), cost=100_000, donate=given)
    return build.program(*[build.output(number) for number in range(MANY + 1)])


def alone() -> Program:
    build = Build("alone", s=8)
    return build.program(build.call("alone", "s", [build.arg("s", 4)], cost=20_000))


class Trainer(Caller):
    def __init__(self, sim: Simulation, seed: int, donate: bool) -> None:
        super().__init__(sim, "trainer", Random(seed))
        self.donate = donate

    def live(self) -> Any:
        yield from self.call(lambda c, now: c.register(train(self.donate), now))
        yield from self.call(lambda c, now: c.register(alone(), now))
        names: tuple[int, ...] = ()
        for _ in range(STEPS):
            args = (*names, *[LITERAL] * (MANY + 1 - len(names)))
            made: Submitted = yield from self.call(lambda c, now, args=args: c.submit(1, args, now))
            *params, loss = made.results
            if self.rng.random() < 0.5:
                yield from self.call(lambda c, now, loss=loss: c.get(loss, now))
            if self.rng.random() < 0.3:
                one = self.rng.choice(params)
                yield from self.call(lambda c, now, one=one: c.submit(2, (one,), now))
            gone = (loss,) if self.donate else (*names, loss)
            yield from self.call(lambda c, now, gone=gone: c.release(gone, now))
            names = tuple(params)
            yield self.sim.env.timeout(self.rng.choice((0, 50_000, 300_000)))


def play(fidelity: Any, seed: int, donate: bool, noise: Noise) -> dict[str, Any]:
    sim = Simulation(load("B", hosts=4), profile=profile("seaway"), fidelity=fidelity, seed=seed, noise=noise)
    trainer = Trainer(sim, seed, donate)
    sim.env.process(trainer.live())
    sim.run(until=S)
    ends = [said for _, said in trainer.heard if "RunEnded" in said]
    assert len(ends) >= STEPS
    return {
        "heard": trainer.heard, "order": sim.controller.order.whole(), "runs": list(sim.trace.rows("runs")),
        "intervals": sorted(intervals(sim.trace)), "memory": sim.controller.ledger.counters(),
    }  # fmt: skip


@pytest.mark.parametrize("noise", [Noise(), Noise(latency=20_000)], ids=["", "jitter"])
@pytest.mark.parametrize("donate", [False, True], ids=["kept", "donated"])
@pytest.mark.parametrize("seed", [1, 2])
def test_steps_of_many_arrays_take_the_same_time(seed: int, donate: bool, noise: Noise) -> None:
    agree(lambda fidelity: play(fidelity, seed, donate, noise), f"seed {seed}")
