"""Policies that a user might write: one that works, one that sometimes raises or picks wrongly, one that often keeps
devices free, one that always does, one that takes devices of clients for others, and one that places slices by lot."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from core.schedule.policy import ClusterView, Placement, Policy, Ready, Reserve, SliceUse, Ticket, named

RESERVING = ("patient", "stubborn")  # those that keep devices free


class Newest(Policy):
    """Last in, first out, in ten lines."""

    def pick(self, ready: Ready, now: int) -> Ticket:
        return max(ready.heads(), key=lambda ticket: ticket.number)


class Faulty(Policy):
    """Sometimes raises, and sometimes picks a gang that is not ready."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.old: Ticket | None = None

    def pick(self, ready: Ready, now: int) -> Ticket:
        draw = self.rng.random()
        if draw < 0.02:
            raise ZeroDivisionError("of one's own making")
        if draw < 0.04 and self.old is not None:
            return self.old
        self.old = self.rng.choice(list(ready))
        return self.old

    def rank(self, ticket: Ticket) -> int:
        if self.rng.random() < 0.01:
            raise KeyError("rank")
        return self.rng.randrange(3)


class Patient(Policy):
    """Often lets nothing enter: for a moment, or until something happens, for a gang that waits or for nobody."""

    reserves = True

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def pick(self, ready: Ready, now: int) -> Ticket | Reserve:
        assert all(each.ends > now for each in ready.running())
        if self.rng.random() < 0.6:
            return self.rng.choice(ready.heads())
        gang = self.rng.choice([None, *ready.waiting(), *ready.heads()])
        until = self.rng.choice((None, now + self.rng.randint(1, 3_000_000)))
        return Reserve(gang, until, self.rng.choice((None, 0, 1)))


class Stubborn(Policy):
    """Lets nothing enter. All that enters does so because the scheduler's bound has come."""

    reserves = True

    def pick(self, ready: Ready, now: int) -> Ticket | Reserve:
        return Reserve()


class Taking(Newest):
    """Which slice takes devices of which is drawn by lot."""

    preempts = True

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def slice_rank(self, wanted: SliceUse) -> int:
        return self.rng.randrange(3)


class Placing(Placement, Newest):
    """Which slices have devices, which ones and for how long is drawn by lot; none waits for ever."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.resizes = rng.random() < 0.5  # type: ignore[misc]
        self.sizes_left = 40  # each time a client moves to another size it makes an array more

    def decide(self, cluster: ClusterView) -> None:
        draw = self.rng.random
        seldom = 0.1 if cluster.now < 100_000_000 else 0.02  # what has lasted so long is to come to an end
        for use in cluster.waiting:
            late = cluster.now - max(use.since, use.asked) > 20_000_000
            if late or draw() < 0.7:
                started = cluster.start(use, layout=self.rng.choice(("", "spread")) if not use.mesh else "")
                if not started and draw() < 0.3:
                    cluster.keep(use)
        for use in cluster.running:
            if draw() < seldom:
                cluster.suspend(use)
            elif draw() < seldom:
                cluster.move(use)
            elif use.sizes and draw() < 0.3 and self.sizes_left:
                self.sizes_left -= cluster.resize(use, self.rng.choice(use.sizes))
        if cluster.waiting:
            cluster.wake(cluster.now + self.rng.randint(1, 3_000_000))


def maker(text: str, rng: Random) -> Callable[[], Policy]:
    if text == "user":
        return Newest
    if text == "patient":
        return lambda: Patient(rng)
    if text == "stubborn":
        return Stubborn
    if text == "taking":
        return lambda: Taking(rng)
    if text == "placing":
        return lambda: Placing(rng)
    if text == "faulty":
        return lambda: Faulty(rng)
    return lambda: named(text)
