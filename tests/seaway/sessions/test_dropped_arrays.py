"""Arrays that the user has dropped are released in groups; or with the next calls, by a program that waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import seaway as sw
from core.client import Limits
from core.controller import Controller
from core.protocol import Calls, Release, Submit
from seaway.sessions.dropped_arrays import AFTER_WAIT, MANY
from tests.seaway.sessions.test_port import LoopbackPort, session

ZERO = np.float32(0)
two = sw.slice(devices=2, name="two")
step = sw.synthetic("step", devices=two, duration="350us")
slow = sw.synthetic("slow", devices=two, duration="20ms")
large = sw.synthetic("large", devices=two, duration="1us", out=lambda x: np.zeros(1 << 19, np.float32))


def kinds(port: LoopbackPort) -> list[type]:
    return [type(call) for call in port.calls if isinstance(call, Release | Submit)]


def released(port: LoopbackPort) -> list[Any]:
    return [call.buffers for call in port.calls if isinstance(call, Release)]


def test_a_program_that_does_not_wait_releases_many_arrays_at_once() -> None:
    s, driver = session(Limits(pipe=1000))
    with s:
        x = step(ZERO)
        port = driver.ports["main"]
        for _ in range(MANY):
            x = step(x)
        assert released(port) == []  # the last of them has been dropped after its call
        x = step(x)
        assert len(released(port)) == 1


def test_large_arrays_are_released_sooner() -> None:
    s, driver = session(Limits(pipe=1000))
    with s:
        x = large(ZERO)
        port = driver.ports["main"]
        x = large(x)
        assert released(port) == []
        x = large(x)
        assert released(port) == [(1,)]
        del x


def test_a_wait_that_lasts_releases_all_since_the_awaited_run_may_need_their_memory() -> None:
    s, driver = session()
    with s:
        x = step(step(ZERO))
        port = driver.ports["main"]
        assert released(port) == []
        x.block_until_ready()
        assert released(port) == [(1,)]


def simulated() -> tuple[sw.Session, Callable[[], Controller]]:
    s = sw.simulate("B", hosts=4, progress=False)
    return s, lambda: s.simulation.controller


def connected() -> tuple[sw.Session, Callable[[], Controller]]:
    s = sw.local(devices_per_host=2, platform="timed")
    driver: Any = s.driver
    return s, lambda: driver.cluster.visit(lambda: driver.server.controller)


@pytest.mark.parametrize("kind", [simulated, connected])
def test_what_is_dropped_is_given_back_while_a_wait_lasts(
    kind: Callable[[], tuple[sw.Session, Callable[[], Controller]]],
) -> None:
    s, controller = kind()
    with s:
        x, y = step(ZERO), slow(ZERO)
        x.block_until_ready()
        del x
        y.block_until_ready()
        (client,) = controller().state.sessions.values()
        assert client.names.names() == 1


def test_the_calls_after_a_wait_take_along_what_was_dropped_before_them() -> None:
    """So a loop that waits for one of its earlier steps each time sends no release by itself."""
    s, driver = session(Limits(pipe=1000))
    with s:
        waiting = [step(ZERO)]
        port = driver.ports["main"]
        waiting[0].block_until_ready()
        for _ in range(10):
            waiting.append(step(waiting[-1]))
            if len(waiting) > 3:
                waiting.pop(0).block_until_ready()
        pairs = kinds(port)[kinds(port).index(Release) :]
        assert pairs == [Release, Submit] * (len(pairs) // 2)
        assert len(pairs) >= 12


def test_long_after_a_wait_arrays_are_released_in_groups_again() -> None:
    s, driver = session(Limits(pipe=1000))
    with s:
        x = step(ZERO).block_until_ready()
        port = driver.ports["main"]
        for _ in range(AFTER_WAIT):
            x = step(x)
        alone = len(released(port))
        assert alone == AFTER_WAIT - 1  # none had been dropped before the first of these calls
        for _ in range(MANY - 1):
            x = step(x)
        assert len(released(port)) == alone


def test_in_a_simulation_a_release_costs_the_controller_no_message_of_its_own() -> None:
    came: list[Any] = []
    with sw.simulate("B", hosts=4, progress=False) as s:
        controller = s.simulation.controller_process
        before = controller.come

        def come(sender: int, number: int, message: Any) -> None:
            came.append(message)
            before(sender, number, message)

        controller.come = come  # type: ignore[method-assign]
        waiting = [slow(ZERO)]
        for _ in range(20):
            waiting.append(slow(waiting[-1]))
            if len(waiting) > 3:
                waiting.pop(0).block_until_ready()
        waiting[-1].block_until_ready()
    calls = [message for message in came if isinstance(message, Calls | Submit | Release)]
    together = [message for message in calls if isinstance(message, Calls)]
    assert [type(message) for message in calls].count(Release) <= 2  # before the first wait, and at the end
    assert len(together) >= 14
    assert all([type(call) for call in message.calls] == [Release, Submit] for message in together[1:])
