"""The messages that docs/errors.md quotes are really printed: a mistake causes each, or the source contains it."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seaway as sw
from backend.server import controller_cli
from backend.server.server import Server
from seaway.cli import main

from ..sources import PRODUCT, ROOT, files, source
from .pages import SPAN

PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
CODES, MESSAGES = PAGE.partition("## Codes of failed runs")[2].split("## In a program")
NOT_RUNS = {"peer", "moved", "disk"}  # core replaces them, or logs them, before any user sees them

two = sw.slice(devices=2, name="two")
grid = sw.slice(mesh={"data": 2}, name="grid")
step = sw.synthetic("step", devices=two, duration="1ms")
add = sw.jit(lambda x, y: x + y, devices=two, name="add")
ZERO = np.float32(0)


@sw.program
def branches(x: Any) -> Any:
    return step(x) if x else x


@sw.program
def sums(x: Any) -> Any:
    return step(x) + step(x)


class Broken(sw.policies.Policy):
    def pick(self, ready: Any, now: int) -> Any:
        raise KeyError("nobody")


def small(**options: Any) -> sw.Session:
    return sw.simulate("B", hosts=2, devices_per_host=2, **options)


def inside(call: Callable[[sw.Session], object]) -> Callable[[], object]:
    def done() -> object:
        with small() as s:
            return call(s)

    return done


def to_the_next(call: Callable[[sw.Array], object]) -> Callable[[], object]:
    """Use an array of one session in another."""

    def done() -> object:
        with small():
            x = step(ZERO)
        with small():
            return call(x)

    return done


def forgotten() -> object:
    s = small()
    try:
        return step(ZERO)
    finally:
        s.open().close()


def of_another(s: sw.Session) -> object:
    with s.client("ann"):
        x = step(ZERO)
    with s.client("bob"):
        return step(x)


def cancelled(s: sw.Session) -> object:
    step(ZERO)
    x = step(ZERO)
    x.run.cancel()
    return x.block_until_ready()


def renamed(s: sw.Session) -> object:
    s.client("ann", weight=2)
    return s.client("ann", weight=3)


def twice() -> object:
    s = small()
    with s:
        pass
    return s.open()


def setting(x: Any) -> object:
    x[0] = 1
    return x


MISTAKES: list[Callable[[], object]] = [
    lambda: step(ZERO),
    forgotten,
    inside(lambda s: branches(ZERO)),
    inside(lambda s: sums(ZERO)),
    inside(lambda s: float(step(np.zeros(4, np.float32)))),
    inside(lambda s: step(ZERO) + 1),
    inside(lambda s: setting(step(np.zeros(4, np.float32)))),
    to_the_next(step),
    inside(of_another),
    inside(lambda s: add("a", 1)),
    inside(lambda s: sw.jit(lambda x: None, devices=two)(ZERO)),
    lambda: sw.jit(lambda x: x),
    lambda: sw.slice(devices=4, mesh={"a": 2}),
    inside(lambda s: sw.put(np.zeros(3, np.float32), devices=grid, sharding=grid.sharding("data"))),
    lambda: sw.synthetic("idle", devices=two),
    lambda: sw.synthetic("idle", devices=two, duration="7"),
    inside(renamed),
    inside(lambda s: s.release(2)),  # type: ignore[arg-type]
    twice,
    inside(lambda s: sw.synthetic("wide", devices=64, duration="1ms")(ZERO).block_until_ready()),
    inside(lambda s: sw.synthetic("big", devices=2, duration="1ms", temp="1TiB")(ZERO).block_until_ready()),
    inside(cancelled),
    inside(lambda s: np.asarray(step(ZERO))),
    lambda: sw.simulate("Z"),
    lambda: sw.simulate("A", polcy="stride"),  # type: ignore[call-arg]
    lambda: sw.simulate("A", policy="strid"),
    lambda: sw.simulate("A", policy="stride:leed=3"),
    lambda: sw.simulate("A", policy=dict),  # type: ignore[arg-type]
    lambda: sw.simulate("A", profile="papier"),
    lambda: sw.simulate("A", hosts=0),
    lambda: sw.simulate({"island": [{"hosts": 2, "host": 3}]}),
    lambda: sw.simulate({"island": [{"hosts": 2, "devices_per_host": 2, "kind": "v5e", "torus": [3, 3]}]}),
    lambda: sw.simulate("B", shared=[{"hosts": "0-3", "each": 2, "controller": True}]),
    lambda: sw.connect("http://head"),
    lambda: inside(lambda s: s.trace.gangs(window="10ms"))(),  # type: ignore[arg-type]
    lambda: sw.costs.tpu_costs(lambda x: x, (ZERO,), topology="v3:4x4", mesh={"data": 5}),
]

COMMANDS: list[tuple[Callable[[list[str]], int], list[str]]] = [
    (main, ["simulate", "PROGRAM", "--policy", "fifo:1,2"]),
    (main, ["down", "--state", "nowhere"]),
    (controller_cli.main, ["--bind", "0.0.0.0:0"]),
    (controller_cli.main, ["--bind", "nonsense"]),
    (main, ["up", "--bind", "0.0.0.0:0"]),
    (main, ["up", "--bind", "nonsense"]),
    (main, ["status", "http://x"]),
    (controller_cli.main, ["--token-file", "EMPTY"]),
    (controller_cli.main, ["--ca", "PROGRAM"]),
    (controller_cli.main, ["--token-file", "nowhere"]),
    (controller_cli.main, ["--policy", "nowhere:Policy"]),
    (controller_cli.main, ["--policy", "core.schedule.policy:Nobody"]),
    (controller_cli.main, ["--policy", "core.schedule.policy.fifo:Nobody"]),
    (main, ["simulate", "PROGRAM", "--policy", "nowhere.py:Mine"]),
    (main, ["simulate", "PROGRAM", "--policy", "nowhere.py"]),
    (main, ["parity", "PROGRAM", "--policy", "json:dumps"]),
    (controller_cli.main, ["--cluster", "FILE"]),
]


# --- quoted messages ----------------------------------------------------------------------------------------------


def quoted() -> list[str]:
    """First cells of the tables. Where a message has code in it, `'` stands for its mark."""
    cells = [line.split(" | ")[0] for line in MESSAGES.splitlines() if line.startswith("| `")]
    return [message for cell in cells for message in SPAN.findall(cell)]


def fixed(message: str) -> list[str]:
    """The fixed words of a message, between the parts that differ."""
    return [part for part in re.split(r"\s*…\s*", message.replace("`", "'")) if part]


def says(text: str, words: list[str]) -> bool:
    """Whether the message contains all of these parts, in their order."""
    at = 0
    for part in words:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


@cache
def said_in_source() -> list[str]:
    every = frozenset[str]().union(*(source(path).texts for path in files(*PRODUCT)))
    return [text.replace("`", "'") for text in every if len(text) > 10]


def stands_in_the_source(message: str) -> bool:
    """Whether one text of the source contains all fixed words, in their order."""
    words = fixed(re.sub(r"^\[[a-z-]+\] ", "", message))  # RunError puts its code there
    assert max(map(len, words)) > 5, f"{message!r} quotes next to nothing"
    longest = max(words, key=len)
    return any(says(text, words) for text in said_in_source() if longest in text)


@pytest.fixture(scope="module")
def raised(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The messages of all these mistakes."""
    found = []
    for mistake in MISTAKES:
        with pytest.raises((sw.errors.SeawayError, ValueError, TypeError)) as caught:
            mistake()
        found.append(str(caught.value))
    session = small(policy=Broken).open()
    step(ZERO).block_until_ready()
    with pytest.warns(RuntimeWarning, match="policy Broken was replaced") as warned:
        session.close()
    found += [text for _, text in session.simulation.told if "policy" in text]
    found += [str(each.message) for each in warned]
    found += [refused(command, words, tmp_path_factory.mktemp("commands")) for command, words in COMMANDS]
    return [text.replace("`", "'") for text in found]


