"""Streams on which this host's programs call functions of their clients' processes: one for each session of a door.

    an executable's forwarder --ask(key, body)--> the session's stream --> backend.door.cluster.cluster_callbacks
                              <--came(body)------

A door opens them when a program of its session has callbacks, and names its session by a key that is drawn at random
and part of the program's code. What is asked before the stream is there waits for it, as long as its asker does.
Neighbours: `agent`, whose listener takes the streams; `pjrt.code.forwarders`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

from core.link import Unreadable

from ..contents import CallbackFault, callbacks
from ..streams import Connection
from ..wire import framing

STREAM = "Callbacks"  # what a door asks for when it opens one
LONGEST_KEY = 64
GONE = "the door of the program, which calls its functions, is not connected to this host any more"
MOST = 4096  # sessions


class CallbackLines:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, _Line] = {}

    def take(self, connection: Connection) -> None:
        """A door has opened a stream; it says for which session. In the loop."""
        joined = callbacks.Joined()
        line: _Line | None = None

        def arrived() -> None:
            nonlocal line
            try:
                while (frame := connection.next()) is not None:
                    if line is None:
                        line = self._line(_key(frame))
                        line.begin(connection)
                    elif (answer := joined.take(bytes(frame.message))) is not None:
                        line.answer(*answer)
            except (Unreadable, CallbackFault) as error:
                connection.close(str(error))

        def ended() -> None:
            if line is not None:
                line.end(connection)

        connection.ended = ended
        connection.start(arrived)

    def ask(self, key: str, body: bytes, came: Callable[[bytes], None]) -> None:
        """Begins a call; from any thread."""
        self._line(key).ask(body, came)

    def _line(self, key: str) -> _Line:
        with self._lock:
            found = self._lines.get(key)
            if found is None:
                if len(self._lines) >= MOST:
                    self._lines = {key: each for key, each in self._lines.items() if each.used}
                found = self._lines[key] = _Line()
            return found


class _Line:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._connection: Connection | None = None
        self._early: list[tuple[int, bytes]] = []  # asked before there was a stream
        self._waiting: dict[int, Callable[[bytes], None]] = {}

    @property
    def used(self) -> bool:
        return self._connection is not None or bool(self._waiting)

    def begin(self, connection: Connection) -> None:
        with self._lock:
            self._connection = connection
            early, self._early = self._early, []
            for number, body in early:
                self._say(connection, number, body)
        connection.flush()

    def ask(self, body: bytes, came: Callable[[bytes], None]) -> None:
        with self._lock:
            number, connection = next(self._numbers), self._connection
            self._waiting[number] = came
            if connection is None:
                self._early.append((number, body))
                return
            self._say(connection, number, body)
        connection.flush()

    def _say(self, connection: Connection, number: int, body: bytes) -> None:
        for piece in callbacks.pieces(number, body):
            connection.put(framing.REQUEST, piece)

    def answer(self, number: int, body: bytes) -> None:
        with self._lock:
            came = self._waiting.pop(number, None)
        if came is not None:
            came(body)

    def end(self, connection: Connection) -> None:
        with self._lock:
            if self._connection is not connection:
                return
            self._connection = None
            waiting, self._waiting = self._waiting, {}
        for came in waiting.values():
            came(callbacks.failed(GONE))


def _key(frame: framing.StreamFrame) -> str:
    if frame.kind != framing.REQUEST or not 0 < len(frame.message) <= LONGEST_KEY:
        raise Unreadable("a stream for callbacks does not begin with its session's key")
    return bytes(frame.message).decode("ascii", "replace")
