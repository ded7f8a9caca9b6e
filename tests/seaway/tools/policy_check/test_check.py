"""`sw.policies.check` finds each kind of mistake, says it in words, and shows it in a small world."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import pytest

import seaway as sw
from core.schedule.policy import Deadline, Policy, Priority, Ready, Reserve, Ticket
from seaway.errors import WrongPolicy

Answer = Ticket | Reserve


class NotThere(Policy):
    def __init__(self) -> None:
        self.last: Ticket | None = None

    def pick(self, ready: Ready, now: int) -> Answer:
        return self.last or ready.best()

    def entered(self, ticket: Ticket, domain: int, now: int) -> None:
        self.last = ticket


class Nobody(Policy):
    def pick(self, ready: Ready, now: int) -> Any:
        return None if len(ready.heads()) > 1 else ready.best()


class Chancy(Policy):
    def pick(self, ready: Ready, now: int) -> Answer:
        return random.choice(ready.heads())


COUNT = itertools.count()


class Global(Policy):
    """The order is by something that is outside of it."""

    def rank(self, ticket: Ticket) -> int:
        return next(COUNT)

    def pick(self, ready: Ready, now: int) -> Answer:
        return ready.best()


class Marks(Policy):
    def pick(self, ready: Ready, now: int) -> Answer:
        gang = ready.best()
        gang.priority += 1
        return gang


class Empties(Policy):
    def pick(self, ready: Ready, now: int) -> Answer:
        gang = ready.best()
        ready._boards.clear()
        return gang


class Counts(Policy):
    def __init__(self) -> None:
        self.asked = 0

    def pick(self, ready: Ready, now: int) -> Answer:
        self.asked += 1
        return ready.best()


class Raises(Policy):
    def pick(self, ready: Ready, now: int) -> Answer:
        if len(ready.clients()) > 2:
            raise RuntimeError("three are a crowd")
        return ready.best()


class RaisesLater(Policy):
    def pick(self, ready: Ready, now: int) -> Answer:
        return ready.best()

    def gone(self, client: int) -> None:
        raise KeyError(client)


class HalfRank(Policy):
    def rank(self, ticket: Ticket) -> Any:
        return ticket.cost / 2

    def pick(self, ready: Ready, now: int) -> Answer:
        return ready.best()


class Starves(Policy):
    def pick(self, ready: Ready, now: int) -> Answer:
        return min(ready.heads(), key=lambda gang: (gang.cost * gang.devices, gang.age))


class Heedless(Policy):
    """It reserves nothing, and lets narrow gangs take what a wide one waits for."""

    reserves = True

    def pick(self, ready: Ready, now: int) -> Answer:
        return ready.best()


class Keeps(Policy):
    reserves = True

    def pick(self, ready: Ready, now: int) -> Answer:
        return ready.best() if len(ready.clients()) < 2 else Reserve()


class Spins(Policy):
    reserves = True

    def pick(self, ready: Ready, now: int) -> Answer:
        return Reserve(until=now + 1) if ready.waiting() else ready.best()


class Past(Policy):
    reserves = True

    def pick(self, ready: Ready, now: int) -> Answer:
        return Reserve(until=now) if ready.waiting() else ready.best()


class Silent(Policy):
    def pick(self, ready: Ready, now: int) -> Answer:
        return Reserve()


@pytest.mark.parametrize(
    ("policy", "says", "gangs"),
    [
        (NotThere, r"picked gang 1, which is not ready \(gang 2 may enter\)", 2),
        (Nobody, r"picked None: that is neither a gang of `ready` nor a `Reserve`", 3),
        (Chancy, r"two policies that were made alike were asked the same, and one answered gang \d, the other gang", 3),
        (Global, r"two policies that were made alike ranked gang 1 \d+ and \d+", 1),
        (Marks, r"`pick` changed priority of gang 1", 1),
        (Empties, r"`pick` changed the queues of `ready`", 1),
        (Counts, r"`pick` changed the policy itself. It is also asked what it would take", 1),
        (Raises, r"`pick` raised RuntimeError: three are a crowd", 4),
        (RaisesLater, r"`gone` raised KeyError: \d", 1),
        (HalfRank, r"ranked gang 1 \d+.0, which is not a whole number", 1),
        (Starves, r"starved gang \d of client 0: it came at 0 ms, and 600 gangs that came later have entered", 2),
        (Heedless, r"starved gang \d+ of client \d", 3),
        (Keeps, r"kept devices free for too long", 3),
        (Spins, r"reserved devices 1000 times for a moment each", 3),
        (Past, r"reserved devices until \d+, and it is \d+ already", 3),
        (Silent, r"answered Reserve, which takes `reserves = True` in its class", 1),
    ],
)
def test_each_mistake_is_found_and_shown_in_a_small_world(policy: type[Policy], says: str, gangs: int) -> None:
    with pytest.raises(WrongPolicy, match=f"^policy {policy.__name__}: .*(?:{says})") as raised:
        sw.policies.check(policy)
    text = str(raised.value)
    told = re.search(r"world \d+ of seed 0, made as small as possible: (\d+) gang", text)
    assert told is not None
    assert int(told[1]) <= gangs
    assert "0.000 ms  gang 1 of client" in text, "all of it, from the beginning"
    assert len(text.splitlines()) <= 27


def test_a_mistake_is_found_again_and_shown_alike() -> None:
    texts = []
    for _ in range(2):
        with pytest.raises(WrongPolicy) as raised:
            sw.policies.check(Marks)
        texts.append(str(raised.value))
    assert texts[0] == texts[1]


def test_what_is_meant_to_starve_some_may() -> None:
    with pytest.raises(WrongPolicy, match="starved"):
        sw.policies.check("deadline")
    for policy in (Deadline, lambda: Priority(age=0)):
        found = sw.policies.check(policy, worlds=16, may_starve=True)
        assert found.worlds == 16
        assert found.asked > 1_000


@pytest.mark.parametrize("name", ["fifo", "stride", "round_robin", "priority", "shortest"])
def test_nothing_is_wrong_with_our_own(name: str) -> None:
    found = sw.policies.check(name, worlds=12)
    assert re.fullmatch(r"\w+: asked [\d,]+ times in 12 random worlds, and nothing was wrong", repr(found))


def test_a_policy_may_keep_devices_as_long_as_it_is_allowed_to() -> None:
    class Slow(Policy):
        reserves = True

        def pick(self, ready: Ready, now: int) -> Answer:
            gang = ready.best()
            begin = gang.since + 2_000_000_000
            return gang if now >= begin else Reserve(gang, until=begin)

    assert sw.policies.check(Slow, worlds=6, may_starve=True).asked
    with pytest.raises(WrongPolicy, match="kept devices free for too long"):
        sw.policies.check(Slow, worlds=6, may_starve=True, max_reserved=1_000_000_000)
