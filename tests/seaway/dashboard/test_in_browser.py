"""The page in a real Chromium: it shows a run, zooms, scrubs, and outlives a controller that goes away and returns."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seaway as sw
from backend.auth.access import Access
from seaway.dashboard import LogSource, PageServer
from seaway.dashboard.controller_source import ControllerSource
from seaway.trace.trace_source import TraceSource
from tests.backend.cluster import cluster
from tests.seaway.small_sessions import small

from .browser import MISSING, Browser, Page, chromium
from .clusters import LoopThread, busy

pytestmark = pytest.mark.skipif(chromium() is None, reason=MISSING)

HOSTILE = "<img src=x onerror=\"document.body.dataset.hurt='yes'\">"
SHOWN = "+document.documentElement.dataset.looks >= 1 && document.querySelector('.tile')"

ROWS = "[...document.querySelectorAll('#clients tbody tr')].map(row => row.innerText.split('\\t'))"
BOX = "(({x, y, width}) => [x, y, width])(document.querySelector('#timeline').getBoundingClientRect())"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as found:
        yield found


@pytest.fixture(scope="module")
def session() -> sw.Session:
    """Three clients of weights 1, 2 and 4 on two hosts, one of them with a name that is no name."""
    step = sw.synthetic("step", devices=4, duration="1ms")
    half = sw.synthetic("half", devices=2, duration="1ms")

    def client(call: Callable[[Any], sw.Array]) -> None:
        ahead: list[sw.Array] = []
        while sw.now() < 0.05:
            ahead.append(call(np.float32(0)))
            if len(ahead) > 3:
                ahead.pop(0).block_until_ready()

    with small(policy="stride") as found:
        for name, weight, call in (("ann", 1, step), ("bob", 2, step), (HOSTILE, 4, half)):
            found.spawn(client, call, name=name, weight=weight)
    return found


@pytest.fixture
def saved(browser: Browser, session: sw.Session) -> Iterator[Page]:
    server = PageServer(TraceSource(session.trace, "saved"), "127.0.0.1:0")
    page = browser.page(server.link)
    page.until(SHOWN)
    yield page
    page.close()
    server.close()
    assert not browser.errors, "scripts of the page complain of nothing"


def span_of(page: Page) -> tuple[float, float]:
    low, high = page.value("[seaway.view.t0, seaway.view.t1]")
    return low, high


def drawn(page: Page, selector: str = "#timeline canvas") -> int:
    """How many colours a canvas has, of those that are not almost grey."""
    found: int = page.value(
        f"(() => {{ const canvas = document.querySelector({json.dumps(selector)});"
        "const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height), seen = new Set();"
        "for (let at = 0; at < data.length; at += 4) {"
        "  const [r, g, b] = data.subarray(at, at + 3);"
        "  if (Math.max(r, g, b) - Math.min(r, g, b) > 90) seen.add((r << 16) + (g << 8) + b);"
        "} return seen.size; })()"
    )
    return found


# --- a trace ------------------------------------------------------------------------------------------------------


def test_it_shows_a_trace_clients_and_shares(saved: Page, session: sw.Session) -> None:
    assert saved.text("#state") == "saved trace"
    assert drawn(saved) >= 3, "a colour for each client"
    assert drawn(saved, "#overview canvas") >= 3
    assert drawn(saved, "#utilisation canvas") >= 3
    shares = saved.text("#shares")
    asked = [f"of {share:.0%}" for share in (1 / 7, 2 / 7, 4 / 7)]
    assert all(each in shares for each in asked)
    rows = saved.value(ROWS)
    runs = session.trace.runs().groupby("client").size()
    assert [int(row[4]) for row in rows] == [runs[name] for name in ("ann", "bob", HOSTILE)]
    assert saved.text("#decisions").count("\n") > 10


def test_its_figures_are_those_of_the_trace(saved: Page, session: sw.Session) -> None:
    trace = session.trace
    saved.value(f"seaway.view.set(0, {trace.span[1]})")
    saved.until(f"Math.abs(seaway.view.t1 - {trace.span[1]}) < 2")
    busy_part = trace.utilization("total", window=(0, trace.span[1]))["busy_fraction"].iloc[0]
    assert saved.text(".tile b") == f"{busy_part:.0%}"
    got = trace.clients((0, trace.span[1]))["got_share"].tolist()
    shown = saved.value("[...document.querySelectorAll('#shares .n')].map(each => parseFloat(each.innerText))")
    assert shown == pytest.approx([100 * share for share in got], abs=0.6)


def test_a_hostile_name_is_shown_as_it_is_written(saved: Page) -> None:
    assert HOSTILE in saved.value("document.querySelector('#clients').textContent")
    assert saved.value("document.body.dataset.hurt ?? 'no'") == "no"
    assert saved.value("document.querySelectorAll('main img').length") == 0


def test_the_wheel_zooms_at_the_pointer_and_a_drag_moves(saved: Page) -> None:
    saved.click("#whole")
    box = saved.value(BOX)
    x, y = box[0] + 128 + (box[2] - 128) / 2, box[1] + 40
    before = span_of(saved)
    saved.wheel(x, y, -400)
    saved.until(f"seaway.view.width < {0.7 * (before[1] - before[0])}")
    zoomed = span_of(saved)
    middle = sum(before) / 2
    assert abs(sum(zoomed) / 2 - middle) < 0.01 * (before[1] - before[0]), "what is under the pointer stays there"
    saved.drag(x, y, x + 100)
    saved.until(f"seaway.view.t0 < {zoomed[0]} - 1")
    moved = span_of(saved)
    assert moved[1] - moved[0] == pytest.approx(zoomed[1] - zoomed[0])
    saved.click("#whole")
    saved.until(f"seaway.view.width > {0.9 * (before[1] - before[0])}")


def test_a_gang_under_the_pointer_says_what_it_is(saved: Page) -> None:
    saved.value("seaway.view.set(10e6, 20e6)")
    box = saved.value(BOX)
    saved.move(box[0] + 128 + (box[2] - 128) * 0.6, box[1] + 30)
    saved.until("!document.querySelector('#tip').hidden")
    said = saved.text("#tip")
    assert "client" in said
    assert "computed" in said
    assert "1.00 ms" in said


def test_what_waited_at_a_moment_is_shown_with_what_was_ahead(saved: Page) -> None:
    saved.value("seaway.view.set(10e6, 30e6)")
    saved.until("document.querySelectorAll('#queues tbody tr').length >= 2")
    assert "ahead on its devices" in saved.text("#queues")
    saved.value("seaway.view.set(seaway.view.high - 1000, seaway.view.high + 1000)")
    saved.until("document.querySelector('#queues').innerText.includes('Nothing waits')")


def test_play_moves_on_and_stops_at_the_end(saved: Page) -> None:
    saved.value("seaway.view.set(0, seaway.view.high / 2)")
    before = span_of(saved)
    saved.click("#follow")
    saved.until(f"seaway.view.t1 > {before[1]} + 1")
    saved.until("!seaway.view.following && seaway.view.t1 >= seaway.view.high")


def test_rows_may_be_islands_hosts_or_devices(saved: Page) -> None:
    for kind, count in (("devices", 4), ("hosts", 2), ("islands", 1), ("groups", 2)):
        saved.value(f"document.querySelector('#rows').value = '{kind}'")
        saved.value("document.querySelector('#rows').dispatchEvent(new Event('change'))")
        saved.until(f"seaway.timeline.rows.length === {count}")
        assert drawn(saved) >= 3


def test_the_dark_theme_is_dark(browser: Browser, session: sw.Session) -> None:
    server = PageServer(TraceSource(session.trace, "saved"), "127.0.0.1:0")
    page = browser.page(server.link, dark=True)
    page.until(SHOWN)
    assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 23)"
    page.click("#theme")
    page.until("getComputedStyle(document.body).backgroundColor === 'rgb(244, 245, 247)'")
    page.value("localStorage.clear()")
    page.close()
    server.close()


def test_without_the_key_the_page_says_what_to_do(browser: Browser, session: sw.Session) -> None:
    server = PageServer(TraceSource(session.trace, "saved"), "127.0.0.1:0")
    page = browser.page(server.link.partition("#")[0])
    page.until("document.querySelector('#notice').innerText.includes('open the link')")
    assert page.text("#state") == "refused"
    browser.errors.clear()  # Chromium logs each answer that is an error
    page.close()
    server.close()


# --- an event log -------------------------------------------------------------------------------------------------


def test_an_event_log_is_replayed_to_the_moment_that_is_shown(browser: Browser, tmp_path: Path) -> None:
    step = sw.synthetic("step", devices=2, duration="2ms")
    with sw.local(hosts=1, devices_per_host=2, platform="timed", record=tmp_path / "run.log"):
        sw.block_until_ready([step(np.float32(0)) for _ in range(30)])
    source = LogSource(tmp_path / "run.log")
    server = PageServer(source, "127.0.0.1:0")
    page = browser.page(server.link)
    page.until(SHOWN)
    assert page.text("#state") == "event log"
    entered = page.value("Array.from(seaway.store.tables.gangs.columns.entered.slice(0, 30))")
    page.value(f"seaway.view.set({entered[0] - 1e6}, {entered[10] + 1000})")
    page.until("document.querySelector('#queues').innerText.includes('gangs are ahead on devices 0-1')")
    page.value("seaway.view.set(seaway.view.high - 1e6, seaway.view.high + 1e6)")
    page.until("document.querySelector('#queues').innerText.includes('Nothing waits')")
    page.close()
    server.close()
    assert not browser.errors


# --- a cluster ----------------------------------------------------------------------------------------------------


def test_it_follows_a_cluster_and_outlives_a_controller_that_goes_away_and_returns(browser: Browser) -> None:
    with tempfile.TemporaryDirectory() as folder, LoopThread() as loop:
        access = Access("secret")
        first = loop.begin(cluster(Path(folder), access=access, devices_per_host=2))
        address = first.server.address
        work = loop.run(busy(first))
        server = PageServer(ControllerSource(address, access), "127.0.0.1:0")
        page = browser.page(server.link)
        page.until(SHOWN)
        page.until("document.querySelector('#state').innerText === 'live' && seaway.store.tables.gangs.n > 20")
        page.until("document.querySelector('#machines').innerText.includes('2 of 2 connected')")
        assert drawn(page) >= 1
        gangs = page.value("seaway.store.tables.gangs.n")
        page.until(f"seaway.store.tables.gangs.n > {gangs}")
        work.cancel()
        loop.end(first)
        page.until("document.querySelector('#state').innerText === 'away'")
        assert "no controller answers" in page.text("#notice")
        assert drawn(page) >= 1, "what it has stays on the page"
        second = loop.begin(cluster(Path(folder), access=access, devices_per_host=2, bind=address))
        work = loop.run(busy(second))
        page.until("document.querySelector('#state').innerText === 'live'")
        page.until("document.querySelector('#notice').innerText.includes('started anew')")
        page.until("seaway.store.tables.gangs.n > 5")
        work.cancel()
        page.close()
        server.close()
        loop.end(second)
        browser.errors.clear()  # Chromium logs each answer that is an error


def test_the_whole_of_what_runs_can_be_seen_and_left_again(browser: Browser) -> None:
    with tempfile.TemporaryDirectory() as folder, LoopThread() as loop:
        found = loop.begin(cluster(Path(folder)))
        work = loop.run(busy(found))
        server = PageServer(ControllerSource(found.server.address, Access()), "127.0.0.1:0")
        page = browser.page(server.link)
        page.until("seaway.store.tables.gangs.n > 20")
        edge = page.value("seaway.view.t1")
        page.until(f"seaway.view.t1 > {edge}")
        page.click("#earlier")
        page.until("!seaway.view.following")
        stays = page.value("seaway.view.t1")
        looks = page.value("+document.documentElement.dataset.looks")
        page.until(f"+document.documentElement.dataset.looks > {looks + 2}")
        assert page.value("seaway.view.t1") == stays, "who looks back is not carried along"
        page.click("#follow")
        page.until(f"seaway.view.t1 > {stays}")
        work.cancel()
        page.close()
        server.close()
        loop.end(found)
        browser.errors.clear()
