"""`trace.live()`: a notebook keeps the page of a trace, `save` writes it as one file, and its link is served."""

from __future__ import annotations

import html
import json
import re
import urllib.request
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seaway as sw
from core.record import Look
from core.record import Trace as CoreTrace
from seaway.cli.dashboard import source_of
from seaway.dashboard import TracePage, page_file
from seaway.trace import Trace
from seaway.trace.trace_source import TraceSource
from tests.seaway.small_sessions import small

from .browser import MISSING, Browser, BrowserError, Page, chromium

HOSTILE = "</script><img src=x onerror=\"document.body.dataset.hurt='yes'\">"
SHOWN = "document.querySelector('.tile')"
in_chromium = pytest.mark.skipif(chromium() is None, reason=MISSING)


@pytest.fixture(scope="module")
def trace() -> Trace:
    step = sw.synthetic("step", devices=4, duration="1ms")
    with small(policy="stride") as session:
        for name, weight in (("ann", 1), (HOSTILE, 3)):
            session.spawn(lambda: [step(np.float32(0)) for _ in range(20)], name=name, weight=weight)
    return session.trace


def numbered(gangs: int) -> Trace:
    """A trace of one client on 2048 devices, with that many gangs."""
    core = CoreTrace()
    core.place(0, 0, ((0, 2048),))
    core.client(1, "ann", 1, 0, 0)
    for seq in range(1, gangs + 1):
        core.submitted(seq, 1, seq, "program", 1000 * seq)
        core.gang(seq, seq, "step", 0, 0, ready=1000 * seq, entered=1000 * seq)
        core.update(seq, started=1000 * seq + 7 * seq % 400, ended=1000 * seq + 900)
        core.ended(seq, 1000 * seq + 950)
    return Trace(core)


def unplaned(planes: bytes, rows: int) -> list[float]:
    """What static/feed.js does with a column."""
    steps = np.frombuffer(planes, np.uint8).reshape(8, rows).T.copy().view("<i8")[:, 0]
    return [float(each) for each in np.cumsum(steps)]


# --- what is made -------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-1, 1 << 52), max_size=40))
def test_a_column_is_the_same_after_it_was_packed(numbers: list[int]) -> None:
    head = json.dumps({"tables": {"gangs": {"columns": ["at"], "rows": len(numbers)}}}).encode()
    body = len(head).to_bytes(4, "little") + head + np.array(numbers, np.float64).tobytes()
    packed = page_file.compact(body)
    assert packed[: 4 + len(head)] == body[: 4 + len(head)]
    assert unplaned(packed[4 + len(head) :], len(numbers)) == numbers


def test_all_modules_become_one_script() -> None:
    script = page_file.one_script("main")
    made = re.findall(r'^modules\["(\w+)"\] = ', script, re.MULTILINE)
    folder = Path(page_file.__file__).parent / "static"
    assert sorted(made) == sorted(path.stem for path in folder.glob("*.js") if path.stem != "unpack")
    assert made[-1] == "main"
    assert not re.search(r"^(?:import|export)\b", script, re.MULTILINE)
    for name in re.findall(r'= modules\["(\w+)"\];', script):
        assert script.index(f'modules["{name}"] = ') < script.index(f'= modules["{name}"];'), "made before it is used"


def test_a_page_loads_nothing_and_has_no_name_as_markup(trace: Trace) -> None:
    page = page_file.page_file(TraceSource(trace, HOSTILE))
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    assert "<img src=x" not in page


def test_a_notebook_keeps_the_page_without_a_server(trace: Trace) -> None:
    page = trace.live()
    found = page._repr_mimebundle_()
    inside = re.search(r'<iframe srcdoc="([^"]*)"', found["text/html"])
    assert inside is not None
    assert html.unescape(inside[1]) == page_file.page_file(page._source)
    assert 'sandbox="allow-scripts"' in found["text/html"], "a page of names that others chose gets no more"
    assert found["text/plain"] == "<page of a trace of 4 devices (tpu-v3), 2 hosts>"
    assert page._server is None
    assert len(found["text/html"]) < 200_000


def test_a_hundred_thousand_gangs_are_kept_in_less_than_5_mb() -> None:
    trace = numbered(100_000)
    kept = trace.live()._repr_mimebundle_()["text/html"]
    assert "id=&quot;packed-numbers&quot;" in kept
    assert len(kept) < 5_000_000


