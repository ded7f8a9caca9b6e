"""A child process that dies is restarted, and one line reports it. A child that never comes up is given up, with its
last output."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seaway as sw
from backend.admin.children import ROOT, Child, Children
from backend.admin.supervising import MOST, SOON, VAINLY, Supervisor, came_up, pause
from tests.backend.real import children_of
from tests.backend.server.test_programs import PATIENCE, status, up

HINT = "if nobody did this, memory ran out"


class Watched:
    """Child processes that end when the test says so, under a clock that the test turns."""

    def __init__(self, folder: Path) -> None:
        self.now, self.told, self.starts = 0.0, list[str](), 0
        self._folder = folder
        self.children = Children(folder)
        self.supervisor = Supervisor(self.children, self.told.append, lambda: self.now)

    def start(self, name: str = "agent-0", comes_up: bool = True) -> Child:
        """A process that lives until its standard input closes, or dies of an error."""
        self.starts += 1
        code = "print('hosts 0 at x', flush=True); input()" if comes_up else "raise SystemExit('no luck\\nat all')"
        log = self._folder / f"{name}.log"
        since = log.stat().st_size if log.exists() else 0
        with log.open("ab") as words:
            process = subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=words, stderr=words, bufsize=0
            )
        return Child(name, process, log, since)

    def look(self) -> None:
        """Look once, after every child that ends by itself has ended."""
        for child in self.supervisor.all:
            if "no luck" in str(child.process.args):
                child.process.wait(PATIENCE)
        self.supervisor.look()

    def killed(self) -> None:
        (child,) = self.supervisor.all
        while not came_up(child):
            time.sleep(0.01)
        child.process.kill()
        child.process.wait(PATIENCE)
        self.supervisor.look()

    def end(self) -> None:
        for child in self.supervisor.all:
            self.children.end(child)


def test_a_killed_child_starts_again_at_once_and_after_growing_pauses_if_it_is_killed_soon_again(
    tmp_path: Path,
) -> None:
    watched = Watched(tmp_path)
    try:
        first = watched.start()
        watched.supervisor.keep(first, watched.start)
        watched.look()
        assert (watched.starts, watched.told) == (1, [])
        watched.killed()
        assert watched.starts == 2
        assert watched.told == [f"agent-0 (pid {first.pid}) was ended by SIGKILL: {HINT}; it is started again"]
        assert watched.supervisor.all != [first]
        for wait in (0.5, 1, 2, 4, 4, 4):  # however often that happens: the child has come up each time
            starts = watched.starts
            watched.killed()
            assert watched.told[-1].endswith(f"was ended by SIGKILL: {HINT}; it is started again in {wait:g} s")
            watched.now += wait - 0.01
            watched.look()
            assert watched.starts == starts, "not before its time"
            watched.now += 0.01
            watched.look()
            assert watched.starts == starts + 1
        watched.now += SOON
        watched.killed()
        assert watched.told[-1].endswith("; it is started again"), "a child that has lived is started at once"
        assert watched.supervisor.given_up() == []
    finally:
        watched.end()


def test_a_child_that_never_comes_up_is_given_up_and_its_last_output_is_shown(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.supervisor.keep(watched.start(comes_up=False), lambda: watched.start(comes_up=False))
    for _ in range(20):
        watched.look()
        watched.now += MOST
    assert watched.starts == VAINLY
    assert len(watched.told) == VAINLY
    assert re.fullmatch(r"agent-0 \(pid \d+\) ended with status 1 \(at all\); it is started again", watched.told[0])
    assert f"it ended {VAINLY} times in a row before it had come up, and is given up" in watched.told[-1]
    assert watched.told[-1].endswith("agent-0.log, ends: no luck\nat all"), "of the last process alone"
    assert [child.name for child in watched.supervisor.given_up()] == ["agent-0"]
    watched.end()


def test_nothing_starts_after_the_end_and_a_start_that_fails_is_tried_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    room: list[bool] = []

    def start() -> Child:
        if not room:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return watched.start(comes_up=False)

    watched.supervisor.keep(watched.start(comes_up=False), start)
    watched.look()
    assert watched.told[-1] == ("agent-0 cannot be started: Resource temporarily unavailable; the next try is in 4 s")
    room.append(True)
    watched.now += MOST
    watched.look()
    assert watched.starts == 2
    watched.supervisor.stop()
    watched.look()
    watched.now += 2 * MOST
    watched.look()
    assert watched.starts == 2
    watched.end()


def test_pauses_between_restarts_grow_up_to_a_bound() -> None:
    assert [pause(deaths) for deaths in range(1, 5)] == [0, 0.5, 1, 2]
    assert pause(1000) == MOST


# --- seaway up ----------------------------------------------------------------------------------------------------


def test_up_restarts_killed_processes_and_a_client_with_retries_goes_on(tmp_path: Path) -> None:
    """Kill the agent, then the controller. Sums over all devices stay right throughout."""
    total = sw.jit(lambda x: x.sum() + x, devices=2, name="total")
    given = np.arange(4, dtype=np.float32)

    def right(rounds: int) -> None:
        for _ in range(rounds):
            assert np.asarray(total(given)).tolist() == [6, 7, 8, 9]

    with up(tmp_path, "--devices-per-host", "2", "--record", str(tmp_path / "record")) as (process, address):
        (controller,) = children_of(process.pid, "controller")
        (agent,) = children_of(process.pid, "agent")
        with sw.connect(f"grpc://{address}", retries=8):
            right(3)
            os.kill(agent, signal.SIGKILL)
            right(20)
            assert children_of(process.pid, "agent") not in ([], [agent])
            os.kill(controller, signal.SIGKILL)
            right(20)
            assert children_of(process.pid, "controller") not in ([], [controller])
        found: dict[str, Any] = status(address)
        (island,) = found["islands"]
        assert (island["phase"], [host["connected"] for host in island["hosts"]]) == ("running", [True])
        assert found["incarnation"] == 1, "it is the same cluster, and knows its agent"
        assert found["record"] == {"file": str(tmp_path / "record" / "ev.2"), "lost": ""}
    said = (tmp_path / "err").read_text()
    for name, pid in (("agent-0", agent), ("controller", controller)):
        assert f"seaway up: {name} (pid {pid}) was ended by SIGKILL: {HINT}; it is started again\n" in said


BROKEN = """
import os, sys
if os.path.exists({flag!r}) and "backend.agent" in sys.orig_argv:
    os.write(2, b"this installation is broken\\n")
    os._exit(7)
