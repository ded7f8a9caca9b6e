"""`seaway token` and `seaway usage`, with a controller that has accounts, as its people use it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pyarrow.parquet as pq
import pytest

import seaway as sw
from seaway.cli import main
from tests.backend.real import Program


class People:
    """A cluster of one host, with the accounts of ann, a user, and olga, an operator."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.address = "127.0.0.1:0"
        (folder / "cluster.token").write_text("ours")
        tables = ""
        for name, role in (("ann", "user"), ("olga", "operator")):
            assert main(["token", name, "--role", role]) == 0
            table, secret = capsys.readouterr()
            tables += table
            (folder / f"{name}.token").write_text(secret.splitlines()[1])
        (folder / "accounts.toml").write_text(tables)
        self.programs: list[Program] = []
        self.start()
        words = ["--controller", self.address, "--platform", "timed", "--devices", "2"]
        agent = Program(folder / "agent.log", "agent", *words, "--token-file", str(folder / "cluster.token"))
        self.programs.append(agent)
        agent.line()  # it has joined

    def start(self) -> None:
        self.controller = Program(
            self.folder / "controller.log", "controller", "--bind", self.address, "--devices-per-host", "2",
            "--state", str(self.folder / "state"), "--token-file", str(self.folder / "cluster.token"),
            "--accounts", str(self.folder / "accounts.toml"), "--metrics-port", "0",
        )  # fmt: skip
        self.address = self.controller.line().split()[2].rstrip(":")
        figures = re.search(r"http://\S+", self.controller.line())
        assert figures is not None
        self.figures = figures[0]
        self.programs.append(self.controller)

    def connect(self, name: str) -> sw.Session:
        return sw.connect(f"grpc://{self.address}", token_file=self.folder / f"{name}.token", client="train")

    def words(self, name: str) -> list[str]:
        return [self.address, "--token-file", str(self.folder / f"{name}.token")]

    def end(self) -> None:
        for program in self.programs:
            program.end()


@pytest.fixture
def people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[People]:
    found = People(tmp_path, capsys)
    yield found
    found.end()


def work() -> None:
    step = sw.synthetic("step", devices=sw.slice(devices=2), duration="5ms")
    x: Any = np.float32(0)
    for _ in range(4):
        x = step(x)
    x.block_until_ready()


def test_people_work_under_their_accounts_and_see_what_was_used(
    people: People, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with people.connect("ann"):
        work()
        assert main(["status", *people.words("olga"), "--json"]) == 0
        status = json.loads(capsys.readouterr().out)
        assert [(each["name"], each["account"]) for each in status["clients"]] == [("ann/train", "ann")]
    with (
        pytest.raises(sw.errors.SeawayError, match="the highest weight of account 'ann' is 1"),
        people.connect("ann"),
        sw.client("eve", weight=10**6, priority=1000),
    ):
        work()
    table = tmp_path / "usage.parquet"
    assert main(["usage", *people.words("ann"), "--since", "1h", "--parquet", str(table)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^account +device-seconds +bytes in +bytes out +runs$", said, re.MULTILINE)
    assert re.search(r"^ann +\d+\.\d +0 +0 +4$", said, re.MULTILINE)
    (row,) = [each for each in pq.read_table(table).to_pylist() if each["account"] == "ann"]
    assert row["runs"] == 4
    assert row["device_seconds"] > 4 * 0.005 * 2
    with urlopen(people.figures, timeout=20) as answer:
        figures = answer.read().decode()
    assert 'seaway_account_runs_total{account="ann"} 4' in figures
    people.controller.signal(signal.SIGTERM)
    assert people.controller.process.wait(60) == 0
    people.start()
    assert main(["usage", *people.words("ann"), "--since", "all", "--json"]) == 0
    after = {each["account"]: each["used"]["runs"] for each in json.loads(capsys.readouterr().out)}
    assert after["ann"] == 4, "it is known after a restart"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["token", "a/b"], "account 'a/b' has no name for one"),
        (["usage", "--since", "5"], "--since 5: from 1h to 31d"),
        (["usage", "--since", "40d"], "--since 40d: from 1h to 31d"),
    ],
)
def test_wrong_words_are_said_to_be_so(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    assert why in capsys.readouterr().err


def test_a_controller_says_what_is_wrong_with_its_accounts_and_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "accounts.toml"
    for text, why in (
        (b"\xff\x00", "accounts.toml is no TOML"),
        (b"[ann]\nrole = 'admin'", "a role is viewer, user, operator"),
        (b"[ann]\ncertificate = 'a'", "accounts need a token of the cluster's own, too, for agents: --token-file"),
    ):
        file.write_bytes(text)
        command = [sys.executable, "-m", "seaway", "controller", "--bind", "127.0.0.1:0", "--accounts", str(file)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 2
        assert why in ended.stderr
        assert "Traceback" not in ended.stderr