def refused(command: Callable[[list[str]], int], words: list[str], folder: Path) -> str:
    """The message of the command, in one line. Nothing of it may start."""

    async def never(server: Server) -> str:
        raise AssertionError("it starts")

    (folder / "program.py").write_text("# nothing\n")
    (folder / "cluster.toml").write_text('nmae = "x"\n')
    (folder / "empty").touch()
    made = {"EMPTY": "empty", "PROGRAM": "program.py", "FILE": "cluster.toml", "nowhere": "nowhere"}
    given = [str(folder / made[word]) if word in made else word for word in words]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(io.StringIO()) as err:
        patch.setattr(Server, "start", never)
        assert command(given) in (1, 2)
    (said,) = err.getvalue().splitlines()
    assert said.startswith("seaway")
    return said


def test_every_mistake_here_is_on_the_page(raised: list[str]) -> None:
    known = [fixed(message) for message in quoted()]
    assert [text for text in raised if not any(says(text, words) for words in known)] == []


def test_every_message_on_the_page_is_printed_somewhere(raised: list[str]) -> None:
    messages = quoted()
    assert len(messages) > 60
    unsaid = [
        message
        for message in messages
        if not stands_in_the_source(message) and not any(says(text, fixed(message)) for text in raised)
    ]
    assert not unsaid, "docs/errors.md quotes messages that do not exist"


def test_every_code_of_a_failed_run_is_on_the_page() -> None:
    rows = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \|", CODES, re.MULTILINE)
    listed = {code for row in rows for code in SPAN.findall(row)}
    there = frozenset[str]().union(*(source(path).codes for path in files(*PRODUCT)))
    assert listed - NOT_RUNS == there - NOT_RUNS


def test_a_quoted_message_that_does_not_exist_is_noticed() -> None:
    assert not stands_in_the_source("… was called by the wrong moon, so …")
    assert stands_in_the_source("will not listen on … unprotected")
