"""`sw.policies.check` finds each kind of mistake of a placement, says it in words, and shows it in a small world."""

from __future__ import annotations

import itertools
import re

import pytest

import seaway as sw
from core.schedule.policy import (
    BestFit,
    BestKind,
    ClusterView,
    FirstFit,
    InTurn,
    Placement,
    Ready,
    SliceUse,
    Spread,
    Ticket,
)
from examples.policies.job_backfill import Conservative, Easy
from examples.policies.pollux import MarginalGain
from examples.policies.themis import Themis
from examples.policies.tiresias import Tiresias
from seaway.errors import WrongPolicy

S = 1_000_000_000


class Raises(InTurn):
    def decide(self, cluster: ClusterView) -> None:
        super().decide(cluster)
        if len(cluster.running) > 2:
            raise RuntimeError("three are a crowd")


COUNT = itertools.count()


class Global(Placement):
    """Who starts depends on something that is outside of it."""

    def decide(self, cluster: ClusterView) -> None:
        if cluster.waiting:
            cluster.start(cluster.waiting[next(COUNT) % len(cluster.waiting)])


class First(Placement):
    """Too few devices, or some that are not on one island."""

    def decide(self, cluster: ClusterView) -> None:
        for use in cluster.waiting:
            cluster.start(use, devices=cluster.islands[0].free_devices[:1])


class Remembers(InTurn):
    """It suspends what it saw earlier."""

    seen: SliceUse | None = None

    def decide(self, cluster: ClusterView) -> None:
        if self.seen is not None:
            cluster.suspend(self.seen)
        super().decide(cluster)
        self.seen = next(iter(cluster.running), self.seen)


class Never(Placement):
    """It starts none that says nothing."""

    def decide(self, cluster: ClusterView) -> None:
        for use in cluster.waiting:
            if use.expected:
                cluster.start(use)


class SleepsIn(Placement):
    """It looks again and again, and starts nothing."""

    def decide(self, cluster: ClusterView) -> None:
        cluster.wake(cluster.now + 600 * S)


class Wide(Placement):
    """The wide ones go last."""

    def decide(self, cluster: ClusterView) -> None:
        for use in sorted(cluster.waiting, key=lambda use: use.devices):
            cluster.start(use)


class Restless(Placement):
    """Whatever has devices gives them up for what waits, whenever it may."""

    def decide(self, cluster: ClusterView) -> None:
        waits = [use for use in cluster.waiting if not cluster.start(use)]
        for use in cluster.running if waits else ():
            cluster.suspend(use)
            cluster.wake(cluster.now + S)


class Roams(InTurn):
    """It moves slices for nothing."""

    def decide(self, cluster: ClusterView) -> None:
        super().decide(cluster)
        for use in cluster.running:
            others = [island for island in cluster.suits(use) if island.island is not use.at]
            if any(cluster.move(use, island) for island in others):
                cluster.wake(cluster.now + 5 * S)


class Zeno(InTurn):
    """It looks again in half of the time that is left."""

    def decide(self, cluster: ClusterView) -> None:
        super().decide(cluster)
        for use in cluster.running:
            if use.ends(cluster.now) < 1 << 60:
                cluster.wake(cluster.now + (use.ends(cluster.now) - cluster.now) // 2)


class NotReady(InTurn):
    """It has a `pick` of its own."""

    def pick(self, ready: Ready, now: int) -> Ticket:
        return Ticket(0, 0, 0, 0, 0) if len(ready.heads()) > 1 else ready.best()


@pytest.mark.parametrize(
    ("policy", "says", "slices"),
    [
        (Raises, r"`decide` raised RuntimeError: three are a crowd", 3),
        (Global, r"two policies that were made alike saw the same, and did different things", 4),
        (First, r"started slice \d where it cannot be: 1 devices, \d first, are no place for", 1),
        (Remembers, r"`suspend` of slice \d, which neither waits nor has devices", 2),
        (Never, r"never started slice \d, though all that it could have is free", 1),
        (SleepsIn, r"never started slice \d, though all that it could have is free", 1),
        (Wide, r"starved slice \d: 100 that were asked for later have started where it could be", 3),
        (Restless, r"took the devices of slice \d away 10 times within less than 20 s, with nothing else", 3),
        (Roams, r"took the devices of slice \d away 10 times within less than 20 s, with nothing else", 1),
        (Zeno, r"asked to be woken 20 times within a second each", 1),
        (NotReady, r"picked gang 0, which is not ready \(gang 2, gang 3 may enter\)", 3),
    ],
)
def test_each_mistake_is_found_and_shown_in_a_small_world(policy: type[Placement], says: str, slices: int) -> None:
    with pytest.raises(WrongPolicy, match=f"^policy {policy.__name__}: (?:{says})") as raised:
        sw.policies.check(policy)
    text = str(raised.value)
    told = re.search(r"world \d+ of seed 0, made as small as possible: (\d+) (?:slice|gang)", text)
    assert told is not None
    assert int(told[1]) <= slices
    assert re.search(r" 0\.0+ m?s  (?:slice|gang) 1 of client", text), "all of it, from the beginning"
    assert len(text.splitlines()) <= 27


def test_what_is_meant_to_starve_some_may() -> None:
    for policy in (FirstFit, Wide, Conservative, Tiresias, MarginalGain):
        assert sw.policies.check(policy, worlds=24, may_starve=True).asked > 500


@pytest.mark.parametrize("policy", [InTurn, BestFit, BestKind, Spread, Easy, Themis])
def test_nothing_is_wrong_with_our_own(policy: type[Placement]) -> None:
    found = sw.policies.check(policy, worlds=24)
    assert re.fullmatch(r"\w+: asked [\d,]+ times in 24 random worlds, and nothing was wrong", repr(found))
    assert found.asked > 1_000


def test_slices_take_turns_without_thrashing() -> None:
    class Turns(Placement):
        def decide(self, cluster: ClusterView) -> None:
            by_service = sorted(cluster.waiting, key=lambda use: (use.served(cluster.now), use.number))
            waits = [use for use in by_service if not cluster.start(use)]
            for use in cluster.running if waits else ():
                cluster.suspend(use) if cluster.now - use.since >= 600 * S else cluster.wake(use.since + 600 * S)

    assert sw.policies.check(Turns, worlds=24, may_starve=True).asked > 1_000
