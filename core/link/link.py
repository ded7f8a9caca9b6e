"""One end of a conversation that outlives its connections: each message once, in order, or the peer is gone.

A `Link` is kept for as long as the peer keeps its own end; connections below it come and go. Every frame says
how far its sender has heard (`ack`), so what was lost with a connection is sent again on the next one:

    down      no connection; what is sent waits
    greeting  connected; our first frame, a bare one, is out; the peer's first one says from where to go on
    up        frames flow; a gap is answered with `again`, and the peer goes back to it (go-back-N)
    gone      nothing was heard for a lease, or the peer broke the rules; for good

Nothing waits for ever: a peer that is silent for `lease` nanoseconds, or that lets more than `limit` messages
go unacknowledged while nobody heeds `full`, is gone. `now` decides only that, and when a bare frame (an
acknowledgement, a sign of life) is due: never what is delivered.
"""

from __future__ import annotations

from collections import deque

import msgspec

from ..model import Illegal
from ..protocol import Effect

ACK_EVERY = 32  # messages heard before a bare frame acknowledges them; sooner, any frame does


class Frame(msgspec.Struct, frozen=True, gc=False):
    """What crosses a connection. Bare (no message): `seq` is the last one sent, which shows the loss of a
    tail."""

    seq: int
    ack: int  # all up to this one have been heard
    message: msgspec.Struct | None = None
    again: bool = False  # send all after `ack` once more: there was a gap


class Transmit(Effect, frozen=True):
    """Write this to the connection. A message that goes to many links is one object: encode it once."""

    frame: Frame


class Deliver(Effect, frozen=True):
    message: msgspec.Struct


class Gone(Effect, frozen=True):
    """The link has ended; close its connection. violation: the peer broke the rules."""

    reason: str
    violation: bool = False


Command = Transmit | Deliver | Gone

