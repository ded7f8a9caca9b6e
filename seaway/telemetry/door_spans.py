"""Spans of JAX programs that come through a door to a cluster: of their runs, puts and reads, as the door makes them.

The programs are other processes, and IFRT carries no context: so these spans are below no other. The door's sessions
tell what they call and hear; a thread makes spans of it. A door that finds no tracer provider tells nobody.

Neighbours: `backend.door.cluster`, whose sessions these are; `client_spans`.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from opentelemetry import trace as api

from .client_spans import ClientSpans
from .gang_spans import Flushing

if TYPE_CHECKING:
    from backend.door import SessionLine

EVERY = 1.0  # seconds between two times that spans are made


class SessionWatch(ClientSpans):
    """One session of a door."""

    def called(self, run: int, program: str, at: int) -> None:
        self.begin("run", run, program, at, {"seaway.program": program, "seaway.run": run})

    def put(self, buffer: int, nbytes: int, at: int) -> None:
        self.begin("put", buffer, "put", at, {"seaway.nbytes": nbytes})

    def got(self, request: int, nbytes: int, at: int) -> None:
        self.begin("get", request, "get", at, {"seaway.nbytes": nbytes})


class DoorSpans:
    """All spans of a door."""

    def __init__(self, tracer: api.Tracer) -> None:
        self._tracer = tracer
        self._sessions: list[SessionWatch] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, line: SessionLine) -> SessionWatch:
        """What a new session is to tell."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="seaway-spans", daemon=True)
            self._thread.start()
        about, shift = {"seaway.client": line.name}, time.time_ns() - line.now()
        made = SessionWatch(self._tracer, api.SpanKind.SERVER, about, line.now, shift)
        self._sessions.append(made)
        line.when_closed(made.leave)
        return made

    def _follow(self) -> None:
        while not self._closing.wait(EVERY):
            self.end_spans()

    def end_spans(self) -> None:
        with self._lock:
            for each in self._sessions.copy():
                each.follow()
                if each.left:
                    self._sessions.remove(each)

    def close(self) -> None:
        """The door ends: exporters take what there is."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self.end_spans()
        Flushing().all()
