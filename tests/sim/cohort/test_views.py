"""The fidelities agree on views: on arrays made of one-device arrays, and on shards that are used alone."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.controller import Config
from core.model.program import Program, Sharding, SliceSpec, Value
from sim.hardware import load
from sim.hardware.profiles import profile
from sim.simulation import Fault, Simulation
from tests.core.build import Build
from tests.laws import examples
from tests.sim.scene import MS, US, Caller, agree, rows


class Drawn:
    """How many hosts there are, and which devices of theirs a client uses alone."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = Random(f"views {seed}")
        self.hosts, self.per_host = rng.choice((1, 2, 3, 6)), rng.choice((2, 4))
        self.devices = self.hosts * self.per_host
        self.steps = rng.randint(2, 10)
        self.whole = SliceSpec("s", self.devices)
        self.alone = [rng.randrange(self.devices) for _ in range(min(3, self.devices))]
        self.rows = Value((4 * self.devices,), "float32", 0, Sharding(((0,),)))
        self.row = Value((4,), "float32")

    def part(self, pick: int) -> SliceSpec:
        return SliceSpec(f"s[{pick}]", 1, of="s", picks=(pick,))

    def programs(self) -> list[Program]:
        """One on the whole slice, and one on each of its devices."""
        b = Build("all", s=self.devices)
        x = b.arg("s", 4 * self.devices, split="0")
        b.call("all", "s", [x], cost=self.rng.choice((5, 80)) * US, collective=self.rng.random() < 0.7)
        found = [b.program(b.output(0))]
        for pick in range(self.devices):
            b = Build(f"one {pick}")
            b.slices = [self.whole, self.part(pick)]
            x = b.arg(f"s[{pick}]", 4)
            b.call("one", f"s[{pick}]", [x], cost=self.rng.choice((3, 40, 200)) * US)
            found.append(b.program(b.output(0)))
        return found


class Viewer(Caller):
    """A client that makes calls as drawn, and lets go of most of what it names."""

    def __init__(self, sim: Simulation, drawn: Drawn, number: int) -> None:
        super().__init__(sim, f"c{number}", Random(drawn.seed * 31 + number))
        self.drawn = drawn

    def live(self) -> Any:
        drawn = self.drawn
        for program in drawn.programs():
            yield from self.call(lambda c, now, program=program: c.register(program, now))
        state = yield from self.run(1, bytes(16 * drawn.devices))
        for _ in range(drawn.steps):
            act = self.rng.choice((self.join, self.join_one, self.alone, self.alone, self.twice))
            state = yield from act(state)
            if self.rng.random() < 0.3:
                yield from self.call(lambda c, now, state=state: c.get(state, now))
            yield self.sim.env.timeout(self.rng.choice((0, 0, 15, 700)) * US)
        yield from self.all_ended()

    def run(self, program: int, arg: int | bytes) -> Any:
        made = yield from self.call(lambda c, now: c.submit(program, (arg,), now))
        self.open[made.run] = None
        return made.results[0]

    def release(self, *names: int) -> Any:
        yield from self.call(lambda c, now: c.release(names, now))

    def view(self, value: Value, where: SliceSpec, *shards: tuple[int, int]) -> Any:
        return (yield from self.call(lambda c, now: c.view(value, where, shards, now)))

    def join(self, state: int) -> Any:
        """An array of what each device has made by itself."""
        drawn, parts = self.drawn, list[int]()
        for pick in range(drawn.devices):
            made = yield from self.run(2 + pick, bytes(16))
            parts.append(made)
        view = yield from self.view(drawn.rows, drawn.whole, *[(part, 0) for part in parts])
        return (yield from self.read(state, *parts, view))

    def join_one(self, state: int) -> Any:
        """One device's part is new."""
        drawn, pick = self.drawn, self.rng.choice(self.drawn.alone)
        made = yield from self.run(2 + pick, bytes(16))
        shards = [(made, 0) if each == pick else (state, each) for each in range(drawn.devices)]
        view = yield from self.view(drawn.rows, drawn.whole, *shards)
        return (yield from self.read(state, made, view))

    def twice(self, state: int) -> Any:
        """A view of a view."""
        drawn = self.drawn
        first = yield from self.view(drawn.rows, drawn.whole, *[(state, each) for each in range(drawn.devices)])
        second = yield from self.view(drawn.row, drawn.part(0), (first, 0))
        got = yield from self.run(2, second)
        return (yield from self.read(state, second, got, first))

    def alone(self, state: int) -> Any:
        """A shard is computed with."""
        drawn, pick = self.drawn, self.rng.choice(self.drawn.alone)
        view = yield from self.view(drawn.row, drawn.part(pick), (state, pick))
        made = yield from self.run(2 + pick, view)
        yield from self.release(view, made)
        return state

    def read(self, state: int, *names: int) -> Any:
        """A run reads the last of these, which is then kept or not."""
        made = yield from self.run(1, names[-1])
        kept = names[-1] if self.rng.random() < 0.5 else made
        gone = made if kept == names[-1] else names[-1]
        yield from self.release(state, *names[:-1], gone)
        return kept


