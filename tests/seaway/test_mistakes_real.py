"""Mistakes of beginners on real devices: each is one error, soon, which names what was given and what to do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import seaway as sw
from backend.node.calls import CallError
from seaway.sessions.connected.driver import RealDriver
from tests.command_lines import Refused, refused

P: Any = PartitionSpec
ROOT = Path(__file__).parent.parent.parent
ERRORS = (sw.errors.SeawayError, sw.errors.Impossible, TypeError, ValueError)
Call = Callable[[], Any]
local: Any = sw.local
connect: Any = sw.connect

west = sw.slice(devices=1, island="west")
one, two = sw.slice(devices=1, name="one"), sw.slice(devices=2, name="two")
double = sw.jit(lambda x: x * 2.0, devices=two, name="double")
ONES = np.ones(3, np.float32)


@pytest.fixture(scope="module")
def shared() -> Iterator[sw.Session]:
    with sw.local(hosts=2, devices_per_host=2) as session:
        yield session


# --- starting a session -------------------------------------------------------------------------------------------

NO_SESSION: list[tuple[Call, str]] = [
    (lambda: sw.local(hosts=0), r"sw.local\(hosts=0\): a whole number, at least 1"),
    (lambda: sw.local(devices_per_host=2.0), r"devices_per_host=2.0\): a whole number"),  # type: ignore[arg-type]
    (lambda: sw.local(policy=3), "policy=3: a name"),  # type: ignore[arg-type]
    (lambda: sw.local(policy="stride:x"), "policy 'stride' has no option 'x'; its options: lead"),
    (lambda: sw.local(platform="gpu"), r"sw.local\(platform='gpu'\): 'cpu', 'cuda', 'tpu'"),  # type: ignore[arg-type]
    (lambda: sw.local(memory="2 gigs"), "memory '2 gigs' has an unknown unit"),
    (lambda: sw.local(memory=-1), "memory cannot be -1: it is negative"),
    (lambda: sw.local(config={"windo": 4}), "config has no 'windo'.*did you mean 'window'"),  # type: ignore[arg-type]
    (lambda: sw.connect(29000), r"sw.connect\(29000\): an address is like"),  # type: ignore[arg-type]
    (lambda: sw.connect("head:1", token="a", token_file="b"), "give one of the two"),
    (lambda: sw.connect("head:1", token_file="/nowhere"), "cannot read /nowhere: No such file"),
    (lambda: local(config={"window": "x"}), "config: window='x': Expected `int`, got `str`"),
    (lambda: local(config=3), "config=3: a dict of settings, or a Config"),
    (lambda: local(timeout=0), r"sw.local\(timeout=0\): more than no time"),
    (lambda: connect("head", patience="-1s"), "sw.connect: patience cannot be '-1s': it is negative"),
    (lambda: local(devices=4), "has no option 'devices'.*did you mean 'devices_per_host'"),
    (lambda: local(record=3), r"sw\.local\(record=3\): the path of a file"),
    (lambda: connect("head", dispatch=1), r"sw\.connect\(dispatch=1\): 'parallel'"),
    (lambda: connect("head", client=0), r"sw\.connect\(client=0\): a client's name is a text"),
    (lambda: connect("head", token=12), r"sw\.connect\(token=int\): a token is a text"),
    (lambda: connect("head", ca=0), r"sw\.connect\(ca=0\): the path of a file"),
    (lambda: local(2, platform="cuda"), "hosts=2.*one process has all cuda devices of a machine"),
    (lambda: local(platform="tpu", islands=2), "islands=2.*start `seaway controller`"),
]


@pytest.mark.parametrize(("ask", "said"), NO_SESSION)
def test_invalid_sessions_are_refused_by_name(ask: Call, said: str) -> None:
    begun = time.monotonic()
    with pytest.raises(ERRORS, match=said):
        ask()
    assert time.monotonic() - begun < 5  # the first one may be the first import


def test_a_start_timeout_that_is_too_short_is_named_and_nothing_is_left() -> None:
    with pytest.raises(sw.errors.NotReady, match=r"did not start within 0.01 s"):
        sw.local(timeout="10ms")


def test_an_address_where_nobody_or_another_program_listens_is_refused() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for place in (f"127.0.0.1:{silent.getsockname()[1]}", "127.0.0.1:9"):
            said = f"no controller answers at {place} .*waited 0.5 s.*sw.local"
            with pytest.raises(sw.errors.Unreachable, match=said):
                sw.connect(f"grpc://{place}", timeout="500ms")


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


COMMANDS = [
    (["controller", "--bind", "TAKEN"], "cannot listen on TAKEN: is the port taken?"),
    (["up", "--hosts", "0"], "--hosts 0: at least 1"),
    (["up", "--token-file", "/dev/null"], "/dev/null is empty, and was given to protect the cluster"),
    (["up", "--metrics-port", "x"], "--metrics-port x: a port, or ADDRESS:PORT"),
    (["cancel", "x:y", "ann"], "seaway: cancel 'x:y': an address is like 'grpc://head:29000', or head:29000"),
]


@pytest.fixture(scope="module")
def refusals() -> list[tuple[Refused, str]]:
    """What becomes of each of `COMMANDS`, and the address that is taken."""
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        taken = f"127.0.0.1:{busy.getsockname()[1]}"
        lines = [[word.replace("TAKEN", taken) for word in words] for words, _ in COMMANDS]
        return [(each, taken) for each in refused(lines)]


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=[" ".join(words) for words, _ in COMMANDS])
def test_invalid_commands_are_refused(number: int, refusals: list[tuple[Refused, str]]) -> None:
    (code, errors), taken = refusals[number]
    assert code in (1, 2)
    assert COMMANDS[number][1].replace("TAKEN", taken) in errors
    assert "Traceback" not in errors


def test_a_session_that_was_made_and_not_entered_is_an_error() -> None:
    forgotten = sw.local(platform="timed")
    try:
        with pytest.raises(
            sw.errors.NoSession,
            match=r"There is <sw.Session, local cluster: 1 host, 1 device \(timed\)>, which was made",
        ):
            double(1.0)
    finally:
        forgotten.close()
    with pytest.raises(sw.errors.NoSession, match=r"no devices to run it on\. Open one around it: `with sw\.local"):
        double(1.0)


# --- calls ----------------------------------------------------------------------------------------------------------


def branches(x: Any) -> Any:
    return x if x > 0 else -x


def prints(x: Any) -> Any:
    jax.debug.print("{x}", x=x)
    return x


def asks(x: Any) -> Any:
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), jnp.float32), x)  # type: ignore[no-untyped-call]


LARGE = np.arange(10 << 20, dtype=np.int32)


def closes_over(n: Any) -> Any:
    return jnp.asarray(LARGE)[n]


CALLS: list[tuple[Call, str]] = [
    (lambda: float(sw.jit(lambda x: x, devices=5)(1.0)), r"asks for 5 devices. The nearest that would fit: 4 devices"),
    (lambda: float(sw.jit(lambda x: x, devices=west)(1.0)), "there is island 'i0'.*on island 'west'"),
    (lambda: sw.jit(lambda x: 1 / 0, devices=two, name="zero")(1.0), "division by zero.*sw.jit 'zero' was traced"),
    (lambda: sw.jit(branches, devices=two)(1.0), "the function branches.*jnp.where.*irregular=True.*sw.route"),
    (lambda: sw.jit(lambda x: np.sin(x), devices=two)(1.0), "call jax.numpy, not numpy"),
    (lambda: sw.jit(lambda x: x[x > 0], devices=two)(ONES), "boolean indices.*irregular=True, max_shape"),
    (lambda: sw.jit(prints, devices=two)(1.0), "'prints' calls back into Python .*: return what you want to see"),
    (lambda: sw.jit(asks, devices=two)(1.0), r"'asks' calls back into Python \(pure_callback\)"),
    (lambda: jax.grad(double)(1.0), r"traced by JAX .*sw.jit\(jax.grad\(f\), devices="),
    (lambda: jax.jit(double)(1.0), "double.*argument leaf 0 is traced by JAX"),
    (lambda: sw.jit(lambda x: double(x) + 1, devices=two)(1.0), "from a function of sw.jit, call the plain function"),
    (lambda: sw.program(lambda x: double(x) if x > 0 else x)(1.0), "`>` on .*a program calls computations"),
    (lambda: sw.jit(lambda x: x, devices=two, in_shardings=P("x"))(ONES), "float32.3. does not divide by 2.*2 and 4"),
    (lambda: sw.jit(lambda x: x, devices=two, in_shardings=P("data"))(ONES), "no axis 'data'.*its axes: 'x'"),
    (lambda: sw.synthetic("paid", devices=two, duration="1ms")(1.0), "'paid' is only its cost.*write it with sw.jit"),
    (lambda: sw.jit(closes_over, devices=one)(3), "closes over is part of its code; pass it as an argument"),
    (lambda: float(sw.jit(lambda: jnp.zeros(1 << 40), devices=one)()[0]), r"\[no-memory\] it needs 4.0 TiB"),
    (lambda: bool(double(ONES)), r"bool\(\): only an array of one element"),
]


@pytest.mark.parametrize(("call", "said"), CALLS)
def test_invalid_calls_are_refused(shared: sw.Session, call: Call, said: str) -> None:
    begun = time.monotonic()
    # notes are searched too
    with pytest.raises((*ERRORS, ZeroDivisionError, IndexError, NotImplementedError), match=f"(?s){said}"):
        call()
    assert time.monotonic() - begun < 10
    assert float(double(2.0)) == 4  # the session goes on


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


def spins(x: Any) -> Any:
    return jax.lax.while_loop(lambda c: c[0] < 2_000_000_000, lambda c: (c[0] + 1, c[1] * 1.5), (0, x))[1]


def test_ctrl_c_during_work_on_devices_ends_wait_and_session() -> None:
    endless = sw.jit(spins, devices=one, name="endless")
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    begun: list[float] = []

    def wait() -> None:
        with sw.local():
            x = endless(1.0)
            timer.start()
            begun.append(time.monotonic())
            x.block_until_ready()

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert time.monotonic() - begun[0] < 4


@pytest.mark.full
def test_timed_devices_have_no_contents_and_the_error_names_devices_that_have() -> None:
    with sw.local(platform="timed"):
        result = sw.jit(lambda x: x + 1, devices=1)(np.ones(3, np.float32))
        with pytest.raises(sw.errors.NoContents, match=r"only take the time.*platform='cpu'.*sw.simulate\(values="):
            np.asarray(result)
        assert result.is_ready()
        assert "ready at" in repr(result)
