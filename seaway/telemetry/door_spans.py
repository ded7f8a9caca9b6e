"""Spans of JAX programs that come through a door to a cluster: of their runs, puts and reads, as the door makes them.

    ClusterSessions --act, heard--> WatchedLine --act, heard--> the session's own line to the cluster

The programs are other processes, and IFRT carries no context: so these spans are below no other. The door's sessions
call core's client on one thread, and hear there what is over. Spans begin on it; a thread of their own ends them, since
an exporter may take its time. A door that finds no tracer provider has none of this in between.

Neighbours: `backend.door`, whose lines and clients these are; `client_spans`, which does the same in native sessions.
The functions that matter: `WatchedLine.act`, `_note`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from opentelemetry import trace as api

from core.client import Blocked, Submitted
from core.model import Program, Value, ranges
from core.protocol import Blame, BuffersReady, CallRefused, GetAgain, OpenRecv, Received, RunEnded

from ..trace import otel

EVERY = 1.0  # seconds between two times that spans are ended
ABANDONED = "the session ended before it was over"


class Line(Protocol):
    """A session's line to its cluster, as far as it is watched."""

    name: str
    heard: Callable[[Any], None]
    failed: Callable[[Any], None]

    def act(self, act: Callable[[Any, int], Any]) -> Any: ...

    def now(self) -> int: ...

    def taken(self, request: int, value: Value) -> Any: ...

    def when_closed(self, then: Callable[[], None]) -> None: ...


class Over(NamedTuple):
    """A span whose work is over, and when."""

    span: api.Span
    at: int
    blame: Blame | None
    abandoned: bool = False


class DoorSpans:
    """All spans of a door."""

    def __init__(self, tracer: api.Tracer) -> None:
        self.tracer = tracer
        self.over: deque[Over] = deque()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def source(self, source: Any) -> WatchedSource:
        """The same cluster, with sessions that are watched."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="seaway-spans", daemon=True)
            self._thread.start()
        return WatchedSource(source, self)

    def _follow(self) -> None:
        while not self._closing.wait(EVERY):
            self.end_spans()

    def end_spans(self) -> None:
        with self._lock:
            while self.over:
                span, at, blame, abandoned = self.over.popleft()
                if blame is not None:
                    otel.failed(span, str(blame), blame.code, blame.node, blame.host)
                elif abandoned:
                    otel.failed(span, ABANDONED, "abandoned", "", -1)
                span.end(at)

    def close(self) -> None:
        """The door ends: exporters take what there is."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self.end_spans()
        otel.Flushing(None).all()


class WatchedSource:
    """Implements `SessionSource` of the door with another one."""

    def __init__(self, source: Any, spans: DoorSpans) -> None:
        self.name, self.devices, self.island = source.name, source.devices, source.island
        self._source, self._spans = source, spans
        self._lines: dict[Any, WatchedLine] = {}  # by the line that each watches

    def line(self, name: str) -> tuple[Any, Any]:
        line, serves = self._source.line(name)
        made = self._lines[line] = WatchedLine(line, self._spans)
        made.when_closed(lambda: self._lines.pop(line, None))
        return made, serves

    async def seen(self) -> Mapping[Any, Any]:
        seen = await self._source.seen()
        return {self._lines[line]: times for line, times in seen.items() if line in self._lines}


