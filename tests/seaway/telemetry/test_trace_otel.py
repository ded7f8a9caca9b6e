"""A trace, saved or not, exported as spans: the same of 2,048 simulated devices as of four."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry import trace as api

import seaway as sw
from tests.seaway.small_sessions import small

from .spans import about, collected, context_of, in_nanoseconds, provided, times, within

step = sw.synthetic("step", devices=4, duration="1ms", allreduce="4B")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
ORIGIN = 1_767_225_600 * 10**9


@sw.program
def train(x: Any) -> Any:
    return step(step(x))


def played(runs: int = 3) -> sw.trace.Trace:
    with small() as s, s.client("ann"):
        for _ in range(runs):
            train(np.float32(0))
    return s.trace


def test_runs_and_their_gangs_are_spans_of_one_trace_at_the_times_of_the_trace() -> None:
    trace, spans = played(), provided()
    number = trace.otel(spans.provider, began=BEGAN)
    assert {api.format_trace_id(context_of(each).trace_id) for each in spans.all()} == {number}
    (root,) = [each for each in spans.all() if each.parent is None]
    runs = spans.named("train")
    assert spans.below(root) == runs
    assert [tuple(time - ORIGIN for time in times(each)) for each in runs] == in_nanoseconds(
        trace.runs(), "submitted_us", "ended_us"
    )
    assert [(times(each)[0] - ORIGIN,) for each in spans.named("step")] == in_nanoseconds(trace.gangs(), "started_us")
    for run in runs:
        assert about(run, "client", "program") == ("ann", "train")
        below = spans.below(run)
        assert sum(each.name == "step" for each in below) == 2
        assert all(within(each, run) for each in below)


def test_a_saved_trace_gives_the_same_spans(tmp_path: Path) -> None:
    trace, first, second = played(), provided(), provided()
    trace.otel(first.provider, began=BEGAN)
    sw.trace.Trace.load(trace.save(tmp_path / "run")).otel(second.provider, began=BEGAN)
    seen = [
        [(each.name, times(each), dict(each.attributes or {})) for each in spans.all()] for spans in (first, second)
    ]
    assert seen[0] == seen[1]


def test_a_sample_has_so_many_runs_with_all_their_gangs_from_the_first_to_the_last() -> None:
    spans = provided()
    played(20).otel(spans.provider, sample=5)
    runs = spans.named("train")
    assert [about(each, "run")[0] for each in runs] == [1, 5, 10, 15, 20]
    assert len(spans.named("step")) == 10


def test_a_window_has_the_runs_of_its_time() -> None:
    trace, spans = played(20), provided()
    trace.otel(spans.provider, window=("5ms", "9ms"), began=BEGAN)
    runs = [tuple(time - ORIGIN for time in times(each)) for each in spans.named("train")]
    assert 0 < len(runs) < 20
    assert all(begin < 9_000_000 and end >= 5_000_000 for begin, end in runs)


def test_a_run_that_failed_is_an_error() -> None:
    spans = provided()
    with small() as s, pytest.raises(sw.errors.RunError):
        sw.synthetic("large", devices=64, duration="1ms")(np.float32(0)).block_until_ready()
    s.trace.otel(spans.provider)
    assert (spans.one("large").attributes or {})["error.type"] == "refused"


def test_the_provider_of_the_process_is_taken_and_the_users_span_is_the_parent() -> None:
    trace = played()
    with collected() as spans, spans.tracer.start_as_current_span("report") as mine:
        assert trace.otel() == api.format_trace_id(mine.get_span_context().trace_id)


def test_what_cannot_be_done_says_what_to_do_instead() -> None:
    trace, spans = played(), provided()
    with pytest.raises(ValueError, match=r"no tracer provider.*set_tracer_provider"):
        trace.otel()
    with pytest.raises(ValueError, match=r"up to 15 spans; limit=10.*sample=1000"):
        trace.otel(spans.provider, limit=10)
    with pytest.raises(ValueError, match="sample=0: how many runs"):
        trace.otel(spans.provider, sample=0)
    with pytest.raises(TypeError, match=r"provider='jaeger'.*TracerProvider"):
        trace.otel("jaeger")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"began=5.*datetime"):
        trace.otel(spans.provider, began=5)  # type: ignore[arg-type]


MISSING = """
import sys, numpy as np, seaway as sw
sys.modules["opentelemetry"] = None
with sw.simulate("B", hosts=2) as s:
    sw.synthetic("step", devices=4, duration="1ms")(np.float32(0))
try:
    s.trace.otel()
except sw.errors.SeawayError as error:
    print(error)
"""


def test_without_the_extra_one_error_names_it() -> None:
    done = subprocess.run([sys.executable, "-c", MISSING], check=True, capture_output=True, text=True)
    assert "pip install 'seaway[otel]'" in done.stdout
