"""Real sessions, on devices that only take time: processes, connections and threads are real, and the rest is quick."""

from __future__ import annotations

import logging
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seaway as sw
from core.client.client_limits import Limits
from seaway.sessions.connected import port
from seaway.sessions.connected.interrupts import InterruptShield

ROOT = Path(__file__).parents[3]
ALL = sw.slice(devices=4)
quick = sw.synthetic("quick", devices=ALL, duration="50us")
slow = sw.synthetic("slow", devices=ALL, duration="30s")
ZERO: Any = np.float32(0)


def readable(session: sw.Session) -> sw.Session:
    """Let timed devices return zeros as contents. They have nothing else, but zeros travel as any numbers do."""
    session.driver.contents = True  # type: ignore[attr-defined]
    return session


@pytest.fixture(scope="module")
def shared() -> Iterator[sw.Session]:
    with readable(sw.local(hosts=2, devices_per_host=2, platform="timed")) as session:
        yield session


def all_gone(pids: list[int], within: float) -> bool:
    until = time.monotonic() + within
    while time.monotonic() < until:
        if not any(Path(f"/proc/{pid}").exists() and _runs(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- calls --------------------------------------------------------------------------------------------------------


def test_a_session_starts_within_five_seconds_and_leaves_nothing_behind() -> None:
    begun = time.monotonic()
    session = readable(sw.local(hosts=4, islands=2, platform="timed"))
    ready = time.monotonic() - begun
    pids = [child.pid for child in session.driver.agents]  # type: ignore[attr-defined]
    with session:
        one = sw.synthetic("one", devices=1, duration="1us")
        assert np.asarray(one(ZERO)) == 0
        unread = one(ZERO)
    assert ready < 5
    assert all_gone(pids, 1)
    assert not [thread for thread in threading.enumerate() if thread.name == "seaway-connections"]
    assert repr(session) == "<sw.Session, local cluster: 8 hosts, 8 devices (timed), closed>"
    with pytest.raises(sw.errors.SessionClosed):
        np.asarray(unread)
    with pytest.raises(sw.errors.SessionClosed), session:
        pass


@pytest.mark.parametrize("simulated", [False, True])
def test_a_client_too_many_is_told_the_limit(simulated: bool) -> None:
    config: Any = {"max_clients": 2}
    with sw.simulate("B", config=config) if simulated else sw.local(platform="timed", config=config) as session:
        f = sw.synthetic("f", devices=1, duration="1us")
        for name in ("a", "b"):
            with session.client(name):
                f(ZERO).block_until_ready()
        said = re.escape("there are 2 clients at most (`max_clients`), and as many are here")
        with session.client("c"):
            with pytest.raises((sw.errors.RunError, sw.errors.SessionClosed), match=f"over: {said}"):
                f(ZERO).block_until_ready()
            with pytest.raises(sw.errors.SessionClosed, match=f"client 'c' is over: {said}; open another one"):
                f(ZERO)
        with session.client("a"):
            f(ZERO).block_until_ready()


def test_more_calls_than_may_be_under_way_wait_for_room(shared: sw.Session) -> None:
    most, value = Limits().max_runs, quick(ZERO)
    for _ in range(most + 200):
        value = quick(value)
        assert len(shared.main._runs) <= most
    assert float(value) == 0
    assert value.run.done


def test_calls_return_before_their_runs_end(shared: sw.Session) -> None:
    first = sw.synthetic("first", devices=ALL, duration="100ms")(ZERO)
    made = quick(first)
    assert not made.is_ready()
    assert made.block_until_ready() is made
    assert made.is_ready()


def test_contents_in_many_parts_are_put_and_read(shared: sw.Session) -> None:
    given = np.arange(48, dtype=np.float32).reshape(8, 6)
    put = sw.put(given, ALL, ALL.sharding("x"))
    given[:] = -1  # the user's own again
    assert np.asarray(put).shape == (8, 6)
    assert str(put).count("\n") == 7
    assert not np.asarray(put).flags.writeable


def test_clients_in_threads_are_separate_clients(shared: sw.Session) -> None:
    def calls(count: int) -> float:
        value = ZERO
        for _ in range(count):
            value = quick(value)
        return float(value)

    tasks = [shared.spawn(calls, 50, name=f"client {weight}", weight=weight) for weight in (1, 2, 4)]
    assert [task.result() for task in tasks] == [0.0] * 3
    clients = shared.trace.clients().set_index("client")
    assert list(clients.loc[["client 1", "client 2", "client 4"], "weight"]) == [1, 2, 4]
    assert list(clients.loc[["client 1", "client 2", "client 4"], "runs"]) == [50] * 3


def test_times_are_those_of_the_session(shared: sw.Session) -> None:
    before = shared.driver.now()
    made = quick(ZERO)
    assert before < made.ready_at < shared.driver.now()
    sw.sleep("20ms")
    assert shared.driver.now() - made.ready_at >= 20_000_000


def test_a_deadline_is_converted_to_the_clock_of_core(shared: sw.Session) -> None:
    with sw.deadline("50s"):
        made = quick(ZERO)
    made.block_until_ready()
    assert not made.run.late
    assert shared.driver.now() < made.run.due_at < shared.driver.now() + 50_000_000_000
    run = shared.trace.core.runs
    assert run.column("deadline")[-1] - run.column("submitted")[-1] == pytest.approx(50e9, rel=0.02)


def test_a_long_wait_logs_what_it_waits_for(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(port, "LONG", 0.5)
    monkeypatch.setattr(port, "LOOK", 0.1)
    with sw.local(hosts=2, devices_per_host=2, platform="timed", config={"window": 2}):
        quick(sw.synthetic("long", devices=ALL, duration="1s")(ZERO)).block_until_ready()
    assert "client 'main' waits for the result of 'quick', for" in caplog.text


class OnLog(logging.Handler):
    """Does something as soon as the log has a certain text."""

    def __init__(self, words: str, act: Callable[[], None]) -> None:
        super().__init__()
        self._words, self._act = words, act
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if self._words in record.getMessage():
            self.said.append(record.getMessage())
            self._act()

    def __enter__(self) -> OnLog:
        logging.getLogger("seaway").addHandler(self)
        return self

    def __exit__(self, *raised: object) -> None:
        logging.getLogger("seaway").removeHandler(self)


@contextmanager
def stopped_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A session whose hosts have just been stopped, and their process. While a client waits, the log gives the reason
    more often."""
    monkeypatch.setattr(port, "LONG", 0.5)
    monkeypatch.setattr(port, "LOOK", 0.1)
    with sw.local(hosts=2, devices_per_host=2, platform="timed") as session:
        driver: Any = session.driver
        pid = driver.agents[0].process.pid
        quick(ZERO).block_until_ready()
        os.kill(pid, signal.SIGSTOP)
        try:
            yield pid
        finally:
            os.kill(pid, signal.SIGCONT)


def test_a_client_that_waits_for_code_reads_what_is_compiled_where_and_so_does_ctrl_c(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = sw.synthetic("step", devices=ALL, duration="1ms")
    with stopped_host(monkeypatch) as pid:
        interrupts = OnLog("compiling", lambda: signal.raise_signal(signal.SIGINT))
        with interrupts, pytest.raises(KeyboardInterrupt) as caught:
            step(ZERO).block_until_ready()
        (note,) = caught.value.__notes__
        assert note.startswith("seaway: compiling 'step' on hosts 0-1, ")
        with OnLog("compiling", lambda: os.kill(pid, signal.SIGCONT)) as when:
            step(ZERO).block_until_ready()
    waits = r"compiling 'step' on hosts 0-1, \d+ s; client 'main' waits for the result of 'step'"
    assert re.fullmatch(waits, when.said[-1])


# --- interrupts ---------------------------------------------------------------------------------------------------


@contextmanager
def interrupted(after: float) -> Iterator[None]:
    """Press Ctrl-C, so many seconds from now."""
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def test_ctrl_c_ends_a_wait_at_once_and_the_session_goes_on() -> None:
    with sw.local(hosts=2, devices_per_host=2, platform="timed") as session:
        made = slow(ZERO)
        begun = time.monotonic()
        with interrupted(0.3), pytest.raises(KeyboardInterrupt):
            made.block_until_ready()
        assert time.monotonic() - begun < 0.8
        assert not made.is_ready()
        session.close(abort=True)


# In `__del__` Python itself drops an interrupt, and prints a message.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_at_any_moment_of_many_calls_leaves_a_consistent_session() -> None:
    draw, interrupts, value = random.Random(7), 0, ZERO
    calling = False  # an alarm that comes later than the calls for which it was set is none

    def interrupt(number: int, frame: object) -> None:
        if calling:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGALRM, interrupt)
    with readable(sw.local(hosts=2, devices_per_host=2, platform="timed")) as session:
        quick(ZERO).block_until_ready()
        until = time.monotonic() + 1
        try:
            while time.monotonic() < until:
                try:
                    calling = True
                    signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, 2e-2))
                    value = ZERO
                    for _ in range(20):
                        value = quick(value)
                    assert float(value) == 0
                    calling = False
                except KeyboardInterrupt:
                    calling = False
                    interrupts += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert interrupts > 20
        assert float(quick(ZERO)) == 0
        del value
        session.main.drain()
        remote = session.driver._ports[0].remote  # type: ignore[attr-defined]
        assert (remote._sinks, remote._arrived, remote._offered, remote._sources) == ({}, {}, {}, {})


def test_ctrl_c_is_delayed_while_a_block_must_not_be_interrupted() -> None:
    before, shield, done = signal.getsignal(signal.SIGINT), InterruptShield(), []

    def work() -> None:
        with shield:
            with shield:
                signal.raise_signal(signal.SIGINT)
                done.append("inside")
            done.append("outside")
        done.append("never")

    shield.raise_up()
    with pytest.raises(KeyboardInterrupt):
        work()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    shield.let_down()
    assert done == ["inside", "outside"]
    assert signal.getsignal(signal.SIGINT) == before


# --- the end of a session -------------------------------------------------------------------------------------------

SCRIPT = """
import os, signal, sys, time
import seaway as sw
session = sw.local(hosts=2, platform="timed").open()
print(*[child.pid for child in session.driver.agents], flush=True)
{then}
"""


@pytest.mark.parametrize("then", ["os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(3)"])
def test_child_processes_end_with_their_parent_however_it_ends(then: str, tmp_path: Path) -> None:
    """From a script without a main guard, in an empty folder."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(then=then), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    pids = [int(word) for word in done.stdout.split()]
    assert pids, done.stderr
    assert all_gone(pids, 3)
    if then == "sys.exit(3)":
        assert (done.returncode, done.stderr) == (3, "")


# --- a controller elsewhere -----------------------------------------------------------------------------------------


@contextmanager
def elsewhere(*words: str) -> Iterator[tuple[str, Callable[[str, int], None]]]:
    """Start a controller and a host, each a process of its own. Returns the controller's address, and a function that
    sends a signal to either."""
    running: dict[str, subprocess.Popen[str]] = {}

    def start(name: str, module: str, *more: str) -> str:
        process = running[name] = subprocess.Popen(
            [sys.executable, "-m", module, "--with-parent", *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, cwd=ROOT,
        )  # fmt: skip
        assert process.stdout is not None
        return process.stdout.readline()

    try:
        said = start("controller", "backend.server", "--bind", "127.0.0.1:0", "--devices-per-host", "4", *words)
        address = said.removeprefix("controller at ").partition(": ")[0]
        token = words[words.index("--token-file") :][:2] if "--token-file" in words else ()
        agent = ["--controller", address, "--platform", "timed", "--devices", "4", *token]
        start("agent", "backend.agent", *agent)
        yield address, lambda name, number: running[name].send_signal(number)
    finally:
        for process in running.values():
            process.kill()
        for process in running.values():
            process.wait()
            assert process.stdin
            assert process.stdout
            process.stdin.close()
            process.stdout.close()


def test_a_session_on_a_running_cluster_behaves_like_any_other(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a secret of this cluster\n", encoding="utf-8")
    with elsewhere("--token-file", str(token)) as (address, _):
        with readable(sw.connect(f"grpc://{address}", token_file=str(token))) as session:
            assert repr(session) == f"<sw.Session, cluster at {address}: 1 host, 4 devices (timed)>"
            assert float(quick(quick(ZERO))) == 0
            assert len(session.trace.gangs()) == 2
        with pytest.raises(sw.errors.Unreachable, match=r"refused our credentials.*token="):
            sw.connect(address, token="another")


@pytest.mark.parametrize("connected", [False, True])
def test_a_controller_that_is_gone_for_good_ends_all_waits_by_name(connected: bool) -> None:
    """Within `patience`, and a look; not when the lease is over, with which the run would fail before the session."""
    with elsewhere("--lease", "10") as (address, send), sw.connect(address, patience="1s") as session:
        if connected:
            connect_in_time(session)
        made = slow(ZERO)
        send("controller", signal.SIGKILL)
        waits_in_vain(made, address)
        session.close(abort=True)


def test_a_controller_that_says_nothing_any_more_is_gone_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connections stay as they are, as when a machine loses its power. A controller that lives is never silent for
    half a lease, and this is longer than `patience`."""
    monkeypatch.setattr(port, "LOOK", 0.1)
    with elsewhere("--lease", "6") as (address, send), sw.connect(address, patience="1s") as session:
        connect_in_time(session)
        made = slow(ZERO)
        send("controller", signal.SIGSTOP)
        waits_in_vain(made, address)
        session.close(abort=True)


def test_a_controller_that_is_quiet_for_longer_than_patience_but_lives_is_there() -> None:
    with elsewhere("--lease", "10") as (address, _), sw.connect(address, patience="10ms") as session:
        connect_in_time(session)
        sw.synthetic("long", devices=ALL, duration="3s")(ZERO).block_until_ready()
        assert session.driver.now() > 3e9


def connect_in_time(session: sw.Session) -> None:
    """A busy machine may take longer for this than the test has patience."""
    driver: Any = session.driver
    driver.patience, patience = 60.0, driver.patience
    quick(ZERO).block_until_ready()
    driver.patience = patience


def waits_in_vain(made: sw.Array, address: str) -> None:
    begun = time.monotonic()
    with pytest.raises(sw.errors.Unreachable, match=f"the controller at {address} has been out of reach"):
        made.block_until_ready()
    assert time.monotonic() - begun < 5