class WatchedLine:
    """A session's line, of which spans are made. What is not here is the line's own."""

    def __init__(self, line: Line, spans: DoorSpans) -> None:
        self._line, self._spans = line, spans
        self._shift = time.time_ns() - line.now()  # from the client's clock to nanoseconds since 1970
        self._heard = line.heard
        self._programs: dict[int, str] = {}
        self._runs: dict[int, api.Span] = {}
        self._puts: dict[int, api.Span] = {}  # by the buffer's name
        self._gets: dict[int, api.Span] = {}  # by request
        self._coming: dict[int, int] = {}  # transfer -> request
        self._made: list[Callable[[], None]] = []  # spans to begin, of the call that is being made
        line.heard = self._note
        line.when_closed(self._left)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._line, name)

    @property
    def heard(self) -> Callable[[Any], None]:
        return self._heard

    @heard.setter
    def heard(self, heard: Callable[[Any], None]) -> None:
        self._heard = heard

    @property
    def failed(self) -> Callable[[Any], None]:
        return self._line.failed

    @failed.setter
    def failed(self, failed: Callable[[Any], None]) -> None:
        self._line.failed = failed

    # --- what is called -------------------------------------------------------------------------------------

    def act(self, act: Callable[[Any, int], Any]) -> Any:
        """Spans begin when the call was made, outside of the client's lock."""
        try:
            return self._line.act(lambda client, now: act(WatchedClient(client, self), now))
        finally:
            made, self._made = self._made, []
            for begin in made:
                begin()

    def registered(self, number: int, name: str) -> None:
        self._programs[number] = name

    def called(self, program: int, run: int, now: int) -> None:
        name = self._programs.get(program, "?")
        about = {"seaway.program": name, "seaway.run": run}
        self._made.append(partial(self._begin, self._runs, run, name, about, now))

    def put(self, buffer: int, nbytes: int, now: int) -> None:
        self._made.append(partial(self._begin, self._puts, buffer, "put", {"seaway.nbytes": nbytes}, now))

    def get(self, request: int, now: int) -> None:
        self._made.append(partial(self._begin, self._gets, request, "get", {}, now))

    def dropped(self, buffers: Any) -> None:
        """Nothing more may be heard of puts among them."""
        for name in ranges.each(buffers) if self._puts else ():
            self._end(self._puts, name, None)

    def _begin(
        self, open_spans: dict[int, api.Span], key: int, name: str, about: dict[str, Any], now: int
    ) -> None:
        about = {"seaway.client": self._line.name, **about}
        span = self._spans.tracer.start_span(
            name, None, api.SpanKind.SERVER, about, start_time=now + self._shift
        )
        if span.is_recording():  # otherwise the user's sampler leaves it out
            open_spans[key] = span

    # --- what is heard --------------------------------------------------------------------------------------

    def taken(self, request: int, value: Value) -> Any:
        span = self._gets.get(request)
        if span is not None:
            span.set_attribute("seaway.nbytes", value.nbytes)
        return self._line.taken(request, value)

    def _note(self, command: Any) -> None:
        try:
            self._heard(command)
        finally:
            self._look(command)

    def _look(self, command: Any) -> None:
        match command:
            case RunEnded(run=run, blame=blame):
                self._end(self._runs, run, blame)
            case BuffersReady(buffers=buffers, blame=blame) if self._puts:
                for name in ranges.each(buffers):
                    self._end(self._puts, name, blame)
            case OpenRecv(transfer=transfer, buffer=request):
                self._coming[transfer] = request
            case GetAgain(transfer=transfer):
                self._coming.pop(transfer, None)
            case Received(transfer=transfer, blame=blame):
                self._end(self._gets, self._coming.pop(transfer, 0), blame)
            case CallRefused(what="get" | "sending", name=request, blame=blame):
                self._end(self._gets, request, blame)
            case CallRefused(what="put", name=name, blame=blame):
                self._end(self._puts, name, blame)
            case _:
                pass

    def _end(self, open_spans: dict[int, api.Span], key: int, blame: Blame | None) -> None:
        span = open_spans.pop(key, None)
        if span is not None:
            self._spans.over.append(Over(span, self._line.now() + self._shift, blame))

    def _left(self) -> None:
        """The session is over, and what is under way will never be."""
        at = self._line.now() + self._shift
        for open_spans in (self._runs, self._puts, self._gets):
            self._spans.over.extend(Over(span, at, None, abandoned=True) for span in open_spans.values())
            open_spans.clear()


class WatchedClient:
    """Core's client during one call. What is not here is the client's own."""

    def __init__(self, client: Any, line: WatchedLine) -> None:
        self._client, self._line = client, line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def register(self, program: Program, now: int, tell: bool = False) -> int | Blocked:
        found: int | Blocked = self._client.register(program, now, tell)
        if not isinstance(found, Blocked):
            self._line.registered(found, program.name)
        return found

    def submit(self, program: int, args: Any, now: int, **more: Any) -> Submitted | Blocked:
        found: Submitted | Blocked = self._client.submit(program, args, now, **more)
        if isinstance(found, Submitted):
            self._line.called(program, found.run, now)
        return found

    def put(self, value: Value, where: Any, now: int, **more: Any) -> int | Blocked:
        found: int | Blocked = self._client.put(value, where, now, **more)
        if not isinstance(found, Blocked):
            self._line.put(found, value.nbytes, now)
        return found

    def get(self, buffer: int, now: int, shard: int = -1) -> int | Blocked:
        found: int | Blocked = self._client.get(buffer, now, shard)
        if not isinstance(found, Blocked):
            self._line.get(found, now)
        return found

    def release(self, buffers: Any, now: int) -> None:
        self._client.release(buffers, now)
        self._line.dropped(buffers)