class Spoilt(Drawn):
    """The first device's part comes from a computation that fails on another island; the others take longer."""

    def programs(self) -> list[Program]:
        found = super().programs()
        b = Build("far")
        b.slices = [self.whole, self.part(0), SliceSpec("far", 1)]
        x = b.arg("far", 4)
        x = b.call("fails", "far", [x], cost=5 * US)
        b.call("near", "s[0]", [x], cost=3 * US)
        return [*found, b.program(b.output(0))]


class SpoiltViewer(Viewer):
    def live(self) -> Any:
        drawn = self.drawn
        for program in drawn.programs():
            yield from self.call(lambda c, now, program=program: c.register(program, now))
        first = yield from self.run(2 + drawn.devices, bytes(16))
        parts = [first]
        for pick in range(1, drawn.devices):
            made = yield from self.run(2 + pick, bytes(16))
            parts.append(made)
        view = yield from self.view(drawn.rows, drawn.whole, *[(part, 0) for part in parts])
        yield from self.read(first, *parts[1:], view)
        yield from self.all_ended()


def played(seed: int, fidelity: Any, spoilt: bool = False) -> dict[str, Any]:
    drawn = Spoilt(seed) if spoilt else Drawn(seed)
    sim = Simulation(
        load("B", hosts=drawn.hosts, devices_per_host=drawn.per_host, islands=1 + spoilt),
        faults=[Fault(1, "fail_gang", drawn.hosts, name="fails")] if spoilt else (),
        profile=profile(("paper", "seaway")[seed % 2]), fidelity=fidelity, seed=seed,
        config=Config(fanout=(1, 2, 3, 100)[seed % 4]),
    )  # fmt: skip
    kind = SpoiltViewer if spoilt else Viewer
    callers = [kind(sim, drawn, number) for number in range(1 + seed % 3 // 2)]
    for caller in callers:
        sim.env.process(caller.live())
    sim.run(until=lambda: all(caller.over for caller in callers))
    sim.run(until=sim.now + 5 * MS)  # contents that nobody waits for
    return {
        "heard": [caller.heard for caller in callers],
        "order": sim.controller.order.whole(),
        "ended": [text for _, text in callers[0].heard if text.startswith("RunEnded") and "Blame" in text],
        **rows(sim, "gangs", "transfers", "runs"),
    }


@given(seed=st.integers(0, 1 << 20))
@examples(15)
def test_views_are_made_at_the_same_time(seed: int) -> None:
    assert agree(lambda fidelity: played(seed, fidelity), f"seed {seed}")["ended"] == []


@pytest.mark.parametrize("seed", [1, 7, 9, 13])  # of three hosts, one and one, and six
def test_readers_of_a_view_wait_for_all_its_sources_though_one_of_them_is_spoilt(seed: int) -> None:
    agree(lambda fidelity: played(seed, fidelity, spoilt=True), f"seed {seed}")
