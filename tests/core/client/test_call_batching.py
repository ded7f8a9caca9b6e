"""When calls leave: the first ones at once. While nobody answers, messages become fewer and larger."""

from __future__ import annotations

from core.client.call_batching import MOST, CallBatching
from core.client.client_limits import Limits
from core.protocol.effects import Command, Send
from core.protocol.messages import Submit

WIDTH, LINGER = 4, 1_000


class Calling:
    """Calls, and the sizes of the messages that left for them."""

    def __init__(self, width: int) -> None:
        self.out: list[Command] = []
        self.batching = CallBatching(Limits(pipe=width, linger=LINGER, batch=1000), self.out)

    def call(self, run: int, now: int) -> list[int]:
        self.batching.call(Submit(run, 1, (), ()), now)
        return self._left()

    def gather(self, run: int) -> None:
        self.batching.gather(Submit(run, 1, (), ()))

    def send(self, now: int) -> list[int]:
        self.batching.send(now)
        return self._left()

    def _left(self) -> list[int]:
        """How many calls each message that leaves now has."""
        left, self.out[:] = self.out[:], []
        messages = [each.message for each in left if isinstance(each, Send)]
        return [len(getattr(message, "calls", (message,))) for message in messages]

    def until(self, end: int, every: int) -> list[int]:
        """Call without a pause and without answers until this time."""
        sizes: list[int] = []
        for run, now in enumerate(range(0, end, every), 1):
            sizes += self.call(run, now)
        return sizes


def test_calls_that_are_faster_than_answers_leave_in_few_messages() -> None:
    """A thousand calls in 100 lingerings would be 400 messages if each lingered as long as the first."""
    sizes = Calling(WIDTH).until(100 * LINGER, every=LINGER // 10)
    assert sizes[:WIDTH] == [1] * WIDTH, "the first leave at once"
    assert len(sizes) <= WIDTH * 9, "each four messages wait twice as long as those before, up to the bound"


def test_a_call_leaves_at_once_just_as_if_it_had_been_batched_first() -> None:
    """`call` has a short path for a single call."""
    short, long = Calling(WIDTH), Calling(WIDTH)
    for run, now in enumerate(range(0, 100 * LINGER, LINGER // 3), 1):
        long.gather(run)
        assert short.call(run, now) == long.send(now)
        if run % 7 == 0:
            for each in (short, long):
                each.batching.answered("run", run - 3)
        assert short.batching.next_wakeup() == long.batching.next_wakeup()


def test_no_call_waits_longer_than_the_bound() -> None:
    calling = Calling(1)
    now = 0
    for run in range(1, 20):
        calling.call(run, now)
        calling.gather(1000 + run)
        wake = calling.batching.next_wakeup()
        assert wake is not None
        assert now < wake <= now + MOST * LINGER
        now = wake
        assert calling.send(now), "the calls that were collected leave when the bound has passed"
        now += MOST * LINGER


def test_after_an_answer_the_next_calls_leave_as_quickly_as_the_first() -> None:
    calling = Calling(1)
    calling.until(20 * LINGER, every=LINGER // 10)
    for run in range(1, 201):
        calling.batching.answered("run", run)
    calling.send(20 * LINGER)
    calling.batching.answered("run", 200)
    assert calling.call(501, 20 * LINGER)
    assert not calling.call(502, 20 * LINGER)
    assert calling.batching.next_wakeup() == 21 * LINGER
