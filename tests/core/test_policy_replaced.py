"""What is said where fifo has taken over from a policy is found again among all that a controller says."""

from __future__ import annotations

import pytest

from core.policy import Policy, Ready, Ticket
from core.policy.replaced import Replaced, replaced

from .order_world import OrderWorld


class Broken(Policy):
    def __init__(self, says: str) -> None:
        self.says = says

    def pick(self, ready: Ready, now: int) -> Ticket:
        raise KeyError(self.says)


@pytest.mark.parametrize("says", ["x", "island 'a': policy", "two\nlines; fifo has taken over"])
@pytest.mark.parametrize("island", ["i0", "a: b", "o'clock"])
def test_the_schedulers_own_words_are_read_again(island: str, says: str) -> None:
    world = OrderWorld(Broken(says))
    world.may_fault = True
    world.offer(0, range(8))
    world.fill()
    (fault,) = world.scheduler.faults
    found = replaced(f"island {island!r}: {fault}")
    assert found == Replaced(repr(island), "Broken", f"raised KeyError: {says!r} when asked to pick")


@pytest.mark.parametrize(
    "said",
    [
        "island 'i0' runs: epoch 1, hosts 0-3",
        "island 'i0': its world is slow to form",
        "trouble on host 3: policy Broken raised KeyError: 'x'; fifo has taken over",
        "island 'i0': policy Broken raised KeyError: 'x'",
    ],
)
def test_nothing_else_is_taken_for_it(said: str) -> None:
    assert replaced(said) is None
