"""A policy that raises, or picks a gang that may not enter, is replaced by fifo. The end of the session gives one
warning."""

from __future__ import annotations

import logging
from typing import Any, cast

import numpy as np
import pytest

import seaway as sw
from core.protocol.effects import LogLine
from seaway.sessions.connected.local_cluster import LocalDriver
from tests.seaway.small_sessions import small

step = sw.synthetic("step", devices=sw.slice(devices=2, name="two"), duration="1ms")
ZERO = np.float32(0)


class Broken(sw.policies.Policy):
    def pick(self, ready: Any, now: int) -> Any:
        raise KeyError("nobody")


class Nothing(sw.policies.Policy):
    def pick(self, ready: Any, now: int) -> Any:
        return None


class Late(sw.policies.Policy):
    """A policy that works at first."""

    def __init__(self) -> None:
        self.entries = 0

    def pick(self, ready: Any, now: int) -> Any:
        return ready.best()

    def entered(self, gang: Any, domain: int, now: int) -> None:
        self.entries += 1
        if self.entries == 3:
            raise ValueError("three are too many")


def calls(policy: Any) -> None:
    with small(policy=policy):
        for _ in range(5):
            step(ZERO).block_until_ready()


WRONG: list[tuple[type[sw.policies.Policy], str]] = [
    (Broken, "policy Broken was replaced by fifo: on island 'i0' it raised KeyError: 'nobody' when asked to pick, "),
    (Nothing, "policy Nothing was replaced by fifo: on island 'i0' it picked what is not ready when asked to pick, "),
    (Late, r"it raised ValueError: three are too many when told what has entered, at [\d.]+ ms; what entered from "),
]


@pytest.mark.parametrize(("policy", "says"), WRONG)
def test_a_simulated_session_names_the_policy_the_reason_and_the_place(policy: Any, says: str) -> None:
    with pytest.warns(RuntimeWarning, match=says) as caught:
        calls(policy)
    assert len(caught) == 1
    assert str(caught[0].message).endswith("what entered from then on was ordered by fifo")
    assert caught[0].filename == __file__, "it points to the line that ended the session"


def test_closing_by_hand_warns_once_and_at_that_line() -> None:
    session = small(policy=Broken).open()
    step(ZERO).block_until_ready()
    with pytest.warns(RuntimeWarning, match="policy Broken was replaced") as caught:
        session.close()
    session.close()  # a second warning would be an error here
    assert [each.filename for each in caught] == [__file__]


def test_the_error_of_a_failing_program_is_raised_in_spite_of_the_warning() -> None:
    def fails() -> None:
        with small(policy=Broken):
            step(ZERO).block_until_ready()
            raise OSError("mine")

    def caught() -> None:
        with pytest.raises(OSError, match="mine"):
            fails()

    with pytest.warns(RuntimeWarning, match="policy Broken was replaced"):
        caught()


def test_several_islands_give_one_warning() -> None:
    def both() -> None:
        with small(islands=2, policy=Broken):
            for island in ("i0", "i1"):
                where = sw.slice(devices=2, name=island, island=island)
                sw.synthetic(f"on {island}", devices=where, duration="1ms")(ZERO).block_until_ready()

    with pytest.warns(RuntimeWarning) as caught:
        both()
    (said,) = (str(each.message) for each in caught)
    assert "on island 'i0' it raised KeyError: 'nobody' when asked to pick, at " in said
    assert "; and on 1 more island ('i1'); what entered" in said


def test_a_local_session_warns_too_however_much_is_logged_afterwards(caplog: pytest.LogCaptureFixture) -> None:
    def really() -> None:
        with sw.local(hosts=1, devices_per_host=2, platform="timed", policy=Broken) as s:
            for _ in range(3):
                step(ZERO).block_until_ready()
            server = cast("LocalDriver", s.driver).server
            for number in range(150):
                server._perform(LogLine(f"line {number}"))
            assert not [line for line in server.told if "fifo" in line], "only the last lines of its log are kept"

    with pytest.warns(RuntimeWarning, match="policy Broken was replaced by fifo: on island 'i0'") as caught:
        really()
    assert [each.filename for each in caught] == [__file__]
    said = [each for each in caplog.records if "fifo has taken over" in each.message]
    assert [(each.name, each.levelno) for each in said] == [("seaway.controller", logging.WARNING)]
