"""One client's spans: a run's from the call until the run has ended, a put's and a read's until contents are there.

What is called, and what core's client says, is told here under the client's lock, in that order. Nothing may wait there
for a sampler or an exporter. So it only becomes news, with its time and the span that was current where it was called;
`follow` makes the spans, in a thread of the owner's. Neighbours: `session_spans` and `door_spans`, whose clients these
are; `seaway.sessions.caller` and `backend.door.cluster` tell. The functions that matter: `ClientSpans.begin`, `follow`.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from opentelemetry import context as contexts
from opentelemetry import trace as api

from core import protocol as p
from core.model import Range, ranges

if TYPE_CHECKING:
    from ..graph import Graph
    from ..specs import Slice

ABANDONED = "the session ended before it was over"
Key = tuple[str, int]  # ("run", its number), ("put", the buffer's name) or ("get", the request)


class TracedClient(Protocol):
    """What is asked of a client. `known_as`: its number and a run's, by which the controller's trace has them."""

    name: str

    def now(self) -> int: ...

    def name_of(self, home: Slice) -> str: ...

    def known_as(self, run: int) -> tuple[int, int]: ...


class CalledRun(NamedTuple):
    """A span, and what a session knows of its run; None: it is no run, or a door's. `called`: when it began, by the
    client's clock, as all times are here."""

    span: api.Span
    run: Any
    called: int


class ClientSpans:
    """`now`: the client's clock; `shift`: from it to nanoseconds since 1970."""

    def __init__(
        self, tracer: api.Tracer, kind: api.SpanKind, about: Mapping[str, Any], now: Callable[[], int], shift: int
    ) -> None:
        self._tracer, self._kind, self._about, self._now, self._shift = tracer, kind, about, now, shift
        self.news: deque[Callable[[], None]] = deque()
        self._puts: set[int] = set()  # under way
        self._open: dict[Key, CalledRun] = {}
        self._over: list[CalledRun] = []
        self.left = False

    # --- under the client's lock ----------------------------------------------------------------------------

    def begin(self, what: str, number: int, name: str, at: int, about: Mapping[str, Any], run: Any = None) -> None:
        if what == "put":
            self._puts.add(number)
        about, context = {**self._about, **about}, contexts.get_current()
        self.news.append(partial(self._begin, (what, number), name, at, about, context, run))

    def hears(self, effect: p.Command) -> None:
        match effect:
            case p.RunEnded(run=run, blame=blame):
                self._ended("run", run, blame)
            case p.RunAgain(run=run, blame=blame):
                self.news.append(partial(self._runs_again, ("run", run), self._now(), blame))
            case p.BuffersReady(buffers=buffers, blame=blame):
                self._puts_over(buffers, blame)
            case p.Received(request=request, blame=blame):
                self._ended("get", request, blame)
            case p.CallRefused(what="get" | "put" as what, name=name, blame=blame):
                self._ended(what, name, blame)
            case _:
                pass

    def given_back(self, buffers: Iterable[int | Range]) -> None:
        """These arrays were dropped: of puts among them nothing more may be heard."""
        self._puts_over(buffers, None)

    def _puts_over(self, buffers: Iterable[int | Range], blame: p.Blame | None) -> None:
        for name in ranges.each(buffers) if self._puts else ():
            if name in self._puts:
                self._puts.remove(name)
                self._ended("put", name, blame)

    def _ended(self, what: str, number: int, blame: p.Blame | None) -> None:
        self.news.append(partial(self._end, (what, number), self._now(), blame))

    def leave(self, abandoned: bool = True) -> None:
        """`abandoned`: what is under way will never be over."""
        self.news.append(partial(self._leave, self._now(), abandoned))

    # --- in one thread at a time ----------------------------------------------------------------------------

    def follow(self) -> list[CalledRun]:
        """Begin and end spans. Returns the runs of a session that are over."""
        while self.news:
            self.news.popleft()()
        over, self._over = self._over, []
        return over

    def _begin(
        self, key: Key, name: str, at: int, about: Mapping[str, Any], context: contexts.Context, run: Any
    ) -> None:
        span = self._tracer.start_span(name, context, self._kind, about, start_time=at + self._shift)
        if span.is_recording():  # otherwise the user's sampler leaves it out
            self._open[key] = CalledRun(span, run, at)

    def _runs_again(self, key: Key, at: int, blame: p.Blame) -> None:
        if key in self._open:
            why = {"error.type": blame.code, "exception.message": str(blame)}
            self._open[key].span.add_event("runs again", why, at + self._shift)

    def _end(self, key: Key, at: int, blame: p.Blame | None) -> None:
        called = self._open.pop(key, None)
        if called is None:
            return
        span, run, _ = called
        if run is not None:
            at, blame = run.ended_at, run.blame
            span.set_attribute("seaway.retries", run.tries)
            if run.due_at:
                span.set_attribute("seaway.late", run.late)
            self._over.append(called)
        if blame is not None:
            _fail(span, str(blame), blame.code, blame.node, blame.host)
        span.end(at + self._shift)

    def _leave(self, at: int, abandoned: bool) -> None:
        for span, _, _ in self._open.values():
            if abandoned:
                _fail(span, ABANDONED, "abandoned")
            span.end(at + self._shift)
        self._open.clear()
        self.left = True


def _fail(span: api.Span, text: str, code: str, node: str = "", host: int = -1) -> None:
    """Say why it failed, in OpenTelemetry's words."""
    span.set_attribute("error.type", code)
    if node:
        span.set_attribute("seaway.error.node", node)
    if host >= 0:
        span.set_attribute("seaway.error.host", host)
    span.set_status(api.Status(api.StatusCode.ERROR, text))


class CallerSpans(ClientSpans):
    """A session's client. `grew()` is called when there is news."""

    def __init__(
        self, tracer: api.Tracer, client: TracedClient, about: Mapping[str, Any], shift: int, grew: Callable[[], None]
    ) -> None:
        about = {"seaway.client": client.name, **about}
        super().__init__(tracer, api.SpanKind.CLIENT, about, client.now, shift)
        self.client, self._grew = client, grew

    def called(self, run: Any, graph: Graph, at: int) -> None:
        about = {
            "seaway.program": graph.name,
            "seaway.run": run.number,
            "seaway.slices": [self.client.name_of(home) for home in graph.slices],
            "seaway.gangs": len(graph.nodes),
        }
        self.begin("run", run.number, graph.name, at, about, run)
        self._grew()

    def put(self, array: Any, at: int) -> None:
        about = {"seaway.slices": [self.client.name_of(array.slice)], "seaway.nbytes": array.nbytes}
        self.begin("put", array._name, "put", at, about)
        self._grew()

    def read(self, fetches: Sequence[Any], at: int) -> None:
        """A read that began at this time is over; its error is what is being raised now, if anything is."""
        about = {**self._about, "seaway.nbytes": sum(fetch.buffer.aval.nbytes for fetch in fetches)}
        span = self._tracer.start_span("get", None, self._kind, about, start_time=at + self._shift)
        error = sys.exception()
        if error is not None:
            span.set_attribute("error.type", str(getattr(error, "code", type(error).__qualname__)))
            span.set_status(api.Status(api.StatusCode.ERROR, str(error)))
        span.end(self._now() + self._shift)
