"""A policy may answer that nothing enters now. Devices are kept, for a time that is bounded, and the policy is asked
again when that time comes or something happens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core.schedule.policy import Policy, Ready, Reserve, Ticket
from core.schedule.scheduler import Scheduler

from .timed_world import Kept, TimedWorld

LEFT, RIGHT, ALL = range(4), range(4, 8), range(8)
Answer = Callable[[Ready, int], Ticket | Reserve]


class Asked(Policy):
    """Answers as it is told, and remembers when it was asked."""

    reserves = True

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[int] = []

    def pick(self, ready: Ready, now: int) -> Ticket | Reserve:
        self.asked.append(now)
        return self.answer(ready, now)


def after(time: int) -> Answer:
    """Nothing enters before this time."""
    return lambda ready, now: ready.best() if now >= time else Reserve(until=time)


def test_devices_are_kept_until_the_time_that_the_policy_names() -> None:
    policy = Asked(after(50))
    world = TimedWorld(policy)
    gang = world.comes(3, 1, LEFT, 10)
    world.run()
    assert (gang.entered, gang.ended) == (50, 60)
    assert policy.asked == [3, 50]
    assert world.kept == [Kept(3, 50, frozenset(LEFT))]


def test_the_policy_is_asked_again_when_a_gang_comes_or_ends() -> None:
    def wide_first(ready: Ready, now: int) -> Ticket | Reserve:
        wide = next((gang for gang in ready.heads() if gang.devices == 8), None)
        return wide or (Reserve() if ready.waiting() else ready.best())

    policy = Asked(wide_first)
    world = TimedWorld(policy)
    one = world.comes(0, 1, LEFT, 10)
    wide = world.comes(1, 2, ALL, 5)
    other = world.comes(2, 3, RIGHT, 7)
    world.run()
    assert [one.started, wide.started, other.started] == [0, 10, 15]
    assert policy.asked == [0, 2, 10, 15]
    assert world.kept == [Kept(2, 10, frozenset(RIGHT))], "the wide gang has no room, so it is not kept from entering"


def test_a_withdrawal_ends_what_was_kept() -> None:
    policy = Asked(lambda ready, now: Reserve() if len(ready.heads()) > 1 else ready.best())
    world = TimedWorld(policy)
    one, other = world.comes(0, 1, LEFT, 10), world.comes(0, 2, LEFT, 10)
    for gang in (one, other):
        world.scheduler.offer(gang.ticket, 0)
    assert world.scheduler.pick(0) is None
    assert [each.why for each in world.scheduler.waiting()] == ["reserved", "reserved"]
    world.scheduler.withdraw(other.ticket.run)
    assert world.scheduler.pick(0) is one.ticket


def test_what_does_not_share_devices_is_not_kept() -> None:
    """The policy is asked about each group of gangs that compete, and keeps the devices of that group only."""
    policy = Asked(
        lambda ready, now: Reserve(until=100) if now < 100 and ready.heads()[0].client == 1 else ready.best()
    )
    world = TimedWorld(policy)
    one, other = world.comes(0, 1, LEFT, 10), world.comes(0, 2, RIGHT, 10)
    world.run()
    assert (one.started, other.started) == (100, 0)


def test_a_gang_that_is_kept_for_is_named_to_those_who_wait() -> None:
    policy = Asked(lambda ready, now: Reserve(next((g for g in ready.waiting() if g.devices == 8), None)))
    scheduler_world = TimedWorld(policy, window=1)
    first = scheduler_world.comes(0, 1, LEFT, 10)
    wide, narrow = scheduler_world.comes(0, 2, ALL, 10), scheduler_world.comes(0, 3, RIGHT, 10)
    scheduler = scheduler_world.scheduler
    scheduler.offer(first.ticket, 0)
    policy.answer, keep = (lambda ready, now: ready.best()), policy.answer
    assert scheduler.pick(0) is first.ticket
    policy.answer = keep
    for gang in (wide, narrow):
        scheduler.offer(gang.ticket, 0)
    assert scheduler.pick(0) is None
    texts = {each.ticket.run: (each.why, each.text) for each in scheduler.waiting()}
    assert texts[narrow.ticket.run] == (
        "reserved",
        f"the policy keeps devices 4-7 free for run {wide.ticket.run}, step 0",
    )
    assert texts[wide.ticket.run][0] == "window"


# --- what a policy is shown -----------------------------------------------------------------------------------


def test_it_is_shown_what_runs_with_expected_ends_and_what_waits_for_room() -> None:
    seen: list[tuple[object, ...]] = []

    def look(ready: Ready, now: int) -> Ticket | Reserve:
        running = [(each.ticket.run, each.entered, each.starts, each.ends) for each in ready.running()]
        seen.append((now, running, [gang.run for gang in ready.waiting()], ready.free()))
        return ready.best()

    world = TimedWorld(Asked(look), window=2)
    world.comes(0, 1, LEFT, 10)  # run 1
    world.comes(1, 1, LEFT, 20)  # run 2, behind it
    world.comes(2, 2, ALL, 5)  # run 3 has no room on the left
    world.comes(3, 3, RIGHT, 4)  # run 4
    world.run()
    assert seen == [
        (0, [], [], ((0, 4),)),
        (1, [(1, 0, 0, 10)], [], ()),
        (3, [(1, 0, 0, 10), (2, 1, 10, 30)], [3], ((4, 8),)),
        (10, [(2, 1, 10, 30)], [], ((4, 8),)),
    ]


def test_a_gang_that_is_late_is_expected_to_need_as_much_again_as_it_is_late() -> None:
    seen: list[int] = []

    def look(ready: Ready, now: int) -> Ticket | Reserve:
        seen.extend(each.ends - now for each in ready.running())
        return ready.best()

    world = TimedWorld(Asked(look), window=9)
    world.comes(0, 1, LEFT, 800_000, lasts=10_000_000)
    for now in (400_000, 800_000, 1_000_000, 2_000_000):
        world.comes(now, 2, ALL, 1)
    world.run()
    first = [seen[0], seen[1], seen[3], seen[6]]  # of the gang that is late, each time
    assert first == [400_000, 100_000, 200_000, 1_200_000]


def test_free_at_counts_what_is_ahead_on_any_of_the_devices() -> None:
    seen: list[tuple[int, int]] = []

    def look(ready: Ready, now: int) -> Ticket | Reserve:
        seen.extend((gang.run, ready.free_at(gang)) for gang in [*ready.heads(), *ready.waiting()])
        return ready.best()

    world = TimedWorld(Asked(look), window=1)
    world.comes(0, 1, LEFT, 10)
    world.comes(1, 2, RIGHT, 30)
    world.comes(2, 3, ALL, 10)
    world.comes(3, 4, range(8, 9), 1)
    world.comes(10, 5, LEFT, 1)
    world.run()
    assert (3, 31) in seen
    assert (5, 10) in seen


def test_a_policy_that_does_not_say_that_it_reserves_is_told_so() -> None:
    class Curious(Policy):
        def pick(self, ready: Ready, now: int) -> Ticket:
            return ready.running()[0].ticket

    class Silent(Policy):
        def pick(self, ready: Ready, now: int) -> Ticket | Reserve:
            return Reserve()

    for policy, text in (
        (Curious, "raised TypeError: only a policy whose class says `reserves = True` is shown what runs and what"),
        (Silent, "answered Reserve, which takes `reserves = True` in its class, when asked to pick"),
    ):
        world = TimedWorld(policy)
        gang = world.comes(0, 1, LEFT, 10)
        world.scheduler.offer(gang.ticket, 0)
        assert world.scheduler.pick(0) is gang.ticket, "fifo has taken over"
        assert text in world.scheduler.faults[0][1]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Reserve(until=0), "reserved devices until 0, which is no time to come (it is 0),"),
        (Reserve(until=-4), "reserved devices until -4"),
        (Reserve(Ticket(9, 0, 9, 0, 1)), "reserved devices for what does not wait"),
        (None, "picked what is not ready"),
    ],
)
def test_a_wrong_answer_is_a_fault_like_others(answer: Reserve, text: str) -> None:
    world = TimedWorld(Asked(lambda ready, now: answer))
    gang = world.comes(0, 1, LEFT, 10)
    world.scheduler.offer(gang.ticket, 0)
    assert world.scheduler.pick(0) is gang.ticket
    ((policy, fault),) = world.scheduler.faults
    assert policy == "Asked"
    assert fault.startswith(text)


# --- the bound ------------------------------------------------------------------------------------------------


def test_nothing_is_kept_for_ever() -> None:
    """If the policy never lets anything enter, the oldest gang enters when the bound comes, and so does the next."""
    world = TimedWorld(Asked(lambda ready, now: Reserve()), max_reserved=100)
    one, other = world.comes(5, 1, LEFT, 10), world.comes(6, 2, LEFT, 10)
    world.run()
    assert (one.entered, other.entered) == (105, 215), "the second is asked about when the first has ended"
    assert len(world.overruns) == 2
    assert "policy Asked kept devices 0-3 for too long: run 1 has entered without it" in world.overruns[0]


def test_the_bound_counts_from_the_first_answer_however_often_it_is_repeated() -> None:
    """New gangs, and times that the policy names, do not begin it anew."""
    world = TimedWorld(Asked(lambda ready, now: Reserve(until=now + 7)), max_reserved=100)
    first = world.comes(0, 1, LEFT, 10)
    for at in range(1, 90, 10):
        world.comes(at, 2, ALL, 10)
    world.run()
    assert first.entered == 100


def test_waiting_for_what_runs_is_not_counted_against_the_bound() -> None:
    """A wide gang waits for a long one: its devices may be kept as long as that takes."""
    policy = Asked(
        lambda ready, now: (
            next((g for g in ready.heads() if g.devices == 8), None) or (Reserve() if ready.waiting() else ready.best())
        )
    )
    world = TimedWorld(policy, max_reserved=10)
    world.comes(0, 1, LEFT, 1_000)
    wide, narrow = world.comes(1, 2, ALL, 5), world.comes(2, 3, RIGHT, 5)
    world.run()
    assert (wide.started, narrow.started) == (1_000, 1_005)
    assert not world.overruns


def test_the_bound_is_forgotten_when_nothing_waits_any_more() -> None:
    world = TimedWorld(Asked(lambda ready, now: Reserve()), max_reserved=100)
    scheduler: Scheduler = world.scheduler
    one, other = world.comes(0, 1, LEFT, 10), world.comes(0, 1, LEFT, 10)
    scheduler.offer(one.ticket, 0)
    assert scheduler.pick(0) is None
    scheduler.withdraw(one.ticket.run)
    scheduler.offer(other.ticket, 90)
    assert scheduler.pick(90) is None
    assert scheduler.next_wakeup() == 190
