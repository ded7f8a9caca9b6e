"""When calls leave: the first ones at once; those that nobody answers ever more seldom, and ever more together."""

from __future__ import annotations

from core.client.call_batching import MOST, Pipe
from core.protocol.messages import Submit

WIDTH, LINGER = 4, 1_000


def calls_of(pipe: Pipe, now: int) -> list[int]:
    """How many calls each message that leaves now has."""
    return [len(getattr(message, "calls", (message,))) for message in pipe.leaving(now)]


def sent(pipe: Pipe, until: int, every: int, first: int = 1) -> list[int]:
    """A user calls without a pause, and hears nothing: the sizes of the messages that left."""
    sizes: list[int] = []
    for number, now in enumerate(range(0, until, every)):
        pipe.add(Submit(first + number, 1, (), ()))
        sizes += calls_of(pipe, now)
    return sizes


def test_who_calls_faster_than_he_is_answered_sends_few_messages() -> None:
    """A thousand calls in 100 lingerings would be 400 messages if each lingered as long as the first."""
    sizes = sent(Pipe(WIDTH, LINGER, batch=1000), until=100 * LINGER, every=LINGER // 10)
    assert sizes[:WIDTH] == [1] * WIDTH, "the first leave at once"
    assert len(sizes) <= WIDTH * 9, "each four linger twice as long as those before, up to the bound"


def test_no_call_waits_longer_than_the_bound() -> None:
    pipe = Pipe(1, LINGER, batch=1000)
    now = 0
    for run in range(1, 20):
        pipe.add(Submit(run, 1, (), ()))
        calls_of(pipe, now)
        pipe.add(Submit(1000 + run, 1, (), ()))
        wake = pipe.next_wakeup()
        assert wake is not None
        assert now < wake <= now + MOST * LINGER
        now = wake
        assert calls_of(pipe, now), "what gathered leaves when the bound has passed"
        now += MOST * LINGER


def test_an_answer_makes_the_next_ones_as_quick_as_the_first() -> None:
    pipe = Pipe(1, LINGER, batch=1000)
    sent(pipe, until=20 * LINGER, every=LINGER // 10)
    for run in range(1, 201):
        pipe.answered("run", run)
    calls_of(pipe, 20 * LINGER)
    pipe.answered("run", 200)
    pipe.add(Submit(501, 1, (), ()))
    assert calls_of(pipe, 20 * LINGER)
    pipe.add(Submit(502, 1, (), ()))
    assert pipe.next_wakeup() == 21 * LINGER
