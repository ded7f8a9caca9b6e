"""Runs, puts, reads and gangs of a simulated session as spans: names, parents, times, errors; and nothing unless a
tracer provider is set up."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

import seaway as sw
from sim.simulation import Fault
from tests.seaway.small_sessions import small

from .spans import about, collected, in_nanoseconds, times, within

MS = 1_000_000
four = sw.slice(devices=4, name="four")
step = sw.synthetic("step", devices=four, duration="1ms", allreduce="4B")
ZERO = np.float32(0)


@sw.program
def train(x: Any) -> Any:
    return step(step(x))


def test_a_run_is_a_span_below_the_span_in_which_it_was_called_and_says_what_it_is() -> None:
    with collected() as spans, small(policy="stride") as s:
        with spans.tracer.start_as_current_span("epoch"):
            x = train(ZERO)
        with s.client("ann"):
            train(ZERO)
        x.block_until_ready()
        s.close()
        first, second = spans.named("train")
        assert spans.below(spans.one("epoch")) == [first]
        assert second.parent is None
        assert first.kind is api.SpanKind.CLIENT
        said = about(first, "client", "program", "run", "slices", "gangs", "retries", "policy", "simulated")
        assert said == ("main", "train", 1, ("four",), 2, 0, "Stride", True)
        assert about(second, "client", "run") == ("ann", 1)


def test_a_runs_span_is_as_long_as_the_run_and_its_gangs_are_below_it_with_the_times_that_the_trace_has() -> None:
    with collected() as spans, small() as s:
        run = train(ZERO).run
        s.close()
        gangs = s.trace.gangs()
        whole = spans.one("train")
        begin = times(whole)[0]
        assert times(whole)[1] - begin == run.ended_at
        below = spans.below(whole)
        assert {each.name for each in below} == {"step", "queue: step"}
        ran, waited = spans.named("step"), spans.named("queue: step")
        assert [(b - begin, e - begin) for b, e in map(times, ran)] == in_nanoseconds(gangs, "started_us", "ended_us")
        assert [times(each)[1] for each in waited] == [times(each)[0] for each in ran]
        assert all(within(each, whole) for each in below)
        assert about(ran[0], "island", "devices", "device_time_ns") == ("i0", 4, round(gangs["device_us"][0] * 1_000))


def test_asking_for_the_trace_adds_the_gangs_of_runs_that_are_over_and_no_gang_twice() -> None:
    with collected() as spans, small() as s:
        train(ZERO).block_until_ready()
        assert not spans.named("step")
        assert len(s.trace.gangs()) == len(spans.named("step")) == 2
        assert len(s.trace.gangs()) == len(spans.named("step")) == 2
        train(ZERO)
        s.close()
        assert len(spans.named("step")) == 4


def test_puts_and_reads_are_spans_too() -> None:
    array = np.zeros(3_000, np.float32)
    with collected() as spans, small(values="compute") as s:
        with spans.tracer.start_as_current_span("load"):
            x = sw.put(array, devices=four)
            np.asarray(x)
        s.close()
        put, read = spans.one("put"), spans.one("get")
        assert about(put, "client", "slices", "nbytes") == ("main", ("four",), array.nbytes)
        assert about(read, "nbytes") == (array.nbytes,)
        assert spans.below(spans.one("load")) == [put, read]
        assert times(put)[1] - times(put)[0] > 0
        assert times(read)[1] == times(put)[0] + s.driver.now()


def test_a_put_that_is_dropped_before_it_is_ready_ends_when_it_is_given_back() -> None:
    with collected() as spans, small() as s:
        sw.put(np.zeros(3_000, np.float32), devices=four)
        train(ZERO)
        s.close()
        assert len(spans.named("put")) == 1


def test_a_failure_is_an_error_with_its_code_and_blame() -> None:
    large = sw.synthetic("large", devices=64, duration="1ms")
    with collected() as spans, small() as s:
        with pytest.raises(sw.errors.RunError) as caught:
            large(ZERO).block_until_ready()
        s.close()
        failed = spans.one("large")
        assert failed.status.status_code is api.StatusCode.ERROR
        assert failed.status.description == str(caught.value)
        assert (failed.attributes or {})["error.type"] == caught.value.code == "refused"


def test_a_run_that_a_lost_host_failed_says_when_it_ran_again_and_has_the_gangs_of_its_last_try() -> None:
    long = sw.synthetic("long", devices=2, duration="50ms", allreduce="4B")
    crash = Fault(20 * MS, "crash_host", 0)
    with collected() as spans, small(hosts=3, faults=[crash], retries=3) as s:
        long(ZERO).block_until_ready()
        s.close()
        run, gang = spans.named("long")
        assert about(run, "retries") == (1,)
        assert run.status.status_code is not api.StatusCode.ERROR
        (again,) = run.events
        assert (again.name, (again.attributes or {})["error.type"]) == ("runs again", "host-lost")
        assert gang in spans.below(run)
        assert times(gang)[0] > again.timestamp


def test_what_is_under_way_when_a_session_is_abandoned_is_an_error() -> None:
    with collected() as spans:
        s = small().open()
        train(ZERO)
        s.close(abort=True)
        run = spans.one("train")
        assert run.status.status_code is api.StatusCode.ERROR
        assert (run.attributes or {})["error.type"] == "abandoned"


def test_a_spawned_task_belongs_to_the_span_in_which_it_was_spawned() -> None:
    with collected() as spans, small() as s:
        with spans.tracer.start_as_current_span("serve"):
            s.spawn(lambda: train(ZERO).block_until_ready(), name="ann").result()
        s.close()
        assert spans.below(spans.one("serve")) == spans.named("train")


def test_spans_of_many_runs_are_ended_while_the_session_is_open() -> None:
    with collected() as spans, small():
        for _ in range(600):
            step(ZERO).block_until_ready()
        assert len(spans.all()) >= 512


def test_what_the_users_sampler_leaves_out_has_no_spans() -> None:
    with collected(ALWAYS_OFF) as spans, small() as s:
        train(ZERO).block_until_ready()
        s.close()
        assert not spans.all()


def test_spans_change_nothing_in_a_simulation() -> None:
    def played() -> list[float]:
        with small(policy="stride") as s:
            for name in ("ann", "bob"):
                s.spawn(lambda: [train(ZERO) for _ in range(20)], name=name)
        return list(s.trace.gangs()["ended_us"])

    alone = played()
    with collected():
        assert played() == alone


def calls_of_a_submit() -> list[str]:
    """The Python functions that a call and its end enter."""
    names: list[str] = []

    def note(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            names.append(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}")

    with small() as s:
        step(ZERO).block_until_ready()
        sys.setprofile(note)
        try:
            step(ZERO).block_until_ready()
        finally:
            sys.setprofile(None)
        s.close()
    return names


def test_a_session_without_spans_calls_no_function_for_them() -> None:
    names = calls_of_a_submit()
    assert len(names) > 50
    assert not [name for name in names if "telemetry" in name]
    with collected():
        assert [name for name in calls_of_a_submit() if "telemetry" in name]


def test_simulated_times_count_from_the_date_of_the_first_call() -> None:
    with collected() as spans, small() as s:
        s.sleep("7s")
        before = time.time_ns()
        train(ZERO)
        after = time.time_ns()
        s.sleep("10s")
        train(ZERO)
        s.close()
        first, second = (times(each)[0] for each in spans.named("train"))
        assert before <= first <= after
        assert second - first >= 10_000 * MS