"""


@pytest.mark.full
def test_up_ends_when_all_agents_are_given_up_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flag = tmp_path / "flag"
    (tmp_path / "sitecustomize.py").write_text(BROKEN.format(flag=str(flag)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with up(tmp_path, "--platform", "timed") as (process, _):
        (agent,) = children_of(process.pid, "agent")
        flag.touch()
        os.kill(agent, signal.SIGKILL)
        assert process.wait(PATIENCE) == 1
    said = (tmp_path / "err").read_text()
    assert "ended with status 7 (this installation is broken); it is started again in " in said
    assert f"it ended {VAINLY} times in a row before it had come up, and is given up" in said
    assert "seaway: the cluster cannot go on: agent-0 never came up again" in said
    assert said.count("hosts 0 at") == 0, "the output of an earlier process is not this one's"


def test_a_state_folder_that_another_up_uses_is_refused(tmp_path: Path) -> None:
    with up(tmp_path, "--platform", "timed") as (process, _):
        done = subprocess.run(
            [sys.executable, "-m", "seaway", "up", "--bind", "127.0.0.1:0", "--state", str(tmp_path)],
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert f"--state {tmp_path} is in use by process {process.pid}: end that one first" in done.stderr
        assert process.poll() is None
        assert len(children_of(process.pid, "controller")) == 1


def test_a_process_that_execs_another_program_passes_on_no_open_socket() -> None:
    """C++ libraries do not close their sockets on exec. Without the fix, each restart of an agent would keep one more
    port."""
    lists = (
        # the last one is the listing's own handle
        "import os; print(sorted(int(fd) for fd in os.listdir('/dev/fd'))[:-1])"
    )
    script = (
        "import socket, sys; from backend.admin.children import become; "
        "held = socket.create_server(('127.0.0.1', 0)); held.set_inheritable(True); "
        f"become([sys.executable, '-c', {lists!r}])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    assert ran.stdout.strip() == "[0, 1, 2]"
