"""A client's network card, in one direction: it takes puts, or gets, in the order in which they begin.

A transfer takes its time on the card when it begins, one host after another. Contents that can pass before their turn
wait for it; those that come later pass at once, for their share of the card's time is past. What bounds a put or get
is this card, since it sends to many hosts, or hears from many. So the hosts' cards are taken to have room for it, and
contents of two such transfers never wait for each other on the way. This makes the times of one at all its hosts a few
vector operations (`sim.cohort.content_times`).
"""

from __future__ import annotations


class ClientCard:
    __slots__ = ("_turns", "free")

    def __init__(self) -> None:
        self.free = 0  # when all that has begun has passed, if it comes in time
        self._turns: dict[int, dict[int, int]] = {}  # transfer -> host -> when its next chunk may pass

    def take(self, time: int, now: int) -> int:
        """Takes so much of the card's time, from the time that is returned."""
        start = max(now, self.free)
        self.free = start + time
        return start

    def begin(self, transfer: int, took: dict[int, int], now: int) -> None:
        """`took`: by host, how long its contents take."""
        at = self.take(sum(took.values()), now)
        turns = self._turns[transfer] = {}
        for host, time in took.items():
            turns[host] = at
            at += time

    def wait(self, transfer: int, host: int, took: int, now: int) -> int:
        """A chunk to or from this host could pass now. Returns how long it waits for its turn."""
        turns = self._turns.get(transfer)
        if turns is None:  # it is over: this can only be word that it has failed
            return 0
        at = max(now, turns.get(host, 0))
        turns[host] = at + took
        return at - now

    def over(self, transfer: int) -> None:
        self._turns.pop(transfer, None)
