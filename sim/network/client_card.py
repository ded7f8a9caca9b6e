"""A client's network card: it sends contents in the order in which the client began to put them.

A put takes its time on the card when it begins, one receiver after another. A receiver that grants credits before its
turn gets its contents then; one that grants later gets them at once, for its share of the card's time has passed. What
bounds a put is this card, since it sends to many hosts. So the hosts' cards are taken to have room for what comes from
clients, and contents of two puts never wait for each other on the way. This makes the times of a put at all its hosts
a few vector operations (`sim.cohort.puts`).
"""

from __future__ import annotations


class ClientCard:
    __slots__ = ("_turns", "free")

    def __init__(self) -> None:
        self.free = 0  # when all that has begun is sent, if receivers grant in time
        self._turns: dict[int, dict[int, int]] = {}  # transfer -> receiver -> when its next chunk may leave

    def take(self, time: int, now: int) -> int:
        """Takes so much of the card's time, from the time that is returned."""
        start = max(now, self.free)
        self.free = start + time
        return start

    def begin(self, transfer: int, took: dict[int, int], now: int) -> None:
        """`took`: by receiver, how long its contents take."""
        at = self.take(sum(took.values()), now)
        turns = self._turns[transfer] = {}
        for receiver, time in took.items():
            turns[receiver] = at
            at += time

    def leave(self, transfer: int, receiver: int, took: int, now: int) -> int:
        """A chunk may go to this receiver now. Returns how long it waits for its turn."""
        turns = self._turns.get(transfer)
        if turns is None:  # it is over: this can only be word that it has failed
            return 0
        at = max(now, turns.get(receiver, 0))
        turns[receiver] = at + took
        return at - now

    def over(self, transfer: int) -> None:
        self._turns.pop(transfer, None)
