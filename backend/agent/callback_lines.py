"""Streams on which this host's programs call functions of their clients' processes: one for each session of a door.

    an executable's forwarder --ask(key, body)--> the session's stream --> backend.door.cluster.cluster_callbacks
                              <--came(body)------

A door opens them when a program of its session has callbacks, and names its session by a key that is drawn at random
and part of the program's code. A call waits a little for a stream that is not there, or not there again. Neighbours:
`agent`, whose listener takes the streams; `pjrt.code.forwarders`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

from core.link import Unreadable

from ..contents import CallbackFault, callbacks
from ..streams import Connection
from ..wire import framing

LONGEST_KEY = 64
STREAM_S = 3.0  # seconds for which a call waits for the stream: doors try again every second
GONE = "the door of the program, which calls its functions, is not connected to this host"
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
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._connection: Connection | None = None
        self._waiting: dict[int, Callable[[bytes], None]] = {}

    @property
    def used(self) -> bool:
        return self._connection is not None or bool(self._waiting)

    def begin(self, connection: Connection) -> None:
        with self._changed:
            self._connection = connection
            self._changed.notify_all()

    def ask(self, body: bytes, came: Callable[[bytes], None]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._connection is not None, STREAM_S)
            connection = self._connection
            if connection is not None:
                number = next(self._numbers)
                self._waiting[number] = came
                for piece in callbacks.pieces(number, body):  # under the lock: they have to stay together
                    connection.put(framing.REQUEST, piece)
        if connection is None:
            came(callbacks.failed(GONE))
        else:
            connection.flush()

    def answer(self, number: int, body: bytes) -> None:
        with self._changed:
            came = self._waiting.pop(number, None)
        if came is not None:
            came(body)

    def end(self, connection: Connection) -> None:
        with self._changed:
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
