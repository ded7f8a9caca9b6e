"""Shares a receiver's credits among senders, in the global order of transfers.

What is short (`at_once`: two chunks, where the pool is not small) is granted when its receive opens, whatever else is
under way. It takes no credits of the pool and waits for none: its memory is there, it is too short to crowd others
out, and when it comes follows from nothing but when its two ends were opened. The pool is for what is longer.

A lane is what one sender sends for one transfer. Credits go to the lane with the lowest `seq` first. This rule alone
would deadlock. A receive opens when its memory is there, so a later transfer may open first and take all credits,
while its source has not run yet, because it waits for the earlier transfer. So there are two kinds of lanes:

    early   The source may not exist yet. The lane gets at most `ahead` bytes, so that data flow as soon as they
            exist. All early lanes together never hold the last `reserve` bytes of the pool.
    ready   The sender has shown that the contents exist. Its credits come back in finite time, because everything
            that is granted is sent at once and waits only for the network.

So a ready lane finds `reserve` bytes (at least one chunk) free again and again, whatever early lanes hold. Each ready
lane makes progress, in whatever order receives were opened. A source that is never ready holds nothing that others
need.
"""

from bisect import bisect_left, insort

from ..model import Illegal

Key = tuple[int, int, int]


class SendAllowance:
    """The bytes that one sender sends for one transfer."""

    __slots__ = ("key", "out", "ready", "sender", "transfer", "want")

    def __init__(self, seq: int, transfer: int, sender: int, want: int) -> None:
        self.key: Key = (seq, transfer, sender)
        self.transfer = transfer
        self.sender = sender
        self.want = want  # bytes that are still to be granted
        self.out = 0  # bytes that are granted and have not arrived
        self.ready = False

    def grant_all(self) -> int:
        """Grants what is short, all at once; returns how much that is."""
        self.out, self.want = self.want, 0
        return self.out


def at_once(pool: int, chunk: int) -> int:
    """What a receiver gets for a transfer is short if it is no longer: it is granted when the receive opens."""
    return Pool(pool, chunk).at_once


class Pool:
    """The credits of one receiver, or a part of them."""

    def __init__(self, size: int, chunk: int) -> None:
        if size < 2 * chunk or chunk < 1:
            raise Illegal(f"a pool of {size} bytes does not hold two chunks of {chunk}")
        self.size, self.chunk = size, chunk
        self.reserve = max(chunk, size // 4)
        self.ahead = min(2 * chunk, size - self.reserve)
        # the most that one ready lane holds, so one slow sender cannot hold all
        self.window = max(chunk, size // 4)
        self.at_once = min(self.ahead, self.window)
        self.out = 0
        self._early_out = 0
        self._early: list[Key] = []  # early lanes without credits
        self._ready: list[Key] = []  # ready lanes that can take more
        self._allowances: dict[Key, SendAllowance] = {}

    def add(self, lane: SendAllowance) -> None:
        self._allowances[lane.key] = lane
        self._enlist(lane)

    def ready(self, lane: SendAllowance) -> None:
        if not lane.ready:
            self._delist(lane)
            lane.ready = True
            self._early_out -= lane.out
            self._enlist(lane)

    def arrived(self, lane: SendAllowance, nbytes: int) -> None:
        """Take back the credits of bytes that have arrived on a ready lane."""
        lane.out -= nbytes
        self.out -= nbytes
        self._enlist(lane)

    def remove(self, lane: SendAllowance) -> None:
        """Remove a lane that is complete or has failed, and take back its credits."""
        self._delist(lane)
        del self._allowances[lane.key]
        self.out -= lane.out
        if not lane.ready:
            self._early_out -= lane.out

    def grant(self) -> list[tuple[SendAllowance, int]]:
        """Grant as much as possible; return (lane, bytes) for each grant."""
        given: list[tuple[SendAllowance, int]] = []
        early_blocked = False
        while True:
            early = self._early[0] if self._early and not early_blocked else None
            ready = self._ready[0] if self._ready else None
            key = min((key for key in (early, ready) if key is not None), default=None)
            if key is None:
                return given
            lane = self._allowances[key]
            free, cap = self.size - self.out, self.window - lane.out
            if not lane.ready:
                free, cap = min(free, self.size - self.reserve - self._early_out), self.ahead
            nbytes = min(lane.want, cap, free)
            if nbytes < min(lane.want, cap, self.chunk):
                if lane.ready:
                    # save credits for the first lane in the order until it can get a whole chunk
                    return given
                early_blocked = True
                continue
            self._give(lane, nbytes)
            given.append((lane, nbytes))

    def _give(self, lane: SendAllowance, nbytes: int) -> None:
        lane.want -= nbytes
        lane.out += nbytes
        self.out += nbytes
        if lane.ready:
            if lane.want == 0 or self.window - lane.out < min(lane.want, self.chunk):
                self._delist(lane)
        else:
            self._early_out += nbytes
            self._delist_from(self._early, lane.key)

    def _enlist(self, lane: SendAllowance) -> None:
        """Enter the lane among those that wait for credits, if it can take any."""
        if lane.want == 0:
            return
        if not lane.ready:
            insort(self._early, lane.key)
        elif self.window - lane.out >= min(lane.want, self.chunk):
            at = bisect_left(self._ready, lane.key)
            if self._ready[at : at + 1] != [lane.key]:
                self._ready.insert(at, lane.key)

    def _delist(self, lane: SendAllowance) -> None:
        self._delist_from(self._ready if lane.ready else self._early, lane.key)

    def _delist_from(self, keys: list[Key], key: Key) -> None:
        at = bisect_left(keys, key)
        if keys[at : at + 1] == [key]:
            del keys[at]
