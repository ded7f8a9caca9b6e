"""Core's first test: one program over two hosts, one core, a simulated and a real driver: the same order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np
import pytest

from core import effects as e
from core import messages as m
from core.eventlog import decode, replay

from . import grpc_driver, sim_driver, work
from .ends import BOUND, Result, host_name, new_controller, new_host

HOSTS = range(work.CLUSTER.hosts)


@pytest.fixture(scope="module")
def blob() -> bytes:
    return work.psum_blob()


def said_to_hosts(result: Result) -> Counter[bytes]:
    """Every plan, run and step that the controller has ordered, ids included, whatever travelled together.
    Raises Diverged unless its log, through a fresh controller, gives the same commands."""
    found: list[object] = []
    for commands in replay(decode(result.logs["controller"]), lambda about: new_controller()):
        for send in commands:
            if isinstance(send, e.Send) and isinstance(send.message, m.Ordered):
                found += [*send.message.plans, *send.message.runs]
                for step in send.message.steps:
                    found += alone(step)
    return Counter(map(msgspec.msgpack.encode, found))


def alone(step: m.Step) -> Sequence[m.Step]:
    """What one step says of several, as one of each: which are told of together is a matter of time."""
    match step:
        case m.FreeStep(buffers):
            return [m.FreeStep((buffer,)) for buffer in buffers]
        case m.ForgetStep(runs, plans):
            return [m.ForgetStep((run,)) for run in runs] + [m.ForgetStep((), (plan,)) for plan in plans]
        case _:
            return [step]


def launches(result: Result, host: int) -> Iterator[tuple[object, ...]]:
    """In their order; raises Diverged unless the host's log replays."""
    log = decode(result.logs[host_name(host)], partial=True)  # a host's ends with its process
    for commands in replay(log, lambda about: new_host(host)):
        for launch in commands:
            if isinstance(launch, e.Launch):
                yield launch.seq, launch.run, launch.step, launch.inputs, launch.outputs


@pytest.mark.parametrize("rounds", [(1,), (3, 2)], ids=["one run", "chains"])
def test_both_drivers_take_a_program_through_the_same_steps(rounds: work.Rounds, blob: bytes) -> None:
    sim = sim_driver.run(rounds, blob)
    real = grpc_driver.run(rounds, blob)

    assert sim.controller.books.order.whole() == real.controller.books.order.whole()
    assert said_to_hosts(sim) == said_to_hosts(real)
    orders = [list(launches(result, host)) for result in (sim, real) for host in HOSTS]
    assert len(orders[0]) == sum(rounds)
    assert orders == [orders[0]] * len(orders)

    assert sim.user.blames == real.user.blames == [None] * sum(rounds)
    for length, fetch in zip(rounds, real.user.fetches, strict=True):
        assert isinstance(fetch, work.Fetch)
        np.testing.assert_array_equal(fetch.value, work.expected(length))
    assert set(real.exits.values()) == {0}


def test_a_collective_starts_when_the_last_host_arrives(blob: bytes) -> None:
    late = 7_000_000
    sim = sim_driver.run((1,), blob, model=sim_driver.Model(slow={1: late}))
    first, last = sorted(sim.intervals, key=lambda interval: interval.arrived)
    assert (first.host, last.host) == (0, 1)
    assert last.arrived - first.arrived == late
    assert first.started == last.started == last.arrived
    assert first.ended == last.ended == last.started + work.COST


def test_a_wait_past_its_bound_names_the_host(blob: bytes) -> None:
    sim = sim_driver.run((1,), blob, model=sim_driver.Model(slow={1: 2 * BOUND}))
    assert sim.user.blames == [None]
    *_, late = [text for text in sim.user.told if text.startswith("run 1 is late")]
    assert "program 'psum', node 'add the sum' on island 'i0'" in late
    assert "all have launched the gang; it has not ended on the devices of these hosts; hosts 0-1" in late


@pytest.mark.parametrize("drive", [sim_driver.run, grpc_driver.run], ids=["sim", "real"])
def test_a_host_that_dies_idle_fails_the_next_run_by_name(drive: Callable[..., Result], blob: bytes) -> None:
    result = drive((2, 1), blob, kill=1)
    first, second, third = result.user.blames
    assert (first, second) == (None, None)
    assert third is not None
    assert (third.program, third.node) == ("psum", "add the sum")
    # A real survivor may hear of it from its collective, before the lease tells the controller who is gone.
    assert (third.code, third.host) == ("host-lost", 1) or "Gloo" in third.cause
    kept, spoilt = result.user.fetches
    assert isinstance(kept, work.Fetch)
    assert isinstance(spoilt, m.Blame)
    assert any(text.startswith("host 1 of island 'i0' is lost") for text in result.told)
    assert result.told[-1] == "island 'i0' runs: epoch 1, hosts 0"  # what is left has formed anew
    assert said_to_hosts(result)
    assert list(launches(result, 0))
