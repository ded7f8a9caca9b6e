"""The programs of a cluster as processes: started, queried, killed, ended."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from seaway.cli import main
from tests.backend.real import children_of, title_of
from tests.command_lines import Refused, refused

PATIENCE = 120.0  # seconds, on a busy machine


def seaway(*words: str, code: int = 0) -> str:
    """What a command line says, in this process."""
    said, wrong = StringIO(), StringIO()
    with redirect_stdout(said), redirect_stderr(wrong):
        found = main(list(words))
    assert found == code, wrong.getvalue()
    return (wrong if code else said).getvalue()


@contextmanager
def up(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a whole cluster. Yields its process, and its controller's address."""
    command = [sys.executable, "-m", "seaway", "up", "--bind", "127.0.0.1:0", "--state", str(folder), *words]
    with (folder / "err").open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    try:
        found = re.search(r"grpc://(\S+)", process.stdout.readline())
        assert found, (folder / "err").read_text()
        yield process, found[1]
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
        process.stdout.close()


def status(address: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(seaway("status", address, "--json"))
    return found


def agents_of(folder: Path) -> list[int]:
    """Processes whose command line names an agent of this cluster's controller."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            pid = int(each.name)
            with suppress(OSError):  # it has ended
                if title_of(pid).startswith("seaway agent ") and folder.name in os.readlink(f"/proc/{pid}/fd/2"):
                    found.append(pid)
    return found


def test_a_cluster_on_one_machine_comes_up_shows_its_status_and_ends(tmp_path: Path) -> None:
    log = str(tmp_path / "record")
    with up(tmp_path, "--platform", "timed", "--hosts", "3", "--islands", "2", "--record", log) as (process, address):
        found = status(address)
        assert [(island["name"], island["phase"], len(island["hosts"])) for island in found["islands"]] == [
            ("i0", "running", 3),
            ("i1", "running", 3),
        ]
        table = seaway("status", f"grpc://{address}")
        assert re.search(r"i1 +running +0 +3/3 +3 +0", table)
        assert len(agents_of(tmp_path)) == 6
        seaway("down", "--state", str(tmp_path))
        assert process.wait(PATIENCE) == 130
    assert agents_of(tmp_path) == []
    assert "no controller answers" in seaway("status", address, code=1)
    assert "nothing that `seaway up --state" in seaway("down", "--state", str(tmp_path), code=1)
    assert "the same commands, to the byte" in seaway("replay", log), "the controller has ended in order"


def test_a_cluster_on_one_machine_takes_a_token_a_window_and_a_port_for_figures(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a word that is known to few", encoding="utf-8")
    words = ("--platform", "timed", "--token-file", str(token), "--metrics-port", "0", "--window", "3")
    with up(tmp_path, *words) as (process, address):
        assert process.stdout is not None
        greeting = process.stdout.readline() + process.stdout.readline()
        assert f"sw.connect('grpc://{address}', token_file='{token}')" in greeting
        assert f"seaway status {address} --token-file {token}\n" in greeting
        figures = re.search(r"^  metrics at (http://127\.0\.0\.1:\d+/metrics)$", greeting, re.MULTILINE)
        assert figures
        with urllib.request.urlopen(figures[1], timeout=PATIENCE) as answer:
            assert b"seaway_" in answer.read()
        assert "the token is wrong or missing" in seaway("status", address, code=1)
        assert "running" in seaway("status", address, "--token-file", str(token))
        (controller,) = children_of(process.pid, "controller")
        assert "--window 3" in title_of(controller)


def test_when_the_parent_is_killed_all_its_processes_end(tmp_path: Path) -> None:
    with up(tmp_path, "--platform", "timed", "--hosts", "2") as (process, _):
        assert len(agents_of(tmp_path)) == 2
        process.kill()
        until = time.monotonic() + PATIENCE
        while agents_of(tmp_path) and time.monotonic() < until:
            time.sleep(0.05)
    assert agents_of(tmp_path) == []


REFUSED = {
    "controller --bind 0.0.0.0:0": "will not listen on 0.0.0.0:0 unprotected",
    "controller --policy strid": "no policy is called 'strid'",
    "controller --policy nothing:Here": "no module named 'nothing' is in the current folder",
    "controller --policy json:Nothing": "module 'json' has no 'Nothing'",
    "controller --bind nonsense": "cannot listen on 'nonsense': an address is like 127.0.0.1:29000",
    "controller --cluster missing.toml": "cannot read missing.toml",
    "controller --hosts 0": "--hosts 0: at least 1",
    "agent --controller 127.0.0.1:1 --token-file missing": "cannot read missing",
    "agent --controller 127.0.0.1:1 --platform cuda": "no cuda device here: JAX finds none",
}


@pytest.fixture(scope="module")
def refusals() -> dict[str, Refused]:
    return dict(zip(REFUSED, refused([line.split() for line in REFUSED]), strict=True))


@pytest.mark.parametrize("line", REFUSED)
def test_an_invalid_command_line_is_refused_with_one_line(line: str, refusals: dict[str, Refused]) -> None:
    code, text = refusals[line]
    assert code == 2
    assert REFUSED[line] in text
    assert "Traceback" not in text


@pytest.mark.parametrize("policy", ["mine:Mine", "mine.py:Mine"])
def test_the_installed_command_finds_a_policy_in_the_current_folder(policy: str, tmp_path: Path) -> None:
    """`-P`: like an installed command, Python does not search the current folder by itself."""
    (tmp_path / "mine.py").write_text(
        "import seaway as sw\n\n\nclass Mine(sw.policies.Policy):\n    def pick(self, ready, now):\n"
        "        return ready.best()\n"
    )
    root = str(Path(__file__).parents[3])
    words = ["-P", "-m", "seaway", "controller", "--bind", "127.0.0.1:0", "--with-parent", "--policy", policy]
    environment = {**os.environ, "PYTHONPATH": root}
    process = subprocess.Popen(
        [sys.executable, *words], cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline()
    _, errors = process.communicate(timeout=PATIENCE)  # its standard input closes, and it ends
    assert line.startswith("controller at 127.0.0.1:"), errors
