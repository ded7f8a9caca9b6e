"""A session can be looked at while it runs. That changes nothing in it, and is always between two events."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import seaway as sw
from core.record import LiveLook, Look, TraceCursor
from seaway.dashboard import LivePage, LiveSource
from tests.seaway.small_sessions import small

STEPS = 40
PAUSE = 0.002  # seconds between looks: a visitor that never pauses has the simulation go on event by event


def program(session: sw.Session, steps: int = STEPS) -> Any:
    """Three clients that call in a loop. Return what decides whether two sessions went the same way."""
    step = sw.synthetic("step", devices=4, duration="1ms")

    def client() -> None:
        for _ in range(steps):
            step(np.float32(0)).block_until_ready()
            sw.sleep("100us")

    with session:
        tasks = [session.spawn(client, name=name, weight=at + 1) for at, name in enumerate(("ann", "bob", "cat"))]
        for task in tasks:
            task.join()
    order = session.simulation.controller.order.whole()
    return order, session.trace.gangs().to_dict("list"), session.now()


class Visitor:
    """A thread that looks again and again, from wherever it finds the session."""

    def __init__(self, source: LiveSource) -> None:
        self.source = source
        self.looks: list[LiveLook] = []
        self.failed: list[BaseException] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._work)
        self.thread.start()

    def _work(self) -> None:
        try:
            while not self.over.wait(PAUSE):
                self.looks.append(self.source.look(Look()))
        except BaseException as error:
            self.failed.append(error)

    def end(self) -> None:
        self.over.set()
        self.thread.join()


def visited(act: Callable[[sw.Session], Any], **options: Any) -> tuple[Any, Visitor]:
    session = small(**options)
    visitor = Visitor(session.driver.live_source(lambda: session.closed))
    try:
        found = act(session)
    finally:
        visitor.end()
    assert not visitor.failed
    return found, visitor


def test_a_simulation_that_is_looked_at_goes_the_same_way() -> None:
    expected = program(small(policy="stride"))
    found, visitor = visited(program, policy="stride")
    assert found == expected
    assert len(visitor.looks) > 10


def test_looks_come_while_it_runs_and_in_order_of_its_time() -> None:
    _, visitor = visited(lambda session: program(session, 100))
    times = [look.now for look in visitor.looks]
    assert times == sorted(times)
    assert len(set(times)) > 5, "it was seen at several moments"
    for look in visitor.looks:
        assert look.view is not None
        ended = look.trace.column("gangs", "ended")
        assert sum(at < 0 for at in ended) <= look.view.islands[0].under_way, "no gang is half over"
        assert max(look.trace.column("gangs", "entered"), default=0) <= look.now


def test_it_can_be_looked_at_while_its_only_thread_sleeps() -> None:
    def sleeps(session: sw.Session) -> None:
        ticks = []

        def tick(env: Any) -> Any:
            while True:
                yield env.timeout(10_000)
                ticks.append(env.now)

        with session:
            session.env.process(tick(session.env))
            sw.sleep("1s")
        assert len(ticks) > 10_000

    _, visitor = visited(sleeps)
    assert len({look.now for look in visitor.looks}) > 3


def test_it_can_be_looked_at_while_the_users_own_code_is_busy_and_when_it_is_over() -> None:
    session = small()
    source = session.driver.live_source(lambda: session.closed)
    step = sw.synthetic("step", devices=4, duration="1ms")
    with session:
        step(np.float32(0)).block_until_ready()
        seen: list[LiveLook] = []
        thread = threading.Thread(target=lambda: seen.append(source.look(Look())))
        thread.start()
        thread.join(10)  # this thread has the turn and gives it to nobody
        assert seen
        assert (source.over, len(seen[0].trace.column("gangs", "seq"))) == (False, 1)
    assert source.over
    assert len(source.look(Look()).trace.column("gangs", "seq")) == 1
    cursor = TraceCursor(seen[0].trace.after, {}, seen[0].trace.known_places)
    assert len(source.look(Look(seen[0].identity, cursor)).trace.column("gangs", "seq")) == 0


def test_a_session_that_is_closed_in_distress_lets_visitors_go() -> None:
    def fails(session: sw.Session) -> None:
        step = sw.synthetic("step", devices=4, duration="1ms")

        def distressed() -> None:
            with session:
                step(np.float32(0)).block_until_ready()
                raise KeyError("the user's")

        with pytest.raises(KeyError):
            distressed()

    visited(fails)


def test_two_simulations_have_traces_of_their_own() -> None:
    first, second = (small().driver.live_source(lambda: False) for _ in range(2))
    assert first.look(Look()).identity != second.look(Look()).identity


def test_live_prints_the_link_and_the_page_is_one_for_a_session(capsys: pytest.CaptureFixture[str]) -> None:
    session = small(live=True)
    with session:
        page = session.live()
        assert session.live() is page
    assert capsys.readouterr().err == f"seaway: live at {page.link}\n"
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#key=[\w-]{24}", page.link)
    page.close()


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    page = small().live()
    html = page._repr_html_()
    assert "<iframe srcdoc=" in html
    assert f'href="{page.link}"' in html
    assert "session.trace.live()" in html, "what to do when the process is gone"
    assert repr(page) == f"<live page at {page.link}>"
    assert isinstance(page, LivePage)
    page.close()


@pytest.mark.parametrize("live", [1, None, 29100, ["127.0.0.1:1"]])
def test_live_is_true_or_an_address(live: Any) -> None:
    with pytest.raises(TypeError, match=r"live=.*True, or the address of the page"):
        small(live=live)


def test_a_local_cluster_is_looked_at_without_a_call() -> None:
    step = sw.synthetic("step", devices=4, duration="1ms")
    with sw.local(hosts=2, devices_per_host=2, platform="timed") as session:
        source = session.driver.live_source(lambda: session.closed)
        step(np.float32(0)).block_until_ready()
        look = source.look(Look())
        assert look.view is not None
        assert [each.name for each in look.view.clients] == ["main"]
        assert look.connected == ((0, 2),)
        assert len(look.trace.column("gangs", "seq")) == 1
        assert source.kind == "cluster"
    assert source.over
    assert time.monotonic_ns() > look.now > look.began
