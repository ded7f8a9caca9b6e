"""When a client's calls leave, and which of them together.

A call leaves at once while fewer than `width` messages are in flight; a message is in flight until a note
answers one of its calls, and for `linger` at most. Other calls gather, and leave when a message lands, up to
`batch` of them in one.

Each time that `width` messages have lingered and nothing was answered, the next may linger twice as long, up to
`MOST` times `linger`. Clients that call faster than the controller takes a message would else bury it under
messages of a call or two, and what hosts have to say, on which the next gang waits, would stand in that queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ..protocol import Call, Calls, Get, Put, Release, Submit

MOST = 32  # times `linger`: no call waits longer for others to gather

Answer = tuple[str, int]  # what a note answers: ("run", its name), ("put", buffer), ("get", request)


class Pipe:
    def __init__(self, width: int, linger: int, batch: int) -> None:
        self._width = width
        self._linger = linger
        self._batch = batch
        self._messages = 0
        self._unheard = 0  # messages that have lingered since anything was answered
        self._flying: dict[int, int] = {}  # message -> until when at most; in the order in which they left
        self._answers: dict[Answer, int] = {}  # -> the message that its call left in
        self.gathered: deque[Call] = deque()

    def add(self, call: Call) -> None:
        last = self.gathered[-1] if self.gathered else None
        if isinstance(call, Release) and isinstance(last, Release):
            self.gathered[-1] = Release((*last.buffers, *call.buffers))
        else:
            self.gathered.append(call)

    def leaving(self, now: int) -> Iterator[Call | Calls]:
        """What may leave now."""
        while self._flying and next(iter(self._flying.values())) <= now:
            del self._flying[next(iter(self._flying))]
            self._unheard += 1
        while self.gathered and len(self._flying) < self._width:
            yield self._message(now)

    def all(self, now: int) -> Iterator[Call | Calls]:
        """Whatever is in flight."""
        while self.gathered:
            yield self._message(now)

    def _message(self, now: int) -> Call | Calls:
        self._messages += 1
        self._flying[self._messages] = now + self._linger * min(1 << self._unheard // self._width, MOST)
        calls = [self.gathered.popleft() for _ in range(min(len(self.gathered), self._batch))]
        for call in calls:
            answer = _answer(call)
            if answer is not None:
                self._answers[answer] = self._messages
        return calls[0] if len(calls) == 1 else Calls(tuple(calls))

    def answered(self, what: str, name: int) -> None:
        message = self._answers.pop((what, name), None)
        if message is not None:
            self._flying.pop(message, None)
            self._unheard = 0

    def anew(self) -> None:
        """Another connection: nothing is in flight, and what was is lost."""
        self._unheard = 0
        self._flying.clear()
        self._answers.clear()

    def next_wakeup(self) -> int | None:
        """When a message that nothing answers counts as landed, if calls wait for that."""
        if not self.gathered:
            return None
        return next(iter(self._flying.values()), 0)


def _answer(call: Call) -> Answer | None:
    match call:
        case Submit(run=run):
            return ("run", run)
        case Put(buffer=buffer):
            return ("put", buffer)
        case Get(request=request):
            return ("get", request)
        case _:
            return None
