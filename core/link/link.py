"""One end of a reliable message stream: each message is delivered once and in order, or the peer is declared gone.

A `Link` lives as long as the peer keeps its own end; connections below it come and go. Every frame acknowledges what
its sender has received (`ack`), so messages that were lost with a connection are sent again on the next one:

    down      there is no connection; messages wait
    greeting  connected; our first frame, a bare one, is sent; the peer's first frame says from where to continue
    up        frames flow; a gap is answered with `again`, and the peer goes back to it (go-back-N)
    gone      the lease has run out in one direction, or the peer broke the rules; this is final

Nothing waits for ever: a peer is gone if it is silent for `lease` nanoseconds; if nothing that was sent has reached it
for that long and one `idle` more, although it is heard; or if it leaves more than `limit` messages unacknowledged
because the owner of the link ignored `full`. Time decides only that, and when a bare frame (an acknowledgement, a sign
of life) is due. It never decides which message is delivered.

Whether the peer hears us, its frames say: each carries the last `mark` that came from us. Our frames carry another mark
twice in `idle` at most, so this takes no frames of its own. Where contents are on their way, marks wait behind them,
on a slow network for longer than a lease. So it counts as well that the peer acknowledges more, and that contents come:
no connection goes on carrying them if nothing goes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from ..model import Illegal
from ..protocol import Chunk, Command

ACK_EVERY = 32  # messages received before a bare frame acknowledges them, if no other frame did so before
MARKS = 11  # marks are numbers below this: more than are sent in a lease and an `idle`, if that is a quarter of it


class Frame(msgspec.Struct, frozen=True, gc=False):
    """The unit that is written to a connection. A frame without a message is called bare."""

    seq: int  # number of the message; in a bare frame, of the last message sent, which shows if later ones were lost
    ack: int  # all messages up to this one have been received
    message: msgspec.Struct | None = None
    again: bool = False  # there was a gap: send all messages after `ack` once more
    mark: int = 0
    heard: int = 0  # the last mark received


class Transmit(Command, frozen=True):
    """Write this frame to the connection. A message that goes to many links is one object: encode it once."""

    frame: Frame


class Deliver(Command, frozen=True):
    message: msgspec.Struct


class LinkEnded(Command, frozen=True):
    """The link has ended: close its connection."""

    reason: str
    violation: bool = False  # whether the peer broke the rules


LinkCommand = Transmit | Deliver | LinkEnded

# (state, event) -> state. `connected` and `disconnected` come from our own driver, so they are Illegal in any other
# state. A frame that comes without a connection is dropped: it was in flight when the connection ended.
MOVES = {
    ("down", "connected"): "greeting",
    ("greeting", "connected"): "greeting",  # the peer reconnected before we saw the old connection end
    ("up", "connected"): "greeting",
    ("greeting", "disconnected"): "down",
    ("up", "disconnected"): "down",
    ("down", "disconnected"): "down",
    ("gone", "disconnected"): "gone",
    ("greeting", "frame"): "up",
    ("down", "end"): "gone",
    ("greeting", "end"): "gone",
    ("up", "end"): "gone",
}


class Link:
    """The link to one incarnation of a peer. A peer that restarts has lost its end, and gets a new link."""

    def __init__(
        self, now: int, lease: int, *, idle: int = 0, ack_delay: int = 0, window: int = 1024, limit: int = 65536
    ) -> None:
        """Start a link without a connection.

        idle: a bare frame is sent if nothing was sent for so long (0: a quarter of the lease).
        ack_delay: how long an acknowledgement may wait for another frame that can carry it (0: as `idle`).
        window: with so many unacknowledged messages the link is `full`, and its owner should hold back.
        limit: with so many unacknowledged messages the peer counts as gone.
        """
        self.state = "down"
        self._lease, self._window, self._limit = lease, window, limit
        self._idle = idle or max(1, lease // 4)
        self._ack_delay = ack_delay or self._idle
        self._sent = 0  # number of the last message that was given to `send`
        self._acked = 0  # the peer has received all messages up to this one
        self._unacked: deque[msgspec.Struct] = deque()  # messages _acked + 1 .. _sent
        self._received = 0  # number of the last message delivered
        self._ack_sent = 0  # the highest ack that we have sent
        self._gap_reported = -1  # the gap after this message has been reported
        self._received_at = now  # when the last frame was received
        self._reached_at = now  # when a frame was sent that has reached the peer
        self._mark = self._heard = 0  # our last mark, and the peer's
        # ours that are not back, and when each was sent first
        self._marks: deque[tuple[int, int]] = deque(maxlen=MARKS - 1)
        self._marked_at = now - self._idle  # when our last mark was
        self._sent_at = now  # when the last frame was sent
        self._ack_at: int | None = None  # when an acknowledgement is due
        self._last_back = 0  # our last mark that came back
        self._excused = False  # our process did not run for a while
        self.hastened = True  # `next_wakeup` may be earlier than when it was last asked

    @property
    def full(self) -> bool:
        """Whether the owner should hold back because the peer does not keep up."""
        return len(self._unacked) >= self._window

    def send(self, message: msgspec.Struct, now: int) -> list[LinkCommand]:
        if self.state == "gone":
            return []
        if len(self._unacked) >= self._limit:
            return self._end(f"{len(self._unacked)} messages are not acknowledged")
        self._sent += 1
        self._unacked.append(message)
        return [self._frame(self._sent, message, now)] if self.state == "up" else []

    def connected(self, now: int) -> list[LinkCommand]:
        self._move("connected")
        self._gap_reported, self.hastened = -1, True
        return [self._bare(now)]

    def disconnected(self, now: int) -> list[LinkCommand]:
        self._move("disconnected")
        self._ack_at = None
        return []

    def frame_came(self, frame: Frame, now: int) -> list[LinkCommand]:
        if self.state in ("down", "gone"):
            return []
        if violation := self._violation(frame):
            return self._end(violation, violation=True)
        first = self.state == "greeting"
        if first and (frame.ack < self._acked or (frame.message is None and frame.seq < self._received)):
            return self._end("the peer has lost its end of the link")
        before = self._received_at
        late = self._excused or now - before > self._lease // 2
        self._received_at, self._heard, self._excused = now, frame.mark, False
        if self._marks and frame.heard != self._last_back:
            self._take_back(frame.heard)
        if frame.ack > self._acked:
            for _ in range(frame.ack - self._acked):
                self._unacked.popleft()
            self._acked = frame.ack
            self._reached_at = max(self._reached_at, before)  # it has received more since it sent the last frame
        elif before > self._reached_at and type(frame.message) is Chunk:
            self._reached_at = before
        commands: list[LinkCommand] = []
        if first or frame.again:
            commands += self._go_back(now)
        if first:
            self._move("frame")
        commands += self._take(frame, first, now)
        if late:  # the peer may be about to give us up: it learns at once that it is heard
            self._ack_at, self.hastened = now, True
        return commands

    def next_wakeup(self) -> int | None:
        self.hastened = False
        if self.state == "gone":
            return None
        times = [self._lease_end()]
        if self.state != "down":
            times.append(self._sent_at + self._idle)
            if self._ack_at is not None:
                times.append(self._ack_at)
        return min(times)

    def wakeup(self, now: int) -> list[LinkCommand]:
        if self.state == "gone":
            return []
        if now >= self._lease_end():
            silence = now - self._received_at
            if silence > self._lease // 2:
                return self._end(f"nothing heard for {silence / 1e9:.3g} s")
            return self._end(f"nothing that was sent arrived for {(now - self._reached_at) / 1e9:.3g} s")
        due = self._sent_at + self._idle if self._ack_at is None else min(self._sent_at + self._idle, self._ack_at)
        return [self._bare(now)] if self.state != "down" and now >= due else []

    def excuse(self, silence: int, now: int) -> None:
        """Do not count this much silence against the peer: our own process did not run meanwhile."""
        self._received_at = min(now, self._received_at + silence)
        self._reached_at = min(now, self._reached_at + silence)
        self._excused = True

    def silence(self, now: int) -> int:
        """How long nothing was heard, if that is longer than a peer that lives is ever silent; else 0."""
        silence = now - self._received_at
        return silence if silence > self._lease // 2 else 0

    @property
    def unacknowledged(self) -> Iterable[msgspec.Struct]:
        """Messages that the peer may not have."""
        return self._unacked

    # --- shared by several events

    def _lease_end(self) -> int:
        """When the peer is gone, if nothing comes before. What it has heard, its next frame says: hence `idle`."""
        return min(self._received_at, self._reached_at + self._idle) + self._lease

    def _take_back(self, mark: int) -> None:
        """The peer has heard this mark, unless that is old news."""
        if any(mark == each for each, _ in self._marks):
            self._last_back = mark
            while self._marks[0][0] != mark:
                self._marks.popleft()
            self._reached_at = self._marks.popleft()[1]

    def _move(self, event: str) -> None:
        state = MOVES.get((self.state, event))
        if state is None:
            raise Illegal(f"a link that is {self.state} cannot be {event}")
        self.state = state

    def _end(self, reason: str, violation: bool = False) -> list[LinkCommand]:
        self._move("end")
        self._unacked.clear()
        return [LinkEnded(reason, violation)]

    def _violation(self, frame: Frame) -> str:
        """Return what is impossible about the frame's numbers, or "" if nothing is."""
        if frame.ack > self._sent:
            return f"the peer acknowledges message {frame.ack}, the last one sent is {self._sent}"
        if frame.ack < 0 or frame.seq < (0 if frame.message is None else 1):
            return f"a frame cannot have the numbers {frame.seq} and {frame.ack}"
        return ""

    def _go_back(self, now: int) -> list[LinkCommand]:
        return [self._frame(number, message, now) for number, message in enumerate(self._unacked, self._acked + 1)]

    def _take(self, frame: Frame, first: bool, now: int) -> list[LinkCommand]:
        """Deliver the frame's message if it is the next one, drop it if it is old, or report a gap before it."""
        if frame.message is not None and frame.seq == self._received + 1:
            self._received = frame.seq
            if self._received - self._ack_sent >= ACK_EVERY:
                return [Deliver(frame.message), self._bare(now)]
            if self._ack_at is None:
                self._ack_at = now + self._ack_delay
                self.hastened |= self._ack_delay < self._idle  # otherwise a sign of life is due before
            return [Deliver(frame.message)]
        if frame.seq <= self._received or (first and frame.message is None):
            return []  # nothing new; or the peer's greeting: our own greeting makes it go back
        # A gap. Report it once, and again at each bare frame, because the first report may have been lost.
        if self._gap_reported == self._received and frame.message is not None:
            return []
        self._gap_reported = self._received
        return [self._bare(now, again=True)]

    def _frame(self, number: int, message: msgspec.Struct | None, now: int, again: bool = False) -> Transmit:
        if now - self._marked_at >= self._idle // 2:
            self._mark, self._marked_at = (self._mark + 1) % MARKS, now
            self._marks.append((self._mark, now))
        self._sent_at, self._ack_sent, self._ack_at = now, self._received, None
        return Transmit(Frame(number, self._received, message, again, self._mark, self._heard))

    def _bare(self, now: int, again: bool = False) -> Transmit:
        return self._frame(self._sent, None, now, again)
