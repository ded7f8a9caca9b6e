"""A plugin of pytest: chooses tests, and writes each result to a file at once, as a line of JSON.

    {"chosen": 120}                                              what will be run
    {"began": "ArrayTest::test_x"}
    {"ended": "ArrayTest::test_x", "outcome": "passed", "text": ""}

`DOOR_OUT` is that file, and `DOOR_WANTED` one with the names of the tests to run; if it is empty, `DOOR_EVERY` = k
chooses every k-th.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

BROKEN = ("Connection to IFRT proxy server was terminated", "connection was terminated", "GrpcClientSession")
MOST = 4000  # characters of an error's text


class Writer:
    def __init__(self, out: Path, wanted: Path, every: int) -> None:
        self._out, self._wanted, self._every = out, wanted, every
        self._worst: tuple[str, str] = ("passed", "")

    def say(self, **what: object) -> None:
        with self._out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(what) + "\n")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        names = set(self._wanted.read_text(encoding="utf-8").split("\n")) - {""}
        if names:
            items[:] = [item for item in items if name_of(item.nodeid) in names]
        else:
            items[:] = items[:: self._every]
        self.say(chosen=[name_of(item.nodeid) for item in items])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._worst = ("passed", "")
        self.say(began=name_of(nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._worst = "failed", str(report.longreprtext)
        elif report.skipped and self._worst[0] == "passed":
            self._worst = "skipped", str(report.longrepr)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        outcome, text = self._worst
        self.say(ended=name_of(nodeid), outcome=outcome, text=text[-MOST:])
        if outcome == "failed" and any(sign in text for sign in BROKEN):
            os._exit(0)  # all further tests would fail for this reason; the parent sees which are left


def name_of(nodeid: str) -> str:
    """Without the file, which is the same for all tests of a process."""
    return nodeid.partition("::")[2]


def pytest_configure(config: Any) -> None:
    out, wanted = Path(os.environ["DOOR_OUT"]), Path(os.environ["DOOR_WANTED"])
    config.pluginmanager.register(Writer(out, wanted, int(os.environ["DOOR_EVERY"])))
