"""SimPy processes of the user's in a simulated session: what they may call, and what the session waits for."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest
import simpy

import seaway as sw

MS = 1_000_000
ZERO = np.float32(0)
step = sw.synthetic("step", devices=4, duration="1ms")


def small(**options: Any) -> sw.Session:
    return sw.simulate("B", hosts=2, devices_per_host=4, profile="seaway", **options)


def test_a_generator_that_is_spawned_is_a_client_whose_calls_may_wait_and_the_session_waits_for_it() -> None:
    def load(env: simpy.Environment, calls: int) -> Generator[simpy.Event, Any, Any]:
        for _ in range(calls):
            yield env.timeout(5 * MS)
            step(ZERO).block_until_ready()
        return calls

    with small() as s:
        task = s.spawn(load, s.env, 10, name="load")
    assert task.result() == 10
    runs = s.trace.runs()
    assert len(runs) == 10
    assert set(runs["client"]) == {"load"}
    assert (runs["submitted_us"].diff().dropna() > 5_000).all()


def test_what_a_spawned_generator_waits_for_has_its_value_or_raises_its_failure_there() -> None:
    heard: list[object] = []

    def listener(env: simpy.Environment, store: simpy.Store, broken: simpy.Event) -> Generator[Any, Any, Any]:
        heard.append((yield store.get()))
        heard.append((yield env.process(other(env))))
        try:
            yield broken
        except RuntimeError as error:
            heard.append(str(error))

    def other(env: simpy.Environment) -> Generator[Any, Any, Any]:
        yield env.timeout(MS)
        return env.now

    with small() as s:
        store, broken = simpy.Store(s.env), s.env.event()
        task = s.spawn(listener, s.env, store, broken)
        s.sleep("2ms")
        store.put("a message")
        s.sleep("2ms")
        broken.fail(RuntimeError("it broke"))
        task.result()
    assert heard == ["a message", 3 * MS, "it broke"]


def test_a_spawned_generator_that_yields_something_else_is_told_what_can_be_waited_for() -> None:
    def wrong() -> Generator[Any, Any, Any]:
        yield 5

    with small() as s:
        task = s.spawn(wrong)
        with pytest.raises(TypeError, match="client 'wrong' yields 5, and only SimPy events"):
            task.result()


@pytest.mark.parametrize(
    ("waits", "what"),
    [
        (lambda s, x: step(ZERO), "client 'main' waits to call"),
        (lambda s, x: x.block_until_ready(), "the result of 'step'"),
        (lambda s, x: s.sleep("1ms"), "sleep"),
        (lambda s, x: s.trace, "all runs of client 'main'"),
    ],
)
def test_a_process_of_simpys_that_calls_or_waits_is_told_how_it_may(waits: Any, what: str) -> None:
    told: list[str] = []

    def probe(s: sw.Session, x: sw.Array) -> Generator[simpy.Event, Any, Any]:
        yield s.env.timeout(1)
        assert not x.is_ready()  # looking is no waiting
        try:
            waits(s, x)
        except sw.errors.NotNow as error:
            told.append(str(error))

    with small() as s:
        s.env.process(probe(s, step(ZERO)))
        s.sleep("10ms")
    assert len(told) == 1
    assert what in told[0]
    assert "start it with s.spawn(probe, ...)" in told[0]


def test_calls_of_generators_and_of_threads_repeat_to_the_nanosecond_and_both_fidelities_agree() -> None:
    def load(env: simpy.Environment) -> Generator[simpy.Event, Any, Any]:
        for _ in range(10):
            yield env.timeout(300_000)
            step(ZERO)

    def thread() -> None:
        for _ in range(5):
            step(ZERO).block_until_ready()

    def played(fidelity: Any) -> list[float]:
        with small(fidelity=fidelity) as s:
            s.spawn(load, s.env)
            s.spawn(thread)
        times: list[float] = s.trace.runs()["ended_us"].tolist()
        return times

    first = played("cohort")
    assert len(first) == 15
    assert first == played("cohort") == played("exact")


def test_a_real_session_says_that_it_cannot_wait_for_what_a_generator_yields() -> None:
    def load() -> Iterator[int]:
        yield 1

    with sw.local(hosts=1, platform="timed") as s:
        task = s.spawn(load)
        with pytest.raises(TypeError, match="in simulated sessions only"):
            task.result()
