"""Spans of real sessions: processes of this machine, and a cluster that is reached over gRPC."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.trace import ReadableSpan

import seaway as sw
from seaway.telemetry import session_spans
from tests.seaway.sessions.test_connected_session import elsewhere

from .spans import Spans, about, collected, within

double = sw.jit(lambda x: x * 2.0, devices=4, name="double")
quick = sw.synthetic("quick", devices=4, duration="1ms")
ZERO = np.float32(0)


def gangs_lie_in_their_runs(spans: Spans, program: str, number: int) -> list[ReadableSpan]:
    runs = spans.named(program)
    whole = [run for run in runs if run.kind.name == "CLIENT"]
    assert len(whole) == number
    for run in whole:
        below = spans.below(run)
        assert [each.name for each in below if not each.name.startswith("queue")] == [program]
        assert all(within(each, run) for each in below)
    return whole


def test_runs_and_gangs_of_real_devices_are_spans_below_the_users_own() -> None:
    with collected() as spans:
        before = time.time_ns()
        with spans.tracer.start_as_current_span("serve"), sw.local(devices_per_host=4):
            x: Any = np.ones(4_000, np.float32)
            for _ in range(3):
                x = double(x)
            assert np.asarray(x)[0] == 8
        serve = spans.one("serve")
        whole = gangs_lie_in_their_runs(spans, "double", 3)
        assert [each for each in spans.below(serve) if each.name == "double"] == whole
        assert {each.name for each in spans.below(serve)} == {"double", "put", "get"}
        assert all(within(each, serve) for each in spans.below(serve))
        assert (serve.start_time or 0) >= before
        assert about(whole[0], "client", "policy", "simulated") == ("main", "Fifo", None)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans are ended, and traces fetched, without the pauses a user's session has."""
    monkeypatch.setattr(session_spans, "EVERY", 0.02)
    monkeypatch.setattr(session_spans, "LEAST", 0.02)
    monkeypatch.setattr(session_spans, "SHARE", 1)


def wait_for_spans(spans: Spans, program: str, number: int) -> None:
    end = time.monotonic() + 30
    while len(spans.named(program)) < number:
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.usefixtures("hurried")
def test_spans_come_while_a_session_over_grpc_is_open() -> None:
    with collected() as spans, elsewhere() as (address, _), sw.connect(f"grpc://{address}") as s:
        for _ in range(3):
            quick(ZERO).block_until_ready()
        wait_for_spans(spans, "quick", 6)
        whole = gangs_lie_in_their_runs(spans, "quick", 3)
        assert about(whole[0], "client", "policy") == (s.main.name, "Fifo")


@pytest.mark.usefixtures("hurried")
def test_a_run_that_ends_while_the_trace_comes_has_its_gangs_later_though_nothing_is_called_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetched, meanwhile = threading.Event(), threading.Event()
    with collected() as spans, sw.local(devices_per_host=4, platform="timed") as s:
        trace = s.driver.trace

        def slowly() -> Any:
            taken = trace()
            fetched.set()
            assert meanwhile.wait(30)
            return taken

        monkeypatch.setattr(s.driver, "trace", slowly)
        quick(ZERO).block_until_ready()
        assert fetched.wait(30)
        quick(ZERO).block_until_ready()
        meanwhile.set()
        wait_for_spans(spans, "quick", 4)
        gangs_lie_in_their_runs(spans, "quick", 2)
