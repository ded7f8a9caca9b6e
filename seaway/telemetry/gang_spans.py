"""Spans of gangs: one of its wait and one of its time on devices, below its run's, however many devices it has.

    run   ........................................  client "ann", program "train"
      queue: step  ......                           the gang was ready, and waited for its devices
      step               ......................     its island's devices ran it

Neighbours: `client_spans`, which makes runs' spans; `seaway.trace`, the times. The function that matters:
`emit_gangs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from opentelemetry import context as contexts
from opentelemetry import trace as api

from core.model import spans
from core.record import trace as core_trace

if TYPE_CHECKING:
    from ..trace import Trace

SCOPE = "seaway"  # the instrumentation scope of all our spans
# Spans between two flushes: an exporter's queue drops what it has no room for (by default 2,048).
TOGETHER = 256
FLUSH = 5_000  # milliseconds for an exporter to take them


def tracer() -> api.Tracer | None:
    """A tracer of the provider that the process has set up; None if it has none."""
    if isinstance(api.get_tracer_provider(), api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    return api.get_tracer(SCOPE)


class Flushing:
    """Has exporters take spans now and then, since many are made at once."""

    def __init__(self) -> None:
        self._flush: Callable[[int], Any] | None = getattr(api.get_tracer_provider(), "force_flush", None)
        self._since = 0

    def one(self) -> None:
        """A span was ended."""
        self._since += 1
        if self._since >= TOGETHER:
            self.all()

    def all(self) -> None:
        self._since = 0
        if self._flush is not None and not self._flush(FLUSH):
            self._flush = None  # nobody takes them: do not wait for it again and again


def emit_gangs(tracer: api.Tracer, trace: Trace, parents: Mapping[int, api.SpanContext], shift: int) -> None:
    """Spans of all gangs of these runs, which are rows of `runs`, in the order of their islands. `shift`: from the
    trace's clock to nanoseconds since 1970."""
    facts, flushing = trace.facts(), Flushing()
    gangs, spent = facts.gangs, facts.spent()
    names = {island.index: island.name for island in facts.machines.islands}
    ran = np.flatnonzero((facts.end >= 0) & np.isin(gangs["run"], list(parents)))
    for row in ran[np.argsort(gangs["seq"][ran], kind="stable")].tolist():
        under = api.set_span_in_context(api.NonRecordingSpan(parents[int(gangs["run"][row])]), contexts.Context())
        name = str(facts.words[gangs["step"][row]])
        where: dict[str, Any] = {
            "seaway.gang": int(gangs["seq"][row]),
            "seaway.island": names.get(int(gangs["island"][row]), ""),
        }
        ready, entered, start = int(gangs["ready"][row]), int(gangs["entered"][row]), int(facts.start[row])
        if 0 <= ready < start:
            wait = tracer.start_span(f"queue: {name}", under, attributes=where, start_time=ready + shift)
            if ready <= entered <= start:
                wait.add_event("entered its island's order", timestamp=entered + shift)
            wait.end(start + shift)
            flushing.one()
        place, flags = facts.places.get(int(gangs["place"][row])), int(facts.flags[row])
        about = where | {
            "seaway.devices": int(facts.sizes[row]),
            "seaway.device_range": "" if place is None else spans.text(place.devices),
            "seaway.device_time_ns": int(spent[row]),
        }
        if facts.skew[row] >= 0:
            about["seaway.skew_ns"] = int(facts.skew[row])
        if inferred := [name for name, bit in core_trace.TIMES.items() if flags & bit]:
            about["seaway.inferred"] = inferred
        span = tracer.start_span(name, under, attributes=about, start_time=start + shift)
        if flags & core_trace.FAILED:
            span.set_status(api.StatusCode.ERROR)
        span.end(int(facts.end[row]) + shift)
        flushing.one()
