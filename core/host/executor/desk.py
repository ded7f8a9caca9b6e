"""What the rooms of one executor share: its place, how far the stream has come, what waits, what is to be
said.

`live` is the one question about the past that may be asked: "could this still be going on, as far as the
stream tells?" It is asked of the stream (`settled`), not of what has happened here, so that its answer does
not depend on how connections interleave. A step that was settled before a message was written has ended
before it came.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from ...model import Spans, spans
from ...protocol import Blame, Cause, Effect, Lost, Report, Seated, Trouble, Up
from .waits import Causes, Waits

# A record's life: (state, what happened) -> next state. What is not here is illegal for who says it happened.
NEXT: dict[tuple[str, str], str] = {
    # gangs
    ("queued", "launch"): "launched",
    ("launched", "finish"): "over",
    (
        "launched",
        "fail",
    ): "failed",  # never enqueued here, while its peers may wait for it: the epoch must end
    ("queued", "abandon"): "over",  # a tombstone: those behind it go on
    ("launched", "abandon"): "gone",
    ("failed", "abandon"): "gone",
    ("gone", "finish"): "gone",  # the devices gave it up, or had finished before they were told: no matter
    ("gone", "fail"): "gone",
    # sends, receives, copies
    ("waiting", "open"): "open",
    ("waiting", "count"): "counting",  # sparse: which rows go where is being read
    ("counting", "open"): "open",
    ("open", "end"): "over",
}


class Record:
    """Something with a seq that this host takes part in, until it is over here and settled everywhere."""

    __slots__ = ("home", "key", "said", "seq", "state")

    def __init__(self, seq: int, state: str, home: dict[int, Any], key: int) -> None:
        self.seq = seq
        self.state = state
        self.said: tuple[Report, ...] = ()  # said again after a new seat, until it is settled
        self.home = home
        self.key = key
        home[key] = self

    def legal(self, happened: str) -> bool:
        return (self.state, happened) in NEXT

    def turn(self, happened: str) -> None:
        self.state = NEXT[self.state, happened]

    def describe(self) -> tuple[Any, ...]:
        """Of one that is over, what later steps may depend on: but for who says it."""
        said = [msgspec.structs.replace(report, hosts=spans.EMPTY) for report in self.said]
        return type(self), self.seq, self.key, said


class Desk:
    def __init__(self, host: int) -> None:
        self.stand_for(spans.one(host))
        self.waits = Waits()
        self.settled = -1
        self.order: Cause = ("order", -1)  # the message that is being read
        self.out: list[Effect] = []
        self.records: deque[Record] = deque()  # in the order of the stream

    def stand_for(self, alike: Spans) -> None:
        """Whom reports are about. What is said of one host is said of the first; each of the others says it too."""
        self.me = alike
        self.host = alike[0][0]

    def live(self, seq: int, cause: Cause) -> bool:
        return seq >= self.settled or self.waits.pending(cause)

    def up(self, report: Report | Seated, causes: Causes) -> None:
        self.out.append(Up(report, causes))

    def fault(self, text: str, seq: int = -1) -> Blame:
        """The controller said something that makes no sense here. It is told, and nothing is raised."""
        blame = Blame("protocol", text)
        self.up(Trouble(self.host, seq, blame), (self.order,))
        return blame

    def here(self, blame: Blame | None, program: str = "", node: str = "") -> Blame | None:
        """A blame from this host's own devices, with the names that the devices do not know."""
        if blame is None or blame.host >= 0:
            return blame
        return msgspec.structs.replace(
            blame, host=self.host, program=blame.program or program, node=blame.node or node
        )

    def again(self, report: Report) -> None:
        if not isinstance(report, (Trouble, Lost)) and report.hosts != self.me:
            report = msgspec.structs.replace(report, hosts=self.me)  # it stood for others when this was said
        self.up(report, (self.order,))

    def settle(self, settled: int) -> None:
        """Below it all is final: forget what is over. By causality it is; what is not, stays."""
        if settled <= self.settled:
            return
        self.settled = settled
        records = self.records
        while records and records[0].seq < settled and records[0].state in ("over", "gone"):
            record = records.popleft()
            del record.home[record.key]
