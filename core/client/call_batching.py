"""When a client's calls leave, and which of them leave together.

A call leaves at once while fewer than `pipe` messages are in flight. A message is in flight until the controller
answers one of its calls, and for `linger` at most. Other calls gather. They leave when a message lands, up to `batch`
of them in one message. A release and the call before or after it leave together, if both are made in one turn: nothing
answers a release, so by itself it would take a message, a turn of the controller, and a place in flight.

Each time that `pipe` messages have lingered and nothing was answered, the next message may linger twice as long, up to
`MOST` times `linger`. Otherwise clients that call faster than the controller can take messages would bury it under
messages of a call or two; and reports of hosts, on which the next gang waits, would stand in that queue.

Neighbours: `outgoing_calls` puts calls in, `client_session` says what was answered. Messages go to `out`, as Sends.
"""

from collections import deque
from typing import Any

from ..protocol import CONTROLLER, Call, Calls, Command, Get, Put, Release, Send, Submit, View
from .client_limits import Limits

MOST = 32  # times `linger`: no call waits longer for others to gather
TO_CONTROLLER = (CONTROLLER,)
# Which calls the controller answers by name: kind of the answer, and the field with the name.
ANSWERED: dict[type, tuple[str, str]] = {
    Submit: ("run", "run"),
    Put: ("put", "buffer"),
    Get: ("get", "request"),
    View: ("put", "buffer"),  # by the same note, which says that its contents are there
}


class CallBatching:
    def __init__(self, limits: Limits, out: list[Command]) -> None:
        self._pipe, self._linger, self._batch = limits.pipe, limits.linger, limits.batch
        self._out = out
        self._messages = 0
        self._lingered = 0  # messages since anything was answered
        self._lasts = limits.linger  # how long the next message may be in flight
        self._in_flight: dict[int, int] = {}  # message -> until when at most; in the order in which they left
        # What a note may answer -> the message that its call left in.
        self._carried: dict[str, dict[int, int]] = {"run": {}, "put": {}, "get": {}}
        self.gathered: deque[Call] = deque()

    def call(self, call: Call, now: int) -> None:
        """The connection is up: it leaves now, if there is room and no other call waits."""
        if self._out and not self.gathered and self._joins(call):
            return
        if not self.gathered and len(self._in_flight) < self._pipe:
            if self._in_flight:
                self._land_lingering(now)
            self._messages = message = self._messages + 1
            self._in_flight[message] = now + self._lasts
            self._carries(message, call)
            self._out.append(Send(TO_CONTROLLER, call))
        else:
            self.gather(call)
            self.send(now)

    def _joins(self, call: Call) -> bool:
        """Whether it can leave with the call before it in this turn."""
        last = self._out[-1]
        if type(last) is not Send:
            return False
        before: Any = last.message
        kind = type(call)
        other = type(before) if kind is Release else kind if type(before) is Release else None
        if other not in ANSWERED:
            return False
        if kind is not Release:
            self._carries(self._messages, call)
        self._out[-1] = Send(TO_CONTROLLER, Calls((before, call)))
        return True

    def _carries(self, message: int, call: Call) -> None:
        answer = ANSWERED.get(type(call))
        if answer is not None:
            self._carried[answer[0]][getattr(call, answer[1])] = message

    def gather(self, call: Call) -> None:
        """It leaves later. Releases that follow one another become one."""
        last = self.gathered[-1] if self.gathered else None
        if isinstance(call, Release) and isinstance(last, Release):
            self.gathered[-1] = Release((*last.buffers, *call.buffers))
        else:
            self.gathered.append(call)

    def send(self, now: int) -> None:
        """The connection is up: gathered calls leave, as far as there is room."""
        if self._in_flight:
            self._land_lingering(now)
        while self.gathered and len(self._in_flight) < self._pipe:
            self._send_some(now)

    def send_all(self, now: int) -> None:
        """Gathered calls leave, whatever is in flight."""
        while self.gathered:
            self._send_some(now)

    def _land_lingering(self, now: int) -> None:
        flying = self._in_flight
        while flying:
            message = next(iter(flying))
            if flying[message] > now:
                return
            del flying[message]
            self._lingered += 1
            self._lasts = self._linger * min(1 << self._lingered // self._pipe, MOST)

    def _send_some(self, now: int) -> None:
        self._messages = message = self._messages + 1
        self._in_flight[message] = now + self._lasts
        calls = [self.gathered.popleft() for _ in range(min(len(self.gathered), self._batch))]
        for call in calls:
            self._carries(message, call)
        self._out.append(Send(TO_CONTROLLER, calls[0] if len(calls) == 1 else Calls(tuple(calls))))

    def answered(self, kind: str, name: int) -> None:
        message = self._carried[kind].pop(name, None)
        if message is not None:
            self._in_flight.pop(message, None)
            self._lingered, self._lasts = 0, self._linger

    def start_anew(self) -> None:
        """There is another connection: nothing is in flight on it, and what was is lost."""
        self._lingered, self._lasts = 0, self._linger
        self._in_flight.clear()
        for carried in self._carried.values():
            carried.clear()

    def next_wakeup(self) -> int | None:
        """When a message that nothing answers counts as landed, if calls wait for that."""
        if not self.gathered:
            return None
        return next(iter(self._in_flight.values()), 0)
