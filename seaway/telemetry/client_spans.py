"""One client's spans: a run's from the call until the run has ended, a put's and a read's until contents are there.

Spans begin in the thread that calls, below the span that is current there. Those of runs and puts end elsewhere: the
client hears of it under core's lock, where nothing may wait for an exporter, so `session_spans` ends them later, with
the time at which it was heard. Neighbours: `session_spans`; `seaway.sessions.caller`, which calls all of this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from opentelemetry import trace as api

from core.model import ranges
from core.protocol import Blame, BuffersReady, RunAgain, RunEnded

if TYPE_CHECKING:
    from ..graph import Graph
    from ..specs import Slice
    from .session_spans import SessionSpans

Hears = Mapping[type, Callable[[Any], None]]


class TracedRun(Protocol):
    number: int
    ended_at: int
    due_at: int
    tries: int
    blame: Blame | None

    @property
    def done(self) -> bool: ...

    @property
    def late(self) -> bool: ...


class TracedClient(Protocol):
    """What is asked of a client. `known_as`: its number and a run's, by which the controller's trace has them."""

    name: str

    def now(self) -> int: ...

    def name_of(self, home: Slice) -> str: ...

    def known_as(self, run: int) -> tuple[int, int]: ...


class CalledRun(NamedTuple):
    span: api.Span
    run: TracedRun
    called: int  # by the session's clock, as all times here
    known_as: Callable[[int], tuple[int, int]]


class ClientSpans:
    def __init__(self, session: SessionSpans, client: TracedClient) -> None:
        self._session, self._client = session, client
        self._runs: dict[int, CalledRun] = {}
        self._puts: dict[int, api.Span] = {}  # by the array's name
        self._about = {"seaway.client": client.name, **session.about}

    # --- what the user calls --------------------------------------------------------------------------------

    def called(self, run: TracedRun, graph: Graph, at: int) -> None:
        """The program was called at this time, and the run is submitted. It may have ended meanwhile."""
        about = self._about | {
            "seaway.program": graph.name,
            "seaway.run": run.number,
            "seaway.slices": [self._client.name_of(home) for home in graph.slices],
            "seaway.gangs": len(graph.nodes),
        }
        span = self._begun(graph.name, about, at)
        if span is not None:
            self._runs[run.number] = CalledRun(span, run, at, self._client.known_as)
            if run.done:
                self._run_over(run.number)
            self._session.grew()

    def put(self, array: Any, at: int) -> None:
        about = self._about | {
            "seaway.slices": [self._client.name_of(array.slice)],
            "seaway.nbytes": array.nbytes,
        }
        span = self._begun("put", about, at)
        if span is not None:
            self._puts[array._name] = span
            if array._outcome.known:
                self._put_over(array._name, array._outcome.blame)
            self._session.grew()

    def reading(self, fetches: Sequence[Any]) -> api.Span | None:
        nbytes = sum(fetch.buffer.aval.nbytes for fetch in fetches)
        return (
            self._begun("get", self._about | {"seaway.nbytes": nbytes}, self._client.now())
            if fetches
            else None
        )

    def read(self, span: api.Span) -> None:
        """The read is over; its error is what is being raised now, if anything is."""
        error = sys.exception()
        if error is not None:
            span.set_attribute("error.type", str(getattr(error, "code", type(error).__qualname__)))
            span.set_status(api.Status(api.StatusCode.ERROR, str(error)))
        span.end(self._client.now() + self._session.shift)

    def _begun(self, name: str, about: Mapping[str, Any], at: int) -> api.Span | None:
        """None if the user's sampler leaves it out."""
        span = self._session.tracer.start_span(
            name, None, api.SpanKind.CLIENT, about, start_time=at + self._session.shift
        )
        return span if span.is_recording() else None

    # --- what the client hears ------------------------------------------------------------------------------

    def hearing(self, hears: Hears) -> dict[type, Callable[[Any], None]]:
        """What a client does with what it hears, and after that what is done here."""
        mine: Hears = {RunEnded: self._ended, RunAgain: self._again, BuffersReady: self._settled}

        def both(first: Callable[[Any], None], then: Callable[[Any], None]) -> Callable[[Any], None]:
            def act(effect: Any) -> None:
                first(effect)
                then(effect)

            return act

        return {**hears, **{kind: both(hears[kind], act) for kind, act in mine.items()}}

    def _ended(self, effect: RunEnded) -> None:
        self._run_over(effect.run)

    def _again(self, effect: RunAgain) -> None:
        called = self._runs.get(effect.run)
        if called is not None:
            why = {"error.type": effect.blame.code, "exception.message": str(effect.blame)}
            called.span.add_event("runs again", why, self._client.now() + self._session.shift)

    def _settled(self, effect: BuffersReady) -> None:
        if self._puts:
            for name in ranges.each(effect.buffers):
                self._put_over(name, effect.blame)

    def _run_over(self, number: int) -> None:
        called = self._runs.pop(number, None)
        if called is not None:
            self._session.runs_over.append(called)

    def _put_over(self, name: int, blame: Blame | None) -> None:
        span = self._puts.pop(name, None)
        if span is not None:
            self._session.puts_over.append((span, self._client.now(), blame))

    def given_back(self, first: int, count: int) -> None:
        """These arrays were dropped: of puts among them nothing more may be heard."""
        for name in range(first, first + count) if self._puts else ():
            self._put_over(name, None)

    def left(self) -> Iterable[api.Span]:
        """Spans of what is not over, and never will be."""
        found = [called.span for called in list(self._runs.values())] + list(self._puts.values())
        self._runs.clear()
        self._puts.clear()
        return found