# (state, event) -> state. What is not here is Illegal for `connected` and `disconnected`, which are our own
# driver's. A peer's frame without a connection is dropped: it was in flight when the connection ended.
MOVES = {
    ("down", "connected"): "greeting",
    ("greeting", "connected"): "greeting",  # it came back before we saw it go
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
    """For one incarnation of the peer: one that starts anew has lost its end, and gets a new link."""

    def __init__(
        self,
        now: int,
        lease: int,
        *,
        idle: int = 0,
        ack_delay: int = 0,
        window: int = 1024,
        limit: int = 65536,
    ) -> None:
        """idle: nothing sent for so long calls for a sign of life (0: a quarter of the lease). ack_delay: how
        long an acknowledgement may wait for a frame to ride on (0: as long). window: unacknowledged messages
        from which on the owner should hold back. limit: from which on the peer counts as gone."""
        self.state = "down"
        self._lease, self._window, self._limit = lease, window, limit
        self._idle = idle or max(1, lease // 4)
        self._ack_delay = ack_delay or self._idle
        self._sent = 0  # number of the last message that was given to us
        self._acked = 0  # the peer has heard all up to this one
        self._unacked: deque[msgspec.Struct] = deque()  # messages _acked + 1 .. _sent
        self._heard = 0  # number of the last message delivered
        self._told = 0  # the highest ack that we have sent
        self._asked = -1  # the gap behind this message has been reported
        self._heard_at = now  # times
        self._spoke_at = now
        self._ack_at: int | None = None  # an acknowledgement is due

    @property
    def full(self) -> bool:
        """Back-pressure: the peer does not keep up."""
        return len(self._unacked) >= self._window

    def send(self, message: msgspec.Struct, now: int) -> list[Command]:
        if self.state == "gone":
            return []
        if len(self._unacked) >= self._limit:
            return self._end(f"{len(self._unacked)} messages are not acknowledged")
        self._sent += 1
        self._unacked.append(message)
        return [self._frame(self._sent, message, now)] if self.state == "up" else []

    def connected(self, now: int) -> list[Command]:
        self._move("connected")
        self._asked = -1
        return [self._bare(now)]

    def disconnected(self, now: int) -> list[Command]:
        self._move("disconnected")
        self._ack_at = None
        return []

    def frame_came(self, frame: Frame, now: int) -> list[Command]:
        if self.state in ("down", "gone"):
            return []
        if complaint := self._nonsense(frame):
            return self._end(complaint, violation=True)
        first = self.state == "greeting"
        if first and (frame.ack < self._acked or (frame.message is None and frame.seq < self._heard)):
            return self._end("the peer has lost its end of the link")
        self._heard_at = now
        for _ in range(frame.ack - self._acked):
            self._unacked.popleft()
        self._acked = max(self._acked, frame.ack)
        commands: list[Command] = []
        if first or frame.again:
            commands += self._go_back(now)
        if first:
            self._move("frame")
        return commands + self._take(frame, first, now)

    def next_wakeup(self) -> int | None:
        if self.state == "gone":
            return None
        times = [self._heard_at + self._lease]
        if self.state != "down":
            times.append(self._spoke_at + self._idle)
            if self._ack_at is not None:
                times.append(self._ack_at)
        return min(times)

    def wakeup(self, now: int) -> list[Command]:
        if self.state == "gone":
            return []
        if now >= self._heard_at + self._lease:
            return self._end(f"nothing heard for {(now - self._heard_at) / 1e9:.3g} s")
        due = (
            self._spoke_at + self._idle
            if self._ack_at is None
            else min(self._spoke_at + self._idle, self._ack_at)
        )
        return [self._bare(now)] if self.state != "down" and now >= due else []

    def excuse(self, silence: int, now: int) -> None:
        """Nobody was here to listen for so long: that is no sign of the peer's death."""
        self._heard_at = min(now, self._heard_at + silence)

    # --- what the events share

    def _move(self, event: str) -> None:
        state = MOVES.get((self.state, event))
        if state is None:
            raise Illegal(f"a link that is {self.state} cannot be {event}")
        self.state = state

    def _end(self, reason: str, violation: bool = False) -> list[Command]:
        self._move("end")
        self._unacked.clear()
        return [Gone(reason, violation)]

    def _nonsense(self, frame: Frame) -> str:
        if frame.ack > self._sent:
            return f"the peer acknowledges message {frame.ack}, the last one sent is {self._sent}"
        if frame.ack < 0 or frame.seq < (0 if frame.message is None else 1):
            return f"no frame has numbers {frame.seq} and {frame.ack}"
        return ""

    def _go_back(self, now: int) -> list[Command]:
        return [
            self._frame(number, message, now) for number, message in enumerate(self._unacked, self._acked + 1)
        ]

    def _take(self, frame: Frame, first: bool, now: int) -> list[Command]:
        """What the frame brings: the next message, one that was heard before, or the news of a gap."""
        if frame.message is not None and frame.seq == self._heard + 1:
            self._heard = frame.seq
            if self._heard - self._told >= ACK_EVERY:
                return [Deliver(frame.message), self._bare(now)]
            if self._ack_at is None:
                self._ack_at = now + self._ack_delay
            return [Deliver(frame.message)]
        if frame.seq <= self._heard or (first and frame.message is None):
            return []  # nothing new; or the greeting of a peer whom our own greeting makes go back
        # A gap. Ask once, and again at each sign of life: the first asking may have been lost too.
        if self._asked == self._heard and frame.message is not None:
            return []
        self._asked = self._heard
        return [self._bare(now, again=True)]

    def _frame(self, number: int, message: msgspec.Struct, now: int) -> Command:
        self._spoke_at, self._told, self._ack_at = now, self._heard, None
        return Transmit(Frame(number, self._heard, message))

    def _bare(self, now: int, again: bool = False) -> Command:
        self._spoke_at, self._told, self._ack_at = now, self._heard, None
        return Transmit(Frame(self._sent, self._heard, None, again))
