"""`seaway top` shows in a terminal what the page shows: islands, shares of the last seconds, what waits and why."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import seaway as sw
from backend.auth.access import Access
from core.record import LiveLook, Look, Trace, increment
from seaway.dashboard.recent import RecentUse, S
from seaway.dashboard.terminal import screen
from seaway.machines import of_setup
from tests.backend.cluster import cluster
from tests.seaway.small_sessions import small

from .clusters import LoopThread, busy

HOSTILE = "[bold red]ann[/bold red]"


def shown(look: LiveLook, recent: RecentUse, session: sw.Session) -> str:
    rich = pytest.importorskip("rich.console")
    console = rich.Console(width=140, record=True, file=io.StringIO())
    setup = session.simulation.setup
    console.print(screen("a simulation", of_setup(setup).islands, look, recent))
    text: str = console.export_text()
    return text


def contended() -> tuple[sw.Session, LiveLook]:
    """Two clients of weights 1 and 3 that compete; the look is at a moment when both still have work."""
    step = sw.synthetic("step", devices=4, duration="1ms")
    session = small(policy="stride")
    looks = []

    def client() -> None:
        ahead: list[sw.Array] = []
        while sw.now() < 0.1:
            ahead.append(step(0.0))
            if len(ahead) > 12:
                ahead.pop(0).block_until_ready()

    with session:
        source = session.driver.live_source(lambda: False)
        for name, weight in ((HOSTILE, 1), ("bob", 3)):
            session.spawn(client, name=name, weight=weight)
        sw.sleep("80ms")
        looks.append(source.look(Look()))
    return session, looks[0]


def test_shares_latencies_and_waits_of_the_last_seconds_are_shown() -> None:
    session, look = contended()
    recent = RecentUse()
    recent.take(look)
    text = shown(look, recent, session)
    lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "running" in lines["i0"]
    assert "Stride" in lines["i0"]
    assert "75%" in lines["bob"]
    assert HOSTILE in text, "a name is no markup"
    assert "8 gangs are ahead on devices 0-3" in text
    assert "ms" in lines["bob"]


def test_an_island_that_breaks_again_and_again_is_named_with_the_reason() -> None:
    session, look = contended()
    assert look.view is not None
    line = msgspec.structs.replace(look.view.islands[0], broken="3 epochs in a row broke. host 1: no route to host")
    look = msgspec.structs.replace(look, view=msgspec.structs.replace(look.view, islands=(line,)))
    text = shown(look, RecentUse(), session)
    assert "island 'i0' breaks again and again: 3 epochs in a row broke. host 1: no route to host" in text


def test_its_shares_are_those_of_the_trace() -> None:
    session, _ = contended()
    core = session.trace.core
    recent = RecentUse(1000 * S)
    recent.take(LiveLook("", 0, session.trace.span[1], None, increment(core, Look().cursor)))
    used = recent.used()
    whole = sum(used.values())
    got = session.trace.clients(session.trace.span)["got_share"].tolist()
    assert [used[number] / whole for number in sorted(used)] == pytest.approx(got, abs=1e-6)


def test_a_gang_without_a_start_begins_when_those_before_it_on_its_devices_are_over() -> None:
    trace = Trace()
    trace.place(0, 0, ((0, 4),))
    trace.place(1, 0, ((2, 6),))
    trace.client(1, "ann", 1, 0, 0)
    trace.submitted(1, 1, 1, "program", 0)
    for seq, place, ended in ((1, 0, 10), (2, 1, 14), (3, 0, 20)):
        trace.gang(seq, 1, "step", 0, place, ready=0, entered=1)
        trace.update(seq, ended=ended)
    recent = RecentUse()
    recent.take(LiveLook("", 0, 20, None, increment(trace, Look().cursor)))
    assert [each.spent for each in recent.gangs] == [4 * (10 - 1), 4 * (14 - 10), 4 * (20 - 14)]


def test_what_is_older_than_the_window_is_forgotten() -> None:
    trace = Trace()
    trace.place(0, 0, ((0, 4),))
    trace.client(1, "ann", 1, 0, 0)
    for run in range(1, 5):
        trace.submitted(run, 1, run, "program", run * S)
        trace.ended(run, run * S + 1)
    recent = RecentUse(2 * S)
    recent.take(LiveLook("", 0, 4 * S, None, increment(trace, Look().cursor)))
    assert [each.ended for each in recent.runs] == [2 * S + 1, 3 * S + 1, 4 * S + 1]


def test_top_of_a_cluster_needs_its_token(tmp_path: Path) -> None:
    pytest.importorskip("rich")
    (tmp_path / "token").write_text("secret")
    with LoopThread() as loop:
        found = loop.begin(cluster(tmp_path, access=Access("secret")))
        work = loop.run(busy(found))
        words = [sys.executable, "-m", "seaway", "top", found.server.address, "--once"]
        refused = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert refused.returncode == 1
        assert "token" in refused.stderr
        words += ["--token-file", str(tmp_path / "token")]
        said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
        work.cancel()
        loop.end(found)
    assert "ann" in said
    assert "2/2" in said
