"""The fidelities agree on arrays that move from slice to slice, whatever their size, and whichever hosts they reach."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.controller import Config
from core.model.program import Program, SliceSpec, Value
from core.protocol import Blame
from sim.cohort.parts import CohortPart
from sim.hardware import load
from sim.hardware.profiles import profile
from sim.hosts import SimClient
from sim.simulation import Simulation
from tests.core.build import Build, sharding
from tests.laws import examples
from tests.sim import move_scene, scene

SEEDS = st.integers(0, 1 << 20)


@given(seed=SEEDS)
@examples(4)
def test_moves_take_the_same_time(seed: int) -> None:
    """Between disjoint and overlapping slices, of an island or two; resharded or not; several runs under way."""
    scene.assert_equal(move_scene.draw(seed))


@pytest.mark.parametrize("seed", range(2))
def test_moves_take_the_same_time_on_64_hosts(seed: int) -> None:
    drawn = move_scene.draw(seed, hosts=64)
    drawn.acts, drawn.clients = 3, 1
    scene.assert_equal(drawn)


def moving(fidelity: Any) -> tuple[Simulation, Program]:
    """A program that makes something of a long array, and moves that from slice to slice and back."""
    build = Build("moves", here=16, there=16)
    x = build.arg("here", 1 << 16, split="0")
    x = build.call("f", "here", [x], [build.value("here", 32, split="0")], cost=20_000)
    x = build.call("g", "there", [x], cost=20_000)
    program = build.program(build.call("h", "here", [x], cost=20_000))
    sim = Simulation(
        load("B", hosts=8, devices_per_host=4), profile=profile("seaway"), fidelity=fidelity, chunk=1 << 10,
        pool=1 << 14, config=Config(fanout=2),
    )  # fmt: skip
    return sim, program


def begin(sim: Simulation, program: Program) -> SimClient:
    client = sim.client("c")
    client.call(lambda c, now: c.register(program, now))
    value, here = Value((1 << 16,), "float32", 0, sharding("0")), program.slices[0]
    put = client.call(lambda c, now: c.put(value, here, now))
    assert isinstance(put, int)
    client.call(lambda c, now: c.submit(1, (put,), now))
    return client


def leaving(fidelity: Any, delay: int) -> dict[str, Any]:
    """A client puts an array, calls the program, and leaves while the array is on its way."""
    sim, program = moving(fidelity)
    client = begin(sim, program)
    sim.run(until=sim.now + delay)
    client.call(lambda c, now: c.close(now))
    sim.run(until=sim.now + 200_000_000)
    return scene.rows(sim, "gangs", "transfers", "runs")


@pytest.mark.parametrize("delay", [100_000, 1_000_000, 2_000_000])
def test_contents_that_were_spoilt_spoil_what_is_made_of_them(delay: int) -> None:
    exact = scene.agree(lambda fidelity: leaving(fidelity, delay), delay)
    assert all(row["ended"] >= 0 for table in ("gangs", "transfers") for row in exact[table])
    assert len(exact["transfers"]) == (1 if delay < 1_000_000 else 3)  # the put, and moves if the run has begun


def test_a_move_that_is_given_up_before_its_sender_is_ready_ends_at_both_ends() -> None:
    sim, program = moving("cohort")
    begin(sim, program)
    (island,) = sim.islands.values()

    def receivers() -> list[CohortPart]:
        return island.parts.among(island.moves.hosts_at(island.moves.under_way()[0], sending=False))

    sim.run(until=lambda: bool(island.moves.under_way()) and all(part.open for part in receivers()))
    transfer = island.moves.under_way()[0]
    for part in receivers():
        when = np.full(part.number, sim.now, dtype=np.int64)
        island.moves.dropped(part, transfer, Blame("user", "boom", host=0), when)
    sim.run(until=sim.now + 200_000_000)
    assert not island.moves.under_way()
    assert not any(part.open for part in island.parts.all)
    assert all(row["ended"] >= 0 for table in ("gangs", "transfers", "runs") for row in sim.trace.rows(table))


def elsewhere(fidelity: Any, axis: str) -> dict[str, Any]:
    """A client is suspended, another takes its devices, and it comes back on others: copied from host memory."""
    sim = Simulation(
        load("B", hosts=8, devices_per_host=4), profile=profile("seaway"), fidelity=fidelity, chunk=1 << 10,
        pool=1 << 14, config=Config(fanout=2),
    )  # fmt: skip

    def calls(name: str) -> SimClient:
        build = Build(name)
        build.slices = [SliceSpec("s", 16, exclusive=True)]
        x = build.arg("s", 1 << 16, split=axis)
        program = build.program(build.call("f", "s", [x], cost=20_000))
        client = sim.client(name)
        client.call(lambda c, now: c.register(program, now))
        value = Value((1 << 16,), "float32", 0, sharding(axis))
        put = client.call(lambda c, now: c.put(value, program.slices[0], now))
        assert isinstance(put, int)
        client.call(lambda c, now: c.submit(1, (put,), now))
        sim.run(until=sim.now + 100_000_000)
        client.call(lambda c, now: c.submit(1, (put,), now))
        return client

    a = calls("a")
    sim.run(until=sim.now + 100_000_000)
    sim.trouble.suspend_client("a")
    sim.run(until=sim.now + 100_000_000)
    calls("b")
    a.call(lambda c, now: c.submit(1, (1,), now))
    sim.trouble.resume_client("a")
    sim.run(until=sim.now + 1_000_000_000)
    return scene.rows(sim, "gangs", "transfers", "runs")


@pytest.mark.parametrize("axis", ["", "0"])
def test_arrays_of_a_suspended_slice_are_sent_from_host_memory_to_other_devices_at_the_same_times(axis: str) -> None:
    exact = scene.agree(lambda fidelity: elsewhere(fidelity, axis), axis)
    assert all(row["ended"] >= 0 for table in ("gangs", "transfers", "runs") for row in exact[table])
    assert [row["step"] for row in exact["transfers"]] == ["put", "put", "copy"]
    assert [row["place"] for row in exact["gangs"]] == [0, 0, 0, 0, 1]


ARRAY = 8 << 20  # bytes a host


def resting(fidelity: Any, room: int, hosts: int = 8) -> tuple[dict[str, Any], int]:
    """A client with four arrays is suspended and resumed, with so much host memory and a large disk.
    Returns what the trace says, and how long the suspension took."""
    setup = load("B", hosts=hosts, devices_per_host=4, host_memory=room, host_disk=1 << 30)
    sim = Simulation(setup, profile=profile("seaway"), fidelity=fidelity, config=Config(fanout=2))
    build = Build("a", s=4 * hosts)
    x = build.arg("s", hosts * ARRAY // 4, split="0")
    program = build.program(build.call("f", "s", [x], cost=20_000))
    client = sim.client("a")
    client.call(lambda c, now: c.register(program, now))
    puts = [client.call(lambda c, now: c.put(program.args[0], program.slices[0], now)) for _ in range(4)]
    sim.run(until=sim.now + 100_000_000)
    begun = sim.now
    sim.trouble.suspend_client("a")
    sim.run(until=lambda: [each.phase for each in sim.controller.relocation.under_way.values()] == ["parked"])
    took = sim.now - begun
    for put in puts:
        assert isinstance(put, int)
        client.call(partial(lambda put, c, now: c.submit(1, (put,), now), put))
    sim.trouble.resume_client("a")
    sim.run(until=sim.now + 1_000_000_000)
    return scene.rows(sim, "gangs", "transfers", "runs"), took


@pytest.mark.parametrize("room", [0, 2 * ARRAY])
def test_what_goes_to_disk_goes_there_one_after_another_at_the_same_times(room: int) -> None:
    exact = scene.agree(lambda fidelity: resting(fidelity, room)[0], room)
    assert [row["ended"] >= 0 for row in exact["runs"]] == [True] * 4
    in_memory, took = resting("exact", 1 << 30)[1], resting("exact", room)[1]
    written = (4 * ARRAY - room) / 2e9  # at the disk's two gigabytes a second
    assert abs(took - in_memory - written * 1e9) < 1_000_000  # and over PCIe
