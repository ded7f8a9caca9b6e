"""The fidelities agree on what clients put and get: arrays, and single shards, at any call, whatever hosts, credits and
memory there are."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.controller import Config
from core.model.program import Program, Value
from sim.hardware import load
from sim.hardware.profiles import profile
from sim.simulation import Fault, Simulation
from tests.core.build import Build
from tests.laws import examples
from tests.sim.scene import MS, US, Caller, S, agree, rows

STATE = bytes(16)


class Loading:
    """Clients that put an array at each call, as drawn. `hasty`: some leave while contents are on their way. `curious`:
    they get single shards of most arrays, several at a time."""

    def __init__(self, seed: int, *, hasty: bool = False, curious: bool = False) -> None:
        self.hasty, self.curious = hasty, curious
        self.rng = rng = Random(f"puts {seed}")
        self.seed = seed
        self.hosts, self.per_host = rng.randint(2, 12), rng.choice((2, 4, 8))
        self.clients, self.steps = rng.choice((1, 1, 2, 3)), rng.randint(2, 12)
        self.chunk = 1 << rng.choice((10, 12, 14))
        self.pool = self.chunk << rng.choice((8, 10))
        self.memory = rng.choice((1 << 16, 1 << 18, 1 << 30))
        self.latency = rng.choice(("1us", "40us"))
        self.programs = [self._program(number) for number in range(rng.randint(1, 3))]

    def _program(self, number: int) -> Program:
        rng, devices = self.rng, self.hosts * self.per_host
        used = rng.choice((devices, devices, rng.randint(1, devices)))
        build = Build(f"p{number}", s=used)
        split = "0" if self.curious else rng.choice(("0", "0", ""))
        length = rng.choice((1, 30, 500, 2000)) * (used if split else 1)
        state, batch = (
            build.arg("s", 4),
            build.arg("s", length, split=split, donate=rng.random() < 0.5 and not self.curious),
        )
        cost = rng.choice((2, 60, 900)) * US
        build.call("step", "s", [state, batch], [state.value], cost=cost, collective=rng.random() < 0.7)
        return build.program(build.output(0))


class Loader(Caller):
    def __init__(self, sim: Simulation, drawn: Loading, number: int) -> None:
        super().__init__(sim, f"c{number}", Random(drawn.seed * 31 + number))
        self.drawn = drawn

    def live(self) -> Any:
        for program in self.drawn.programs:
            yield from self.call(lambda c, now, program=program: c.register(program, now))
        ahead = self.rng.choice((1, 3, 20))
        for _ in range(self.drawn.steps):
            number = self.rng.randrange(len(self.drawn.programs))
            yield from self.step(number + 1, self.drawn.programs[number])
            while len(self.open) >= ahead:
                yield self.sim.env.timeout(20 * US)
            yield self.sim.env.timeout(self.rng.choice((0, 0, 15, 700)) * US)
        if self.rng.random() < 0.2:  # it leaves, and does not wait for what it has called
            yield self.sim.env.timeout(0 if self.drawn.hasty else 20 * MS)  # contents come, runs may go on
            yield from self.call(lambda c, now: c.close(now))
            self.over = True
        else:
            yield from self.all_ended()

    def step(self, number: int, program: Program) -> Any:
        batch, where = program.args[1], program.slices[0]
        put = yield from self.call(lambda c, now: c.put(_here(batch), where, now))
        if self.rng.random() < 0.1:  # never used
            yield from self.call(lambda c, now: c.release((put,), now))
            return
        made = yield from self.call(lambda c, now: c.submit(number, (STATE, put), now))
        self.open[made.run] = None
        if self.rng.random() < 0.2:
            yield from self.call(lambda c, now: c.get(put if 1 not in program.donate_args else made.results[0], now))
        if self.drawn.curious:
            yield from self.look(put, program.slices[0].devices)
        gone = made.results if 1 in program.donate_args else (put, *made.results)
        yield from self.call(lambda c, now: c.release(gone, now))

    def look(self, buffer: int, count: int) -> Any:
        """Gets some of so many shards, at once or one after another."""
        for _ in range(self.rng.choice((1, 2, 5))):
            shard = self.rng.randrange(count)
            yield from self.call(lambda c, now, shard=shard: c.get(buffer, now, shard))
            yield self.sim.env.timeout(self.rng.choice((0, 0, 30, 400)) * US)


def _here(value: Value) -> Value:
    return Value(value.shape, value.dtype, 0, value.sharding)


def played(drawn: Loading, fidelity: Any, faults: Sequence[Fault] = ()) -> dict[str, Any]:
    setup = load("B", hosts=drawn.hosts, devices_per_host=drawn.per_host, memory=drawn.memory)
    sim = Simulation(
        setup, profile=profile(("paper", "seaway")[drawn.seed % 2]), fidelity=fidelity, seed=drawn.seed,
        config=Config(fanout=(1, 2, 3, 100)[drawn.seed % 4]), chunk=drawn.chunk, pool=drawn.pool,
        faults=faults,
    )  # fmt: skip
    loaders = [Loader(sim, drawn, number) for number in range(drawn.clients)]
    for loader in loaders:
        sim.env.process(loader.live())
    sim.run(until=lambda: all(loader.over for loader in loaders) or sim.now > 20 * S)
    assert all(loader.over for loader in loaders)
    sim.run(until=sim.now + 5 * MS)  # contents that nobody waits for
    return {
        "heard": [loader.heard for loader in loaders], "order": sim.controller.order.whole(),
        **rows(sim, "gangs", "transfers", "runs"),
    }  # fmt: skip


@pytest.mark.parametrize("curious", [False, True])
@given(seed=st.integers(0, 1 << 20))
@examples(15)
def test_an_array_at_each_call_comes_at_the_same_time_and_so_do_single_shards_of_it(curious: bool, seed: int) -> None:
    agree(lambda fidelity: played(Loading(seed, curious=curious), fidelity), f"seed {seed}")


def crash(drawn: Loading, at: int) -> list[Fault]:
    host = drawn.seed % drawn.hosts
    return [Fault(at, "crash_host", host), Fault(at + 5 * MS, "return_host", host)]


@pytest.mark.parametrize("curious", [False, True])
@pytest.mark.parametrize(("seed", "at"), [(3, 3), (12, 20), (21, 40), (30, 3_600_000)])
def test_a_crash_that_was_announced_finds_them_at_the_same_time(seed: int, at: int, curious: bool) -> None:
    faults = crash(Loading(seed, curious=curious), at * MS)
    agree(lambda fidelity: played(Loading(seed, curious=curious), fidelity, faults), f"seed {seed}")


def test_a_put_under_way_at_a_crash_ends_at_the_same_time() -> None:
    faults = [Fault(3_419_424, "crash_host", 0), Fault(8_419_424, "return_host", 0)]
    exact, cohort = (played(Loading(46), fidelity, faults) for fidelity in ("exact", "cohort"))
    assert cohort["transfers"] == exact["transfers"]


@given(seed=st.integers(0, 1 << 20))
@example(seed=157)  # the client leaves before it has opened its end
@example(seed=17)  # it leaves just after
@examples(8)
def test_a_client_that_leaves_while_contents_are_on_their_way_leaves_nobody_waiting(seed: int) -> None:
    """Contents that are under way come all the same in a cohort: times may differ, but not what happens."""
    exact, cohort = (played(Loading(seed, hasty=True), fidelity) for fidelity in ("exact", "cohort"))
    for what in ("runs", "gangs"):
        assert len(cohort[what]) == len(exact[what])
