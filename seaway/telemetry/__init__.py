"""Runs of a session as OpenTelemetry spans, below the user's own; of the gangs that they ran, too (extra `otel`).

session_spans   a session's spans: runs' when they end, gangs' when the trace has their times
gang_spans      of gangs, as the trace has them
client_spans    one client's: what it calls, puts and reads, from the call until it is over
door_spans      of JAX programs that come through a door

The client alone makes the spans: it knows the user's context when a call is made, and hears when the run is over. So
core, the controller and the hosts know nothing of them, and nothing travels with a call. A session that begins where
no tracer provider is set up has no spans, and imports nothing. Neighbour: `seaway.sessions`, which says what happens.
"""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .door_spans import DoorSpans
    from .session_spans import SessionSpans, SpanSource


def spans_of(driver: SpanSource) -> SessionSpans | None:
    """The spans of a session, if this process has set up a tracer provider."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from . import gang_spans
    from .session_spans import SessionSpans

    tracer = gang_spans.tracer()
    return None if tracer is None else SessionSpans(tracer, driver)


def door_spans_of() -> DoorSpans | None:
    """The spans of a door, if its process has set up a tracer provider."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from . import gang_spans
    from .door_spans import DoorSpans

    tracer = gang_spans.tracer()
    return None if tracer is None else DoorSpans(tracer)


def carried(work: Callable[[], None]) -> Callable[[], None]:
    """This work, for another thread, as part of the span that is current here. Without OpenTelemetry: as it is."""
    if "opentelemetry.context" not in sys.modules:
        return work
    return partial(contextvars.copy_context().run, work)