def test_a_page_too_large_for_a_notebook_is_served_and_says_what_to_do_when_it_is_gone(trace: Trace) -> None:
    page = TracePage(TraceSource(trace, "large"), most=1000)
    try:
        found = page._repr_html_()
        assert page.link in html.unescape(found)
        assert "packed-numbers" not in found
        assert "trace.live().save(" in html.unescape(found)
    finally:
        page.close()


def test_printed_it_says_its_link_which_is_served_until_it_is_closed(trace: Trace) -> None:
    page = trace.live()
    said = re.fullmatch(
        r"<page of a trace of 4 devices \(tpu-v3\), 2 hosts, at (http://127\.0\.0\.1:\d+)/#key=\S+>", repr(page)
    )
    assert said is not None
    assert repr(page) == said[0], "the link stays"
    with urllib.request.urlopen(said[1]) as answer:
        assert b"<title>Seaway</title>" in answer.read()
    page.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(said[1])


# --- in a browser -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as found:
        yield found


@in_chromium
def test_a_saved_page_shows_the_trace_and_zooms_without_a_server(
    browser: Browser, trace: Trace, tmp_path: Path
) -> None:
    page = browser.page(trace.live().save(tmp_path / "run.html").as_uri())
    page.until(SHOWN)
    assert page.text("#state") == "saved trace"
    source = TraceSource(trace, "")
    gangs = source.look(Look()).trace
    for name in ("seq", "entered", "started", "ended"):
        shown = page.value(
            f"Array.from(seaway.store.tables.gangs.columns.{name}.slice(0, seaway.store.tables.gangs.n))"
        )
        assert shown == list(gangs.column("gangs", name))
    whole = page.value("seaway.view.width")
    x, y = page.value(
        "(({x, y, width}) => [x + width / 2, y + 40])(document.querySelector('#timeline').getBoundingClientRect())"
    )
    page.wheel(x, y, -400)
    page.until(f"seaway.view.width < {0.7 * whole}")
    page.move(x, y)
    page.until("document.querySelector('#tip').innerText.includes('computed')")
    assert page.value("document.body.dataset.hurt ?? 'no'") == "no"
    page.close()
    assert not browser.errors


@in_chromium
def test_a_kept_page_is_drawn_in_the_frame_of_a_notebook(browser: Browser, trace: Trace, tmp_path: Path) -> None:
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<body style='margin: 0; background: white'>{trace.live()._repr_html_()}")
    page = browser.page(notebook.as_uri(), width=1000, height=620)
    until_coloured(page, tmp_path)
    assert page.value("document.querySelector('iframe').contentDocument") is None, "it cannot reach the notebook"
    page.close()
    assert not browser.errors


@in_chromium
def test_the_frame_of_a_page_that_is_served_no_more_says_so(browser: Browser, trace: Trace, tmp_path: Path) -> None:
    served = TracePage(TraceSource(trace, "large"), most=1000)
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<body>{served._repr_html_()}")
    served.close()
    page = browser.page(notebook.as_uri())
    page.until("document.querySelector('iframe').contentDocument.body.innerText.includes('has ended')")
    assert "Run the cell again" in page.value("document.querySelector('iframe').contentDocument.body.innerText")
    page.close()
    browser.errors.clear()  # Chromium logs that nobody answers


def until_coloured(page: Page, folder: Path) -> None:
    """Wait until the screen has the first two clients' colours, which only the timeline can have put there."""
    from matplotlib import image

    path = folder / "screen.png"
    for _ in range(200):
        page.value("new Promise(done => setTimeout(done, 100))")
        try:
            page.screenshot(path)
        except BrowserError:  # its tab is not active yet
            continue
        pixels = (255 * image.imread(path)[:, :, :3]).round().astype(int)
        if all((abs(pixels - colour).sum(axis=2) < 6).sum() > 500 for colour in ((0, 114, 178), (230, 159, 0))):
            return
    raise AssertionError("the frame stays without a timeline")


# --- from the command line ----------------------------------------------------------------------------------------


def test_a_file_of_a_trace_is_answered_with_its_folder(trace: Trace, tmp_path: Path) -> None:
    folder = trace.save(tmp_path / "run")
    with pytest.raises(sw.errors.SeawayError, match=f"part of a trace, so name its folder: {folder}"):
        source_of(Namespace(what=str(folder / "gangs.parquet")))
