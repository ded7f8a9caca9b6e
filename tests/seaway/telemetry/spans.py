"""Spans in memory, by OpenTelemetry's own SDK, for tests: `with collected() as spans`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pandas as pd
import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler


class Spans:
    def __init__(self, provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
        self.provider, self._exporter = provider, exporter
        self.tracer = provider.get_tracer("the user's program")

    def all(self) -> list[ReadableSpan]:
        return sorted(self._exporter.get_finished_spans(), key=lambda span: times(span))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found

    def below(self, parent: ReadableSpan) -> list[ReadableSpan]:
        number = context_of(parent).span_id
        return [span for span in self.all() if span.parent is not None and span.parent.span_id == number]


def provided(sampler: Sampler = ALWAYS_ON) -> Spans:
    """A provider that the process does not use by itself."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(sampler=sampler)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Spans(provider, exporter)


@contextmanager
def collected(sampler: Sampler = ALWAYS_ON) -> Iterator[Spans]:
    """The process has set up a provider. OpenTelemetry lets it do so once; for tests that is undone."""
    found = provided(sampler)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "_TRACER_PROVIDER", found.provider)
        yield found


def context_of(span: ReadableSpan) -> api.SpanContext:
    found: api.SpanContext | None = span.context
    assert found is not None
    return found


def times(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


def within(span: ReadableSpan, other: ReadableSpan) -> bool:
    begin, end = times(span)
    low, high = times(other)
    return low <= begin <= end <= high


def in_nanoseconds(frame: pd.DataFrame, *columns: str) -> list[tuple[int, ...]]:
    """Rows of columns of microseconds."""
    each = [[round(time * 1_000) for time in frame[name].tolist()] for name in columns]
    return list(zip(*each, strict=True))


def about(span: ReadableSpan, *names: str) -> tuple[object, ...]:
    return tuple((span.attributes or {}).get(f"seaway.{name}") for name in names)
