"""A session's spans: ends those of runs and puts when that was heard, and adds gangs' when the trace has their times.

In a real session a thread does so while the session is open: run's spans within a second, gangs' less often, since the
whole trace is fetched for them. A simulated session does it between calls, and adds gangs when it is over: then there
is no other thread that could disturb the turns of the user's. `session.trace` adds them at once in either.

Neighbours: `client_spans`; `gang_spans`. The functions that matter:
`end_spans`, `gangs_from`, `close`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from opentelemetry import trace as api

from .client_spans import CalledRun, CallerSpans, TracedClient
from .gang_spans import emit_gangs

if TYPE_CHECKING:
    from ..trace import Trace

EVERY = 1.0  # seconds between two times that ended runs' spans are ended
# a trace is fetched for gangs every 10 s at most, and in one of 100 parts of the time
LEAST, SHARE = 10.0, 100
MOST = 20_000  # runs that wait for the times of their gangs; the oldest go without
TOGETHER = 512  # news of which a simulated session makes spans at once

log = logging.getLogger("seaway")


class SpanSource(Protocol):
    """What is asked of a session's driver."""

    def now(self) -> int: ...

    def trace(self) -> Any: ...

    def policies(self) -> Mapping[str, str]: ...


class SeenTwice(NamedTuple):
    """One run, in nanoseconds by the client's clock and by the controller's."""

    called: int
    over: int
    submitted: int
    ended: int


def ahead(runs: Iterable[SeenTwice]) -> int:
    """Nanoseconds to add to a time of the controller's, from what both have seen of the same runs, at least one.

    A client calls before the controller hears of the run, and hears of the end after the controller. So each run bounds
    the distance of the two clocks from both sides, and many runs bound it closely, without a message. If the bounds
    exclude each other, as clocks that drift apart may have it: the middle between them.
    """
    seen = list(runs)
    low = max(run.called - run.submitted for run in seen)
    high = min(run.over - run.ended for run in seen)
    return (low + high) // 2


class SessionSpans:
    def __init__(self, tracer: api.Tracer, driver: SpanSource) -> None:
        self.tracer, self._driver = tracer, driver
        self.shift = time.time_ns() - driver.now()  # from the session's clock to nanoseconds since 1970
        self._simulated = getattr(driver, "simulation", None) is not None
        self._about: dict[str, Any] = {"seaway.simulated": True} if self._simulated else {}
        policies = sorted(set(driver.policies().values()))
        if policies:
            self._about["seaway.policy"] = ",".join(policies)
        self._clients: list[CallerSpans] = []
        # runs without gangs yet, as the trace knows them
        self._awaiting: dict[tuple[int, int], CalledRun] = {}
        self._fresh = False  # some have come since the last trace was asked for
        self._lock = threading.Lock()  # held while spans are made of what is over
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def client(self, client: TracedClient) -> CallerSpans:
        made = CallerSpans(self.tracer, client, self._about, self.shift, self._grew)
        self._clients.append(made)
        return made

    def _grew(self) -> None:
        if self._simulated:
            if sum([len(client.news) for client in self._clients]) >= TOGETHER:
                self.end_spans()
        elif self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="seaway-spans", daemon=True)
            self._thread.start()

    def _follow(self) -> None:
        due = time.monotonic() + LEAST
        while not self._closing.wait(EVERY):
            self.end_spans()
            begun = time.monotonic()
            if self._fresh and begun >= due:
                self._add_gangs()
                now = time.monotonic()
                due = now + max(LEAST, SHARE * (now - begun))

    def end_spans(self) -> None:
        """Begin the spans of all that was called, and end those of what is over."""
        with self._lock:
            for client in self._clients:
                for called in client.follow():
                    self._awaiting[client.client.known_as(called.run.number)] = called
                    self._fresh = True
            while len(self._awaiting) > MOST:
                del self._awaiting[next(iter(self._awaiting))]

    # --- gangs ----------------------------------------------------------------------------------------------

    def _add_gangs(self) -> None:
        self.end_spans()
        self._fresh = False  # before the trace is asked for: a run that ends meanwhile may not be in it
        try:
            self.gangs_from(self._driver.trace())
        except Exception as wrong:  # the session goes on without them
            if self._closing.is_set() and self._thread is threading.current_thread():
                return  # it was aborted meanwhile
            log.warning("spans of gangs are missing, for the trace cannot be had: %s", wrong)

    def gangs_from(self, trace: Trace) -> None:
        """Add spans for the gangs of all runs that have ended and are in this trace."""
        self.end_spans()
        with self._lock:
            self._emit_gangs(trace)
            if not self._awaiting:
                self._fresh = False

    def _emit_gangs(self, trace: Trace) -> None:
        if not self._awaiting:
            return
        facts = trace.facts()
        columns, mine = facts.runs, {client for client, _ in self._awaiting}
        over = np.flatnonzero(np.isin(columns["client"], list(mine)) & (columns["ended"] >= 0))
        keys = zip(columns["client"][over].tolist(), columns["call"][over].tolist(), strict=True)
        found: dict[int, CalledRun] = {}
        for row, key in zip(over.tolist(), keys, strict=True):
            called = self._awaiting.pop(key, None)
            if called is not None:
                found[row] = called
        if not found:
            return
        begun, ended = columns["submitted"], columns["ended"]
        twice = [
            SeenTwice(called.called, called.run.ended_at, int(begun[row]), int(ended[row]))
            for row, called in found.items()
        ]
        shift = self.shift + (0 if self._simulated else ahead(twice))
        parents = {row: called.span.get_span_context() for row, called in found.items()}
        emit_gangs(self.tracer, trace, parents, shift)

    # --- the end --------------------------------------------------------------------------------------------

    def close(self, abort: bool) -> None:
        """The session ends. `abort`: without waiting, so what is under way has failed, and nobody asks for a trace."""
        self._closing.set()
        if self._thread is not None and not abort:
            self._thread.join()
        self.end_spans()
        if not abort and self._fresh:
            self._add_gangs()
        for client in self._clients:
            client.leave(abandoned=abort)
        self.end_spans()
