"""Durations and sizes as people write them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pandas as pd
import pytest

import seaway as sw
from core.model.errors import Impossible
from seaway.costs import synthetic
from seaway.units import Nanoseconds, Time, duration, nbytes, show_bytes, show_time
from tests.seaway.small_sessions import small
from tests.seaway.trace import traces


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("330us", 330_000),
        ("1.5 ms", 1_500_000),
        ("0.33 ms", 330_000),
        ("2s", 2_000_000_000),
        ("1 min", 60_000_000_000),
        ("7 µs", 7_000),
        ("12ns", 12),
        ("1e3 us", 1_000_000),
        ("1_000us", 1_000_000),
        ("0s", 0),
        (timedelta(seconds=2, microseconds=3), 2_000_003_000),
        (pd.Timedelta("5us 7ns"), 5_007),
        (Nanoseconds(42), 42),
        (0, 0),
    ],
)
def test_a_duration_is_a_whole_number_of_nanoseconds(text: Time, ns: int) -> None:
    assert duration(text) == ns


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4B", 4),
        ("64 MiB", 64 * 2**20),
        ("1kB", 1000),
        ("1KiB", 1024),
        ("1.5 GiB", 3 * 2**29),
        ("2 GB", 2 * 10**9),
        (7, 7),
    ],
)
def test_a_size_is_a_whole_number_of_bytes(text: str | int, count: int) -> None:
    assert nbytes(text) == count


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("330", "has no unit"),
        ("330 uss", "did you mean 'us'"),
        ("5 MS", "did you mean 'ms'"),
        ("4B", "'B'"),
        ("-3us", "negative"),
        ("fast", "write a time with its unit"),
        ("0.1ns", "less than one ns"),
        ("1e40s", "too large"),
        (None, "write a time"),
        (True, "write a time"),
        (False, "write a time"),
        (timedelta(seconds=-1), "negative"),
        (5, "step cannot be 5, a number without a unit: write '5s' or '5ns'"),
        (0.25, "step cannot be 0.25, a number without a unit: write '0.25s'"),
    ],
)
def test_an_invalid_duration_is_refused_with_what_to_write(text: str, says: str) -> None:
    with pytest.raises(Impossible, match=says):
        duration(text, "step")


SOME = sw.workload.Arrivals([sw.workload.Arrival(at=1_000_000)])
TAKES: dict[str, Callable[[Any], Any]] = {
    "sw.synthetic('f'): duration": lambda time: sw.synthetic("f", devices=1, duration=time),
    "duration": synthetic,
    "computation 'f': cost": lambda time: called(sw.jit(lambda x: x, devices=1, cost=time, name="f")),
    "computation 'g': cost": lambda time: called(sw.jit(lambda x: x, devices=1, cost=lambda x: time, name="g")),
    "costs=": lambda time: small(costs=time),
    "sw.sleep: time": lambda time: called(lambda x: sw.sleep(time)),
    "sw.deadline: time": sw.deadline,
    "client 'a': deadline: time": lambda time: small().client("a", deadline=time),
    "sw.workload.poisson: time": lambda time: sw.workload.poisson(3, time),
    "sw.workload.poisson_jobs: duration": lambda time: sw.workload.poisson_jobs(3, "1s", duration=time),
    "step of a job": lambda time: sw.workload.Job(at=0, step=time),
    "sw.slice(expected)": lambda time: sw.slice(4, expected=time),
    "between: first": lambda time: SOME.between(time, "10s"),
    "between: last": lambda time: SOME.between(0, time),
    "sw.connect: timeout": lambda time: sw.connect("grpc://127.0.0.1:1", timeout=time),
    "sw.local: timeout": lambda time: sw.local(timeout=time),
    "sw.fault: at": lambda time: sw.fault(time, "crash_host", 0),
    "sw.fault: duration": lambda time: sw.fault(0, "slow", 0, duration=time),
    "noise: latency": lambda time: small(noise={"latency": time}),
    "config: lease": lambda time: small(config={"lease": time}),
    "config: bounds: floor": lambda time: small(config={"bounds": {"floor": time}}),
    "a time": lambda time: sw.trace.Trace(traces.shared(gangs=9)).gangs(window=(0, time)),
}  # fmt: skip


def called(step: Callable[[float], Any]) -> None:
    with small():
        step(0.0)


@pytest.mark.parametrize("what", TAKES)
def test_everything_that_takes_a_time_refuses_a_number_without_a_unit(what: str) -> None:
    with pytest.raises((Impossible, ValueError)) as refused:
        TAKES[what](5)
    assert what in str(refused.value)
    assert "write '5s' or '5ns'" in str(refused.value) or what == "costs="


@pytest.mark.parametrize("what", [what for what in TAKES if not what.startswith(("sw.connect", "sw.local", "a time"))])
def test_everything_that_takes_a_time_takes_a_text_and_a_timedelta(what: str) -> None:
    for time in ("5ms", timedelta(milliseconds=5)):
        TAKES[what](time)


def test_times_of_a_trace_are_times() -> None:
    trace = sw.trace.Trace(traces.shared(gangs=9))
    assert len(trace.gangs(window=trace.span)) == len(trace.gangs()) == 9


def test_an_error_names_the_option_it_is_about() -> None:
    with pytest.raises(Impossible, match="bandwidth cannot be 'x'"):
        nbytes("x", "bandwidth")
    with pytest.raises(Impossible, match="did you mean 'MiB'"):
        nbytes("64 mib")


def test_quantities_are_shown_in_the_unit_that_fits() -> None:
    assert [show_time(ns) for ns in (12, 330_000, 1_500_000, 2 * 10**9)] == ["12 ns", "330 us", "1.5 ms", "2 s"]
    assert [show_bytes(n) for n in (4, 2**21, 3 * 2**30)] == ["4 B", "2 MiB", "3 GiB"]
