"""Runs and gangs of a trace as OpenTelemetry spans, through the tracer provider that the user has set up.

    run   ........................................  client "ann", program "train"
      queue: step  ......                           the gang was ready, and waited for its devices
      step               ......................     its island's devices ran it

Neighbours: `gang_spans`, the records; `seaway.telemetry`, which makes the runs' spans of a session while it is open.
This module imports OpenTelemetry (the extra `otel`), so it is imported when spans are asked for. The functions that
matter: `export`, `emit_gangs`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace as api

from .facts import Facts
from .gang_spans import Attributes, GangSpan, gang_spans, gangs_of, run_rows

SCOPE = "seaway"  # the instrumentation scope of all our spans
# Spans between two flushes: an exporter's queue drops what it has no room for (by default 2,048).
TOGETHER = 256
FLUSH = 5_000  # milliseconds for an exporter to take them
NO_PROVIDER = (
    "there is no tracer provider, so spans would go nowhere: set one up before, as docs/telemetry.md shows "
    "(opentelemetry.trace.set_tracer_provider), or give one: trace.otel(provider)"
)


def tracer_of(provider: api.TracerProvider | None) -> api.Tracer | None:
    """A tracer of this provider, or of the one that the process has set up; None if it has none."""
    found = api.get_tracer_provider() if provider is None else provider
    if isinstance(found, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    return api.get_tracer(SCOPE, tracer_provider=found)


class Flushing:
    """Has exporters take spans now and then, since many are made at once."""

    def __init__(self, provider: api.TracerProvider | None) -> None:
        found = api.get_tracer_provider() if provider is None else provider
        self._flush: Callable[[int], Any] | None = getattr(found, "force_flush", None)
        self._since = 0
        self.made = 0

    def one(self) -> None:
        """A span was ended."""
        self.made += 1
        self._since += 1
        if self._since >= TOGETHER:
            self.all()

    def all(self) -> None:
        self._since = 0
        if self._flush is not None and not self._flush(FLUSH):
            self._flush = None  # nobody takes them: do not wait for it again and again


def failed(span: api.Span, text: str, code: str, node: str, host: int) -> None:
    """Say why a run failed, in OpenTelemetry's words."""
    span.set_attribute("error.type", code)
    if node:
        span.set_attribute("seaway.error.node", node)
    if host >= 0:
        span.set_attribute("seaway.error.host", host)
    span.set_status(api.Status(api.StatusCode.ERROR, text))


def emit_gangs(
    tracer: api.Tracer, found: Iterable[tuple[GangSpan, api.SpanContext]], shift: int, flushing: Flushing
) -> None:
    """A span for each gang's wait and one for its time on devices, below its run's. `shift`: from the trace's clock to
    nanoseconds since 1970."""
    for gang, parent in found:
        under = api.set_span_in_context(api.NonRecordingSpan(parent), contexts.Context())
        if 0 <= gang.ready < gang.start:
            where = {"seaway.gang": gang.about["seaway.gang"], "seaway.island": gang.about["seaway.island"]}
            begun = gang.ready + shift
            wait = tracer.start_span(f"queue: {gang.name}", under, attributes=where, start_time=begun)
            if gang.ready <= gang.entered <= gang.start:
                wait.add_event("entered its island's order", timestamp=gang.entered + shift)
            wait.end(gang.start + shift)
            flushing.one()
        span = tracer.start_span(gang.name, under, attributes=gang.about, start_time=gang.start + shift)
        if "seaway.failed" in gang.about:
            span.set_status(api.StatusCode.ERROR)
        span.end(gang.end + shift)
        flushing.one()


def export(
    facts: Facts, title: str, provider: api.TracerProvider | None, window: tuple[int, int] | None,
    sample: int | None, began: datetime | None, limit: int,
) -> str:  # fmt: skip
    """Make the spans, all in one trace; returns the trace's id, as 32 hexadecimal digits."""
    given: object = provider
    if given is not None and not isinstance(given, api.TracerProvider):
        raise TypeError(f"provider={given!r}: a TracerProvider of OpenTelemetry's, or None for the process's own")
    when: object = began
    if when is not None and not isinstance(when, datetime):
        raise TypeError(f"began={when!r}: a datetime, or None for such a one that the last run ended now")
    tracer = tracer_of(provider)
    if tracer is None:
        raise ValueError(NO_PROVIDER)
    count: object = sample
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise ValueError(f"sample={count!r}: how many runs, at least 1")
    runs = run_rows(facts, window, sample)
    gangs = gangs_of(facts, runs)
    number = len(runs) + 2 * len(gangs)
    if number > limit:
        raise ValueError(
            f"up to {number:,} spans; limit={limit:,}, since what stores and shows them takes them one by one. "
            f"sample=1000 takes 1,000 runs, evenly spread; a window=(from, to) takes those of a part"
        )
    end = int(facts.runs["ended"][runs].max()) if len(runs) else facts.horizon
    start = int(facts.runs["submitted"][runs].min()) if len(runs) else 0
    shift = time.time_ns() - end if began is None else round(began.timestamp() * 1e6) * 1_000
    about = {"seaway.runs": len(runs), "seaway.runs_recorded": len(facts.runs["run"])}
    root = tracer.start_span(title, attributes=about, start_time=start + shift)
    flushing, parents = Flushing(provider), dict[int, api.SpanContext]()
    for row in runs.tolist():
        parents[row] = _run(tracer, facts, row, root, shift)
        flushing.one()
    records = gang_spans(facts, gangs.tolist())
    emit_gangs(tracer, ((record, parents[record.run]) for record in records), shift, flushing)
    root.end(end + shift)
    flushing.all()
    return api.format_trace_id(root.get_span_context().trace_id)


def _run(tracer: api.Tracer, facts: Facts, row: int, root: api.Span, shift: int) -> api.SpanContext:
    columns = facts.runs
    program = str(facts.words[columns["program"][row]])
    about: Attributes = {
        "seaway.client": facts.client_names[int(facts.run_clients[row])],
        "seaway.program": program,
        "seaway.run": int(columns["call"][row]),
    }
    under = api.set_span_in_context(root, contexts.Context())
    span = tracer.start_span(
        program, under, api.SpanKind.CLIENT, about, start_time=int(columns["submitted"][row]) + shift
    )
    if columns["admitted"][row] >= 0:
        span.add_event("admitted", timestamp=int(columns["admitted"][row]) + shift)
    if columns["code"][row] >= 0:
        cause, node = str(facts.words[columns["cause"][row]]), str(facts.words[columns["node"][row]])
        failed(span, cause, str(facts.words[columns["code"][row]]), node, int(columns["host"][row]))
    span.end(int(columns["ended"][row]) + shift)
    return span.get_span_context()
