"""A mistake in the options of a session is reported at once and by name, before any process is started."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import seaway as sw
from backend.node.calls import CallError
from seaway.sessions.connected.driver import RealDriver

ROOT = Path(__file__).parents[3]
Call = Callable[[], Any]
local: Any = sw.local
connect: Any = sw.connect

WRONG: list[tuple[Call, type[Exception], str]] = [
    (lambda: local(config={"window": "x"}), ValueError, "config: window='x': Expected `int`, got `str`"),
    (lambda: local(config={"window": 0}), ValueError, "config: window=0: at least 1"),
    (lambda: local(config=3), TypeError, "config=3: a dict of settings, or a Config"),
    (lambda: local(timeout="a"), ValueError, r"sw.local\(timeout='a'\): seconds, more than 0"),
    (lambda: local(timeout=0), ValueError, r"sw.local\(timeout=0\): seconds"),
    (lambda: connect("head", timeout="a"), ValueError, r"sw.connect\(timeout='a'\): seconds"),
    (lambda: connect("head", patience=-1), ValueError, r"sw.connect\(patience=-1\): seconds"),
    (lambda: local(devices=4), TypeError, "has no option 'devices'.*did you mean 'devices_per_host'"),
    (lambda: local(host=4), TypeError, "has no option 'host'.*did you mean 'hosts'"),
    (lambda: local(platform="gpu"), ValueError, r"'cuda', 'tpu' or 'timed' \(did you mean 'cuda'\?\)"),
    (lambda: local(dispatch="both"), ValueError, r"sw\.local\(dispatch='both'\): 'parallel'"),
    (lambda: local(retries=None), ValueError, r"sw\.local\(retries=None\): a number; 0 for none"),
    (lambda: local(record=3), TypeError, r"sw\.local\(record=3\): the path of a file"),
    (lambda: connect("head", dispatch=1), ValueError, r"sw\.connect\(dispatch=1\): 'parallel'"),
    (lambda: connect("head", client=0), ValueError, r"sw\.connect\(client=0\): a client's name is a text"),
    (lambda: connect("head", token=12), TypeError, r"sw\.connect\(token=int\): a token is a text"),
    (lambda: connect("head", ca=0), TypeError, r"sw\.connect\(ca=0\): the path of a file"),
    (lambda: local(2, platform="cuda"), ValueError, "hosts=2.*one process has all cuda devices of a machine"),
    (lambda: local(platform="tpu", islands=2), ValueError, "islands=2.*start `seaway controller`"),
]


@pytest.mark.parametrize(("ask", "kind", "said"), WRONG)
def test_invalid_sessions_are_refused_by_name(ask: Call, kind: type[Exception], said: str) -> None:
    begun = time.monotonic()
    with pytest.raises(kind, match=said):
        ask()
    assert time.monotonic() - begun < 1


class RefusingController:
    """A driver as far as code is concerned. Its controller refuses the code."""

    _address = "head:29000"

    def __init__(self, wrong: CallError) -> None:
        self._loop = self
        self._head = self
        self._wrong = wrong

    def keep(self, blobs: list[bytes]) -> None:
        raise self._wrong

    def do(self, work: None) -> None:
        """Pretend that it has been done."""


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, sw.errors.Impossible),  # too large to travel
        (grpc.StatusCode.RESOURCE_EXHAUSTED, sw.errors.Impossible),  # or to be kept
        (grpc.StatusCode.UNAVAILABLE, sw.errors.Unreachable),
    ],
)
def test_code_that_the_controller_refuses_is_not_reported_as_a_connection_problem(
    code: grpc.StatusCode, kind: type[Exception]
) -> None:
    driver: Any = RefusingController(CallError("the code has 99 bytes, and 9 may travel", code))
    blob: Any = type("Code", (), {"blob": b""})
    with pytest.raises(kind, match="99 bytes"):
        RealDriver._keep(driver, blob)


# --- the command line, without a controller -----------------------------------------------------------------------


@pytest.fixture
def nobody() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


@pytest.mark.parametrize("words", [("status",), ("cancel",)])
def test_a_command_that_gets_no_answer_names_the_address(
    words: tuple[str], nobody: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from seaway.cli import main, status

    monkeypatch.setattr(status, "PATIENCE", 0.3)
    assert main([*words, nobody, *(["me"] if words == ("cancel",) else [])]) == 1
    said = capsys.readouterr().err
    assert f"no controller answers at {nobody} (waited 0.3 s). Is `seaway controller`" in said
    assert "Deadline" not in said


def test_an_agent_that_finds_no_controller_says_which_it_looks_for(nobody: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "seaway", "agent", "--controller", nobody, "--platform", "timed"],
        cwd=ROOT, stderr=subprocess.PIPE, text=True,
    ) as agent:  # fmt: skip
        assert agent.stderr is not None
        try:
            assert agent.stderr.readline() == (
                f"seaway agent: no answer yet from a controller at {nobody}; still asking\n"
            )
        finally:
            agent.kill()


# --- devices that compute nothing ---------------------------------------------------------------------------------


@pytest.mark.full
def test_timed_devices_have_no_contents_and_the_error_names_devices_that_have() -> None:
    with sw.local(platform="timed"):
        result = sw.jit(lambda x: x + 1, devices=1)(np.ones(3, np.float32))
        with pytest.raises(
            sw.errors.NoContents, match=r"only take the time.*platform='cpu'.*sw.simulate\(values="
        ):
            np.asarray(result)
        assert result.is_ready()
        assert "ready at" in repr(result)
