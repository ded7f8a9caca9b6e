"""The interface that the library needs of a backend is one `Port` for each client: here one without network or
devices."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Mapping
from types import FrameType
from typing import Any

import numpy as np
import pytest

import seaway as sw
from core import protocol as p
from core.client.client import Client
from core.client.client_limits import Blocked, Limits
from core.model.program import Computation, Program
from core.model.topology import small
from seaway.dashboard import LiveSource
from seaway.graph.signature import Signature
from seaway.sessions import caller
from seaway.sessions.array_groups import ClientBuffer
from seaway.sessions.port import Driver, Late, Port, Submitted

two = sw.slice(devices=2)
step = sw.synthetic("step", devices=two, duration="1us")
ZERO = np.float32(0)


class LoopbackPort:
    """A client's machine whose controller answers when the client waits: every run ends, the first one first."""

    def __init__(self, name: str, limits: Limits) -> None:
        self.client = Client(name, small(1, 1), limits=limits)
        self.tell: Callable[[p.Command], None] = lambda effect: None
        self.tick: Callable[[], None] = lambda: None
        self.submitted: Submitted | None = None
        self.calls: list[Any] = []
        self.unanswered: list[Any] = []
        self.time = 0
        self.waits: list[str] = []
        self.blocked = False
        self.refuse = ""  # runs end with this cause
        self.offered: list[Any] = []
        self._feed(p.Connected(p.CONTROLLER))
        self._feed(p.MessageReceived(p.CONTROLLER, p.Opened(1, 0)))

    def _feed(self, event: p.Event) -> None:
        for effect in self.client.handle(event, self.time):
            if isinstance(effect, p.Send):
                message: Any = effect.message
                for call in message.calls if isinstance(message, p.Calls) else (message,):
                    self.calls.append(call)
                    self.unanswered.append(call)
            else:
                self.blocked = self.blocked and not isinstance(effect, p.Unblocked)
                self.tell(effect)

    def answer(self) -> None:
        if not self.unanswered:
            self.time += self.client.limits.linger
            self._feed(p.Wakeup())
            return
        match self.unanswered.pop(0):
            case p.Submit(run=run):
                note: Any = p.Ended(run, p.Blame("user", self.refuse) if self.refuse else None)
            case p.Put(buffer=buffer):
                note = p.ContentsReady((buffer,))
            case p.Get(request=request):
                note = p.Refused("get", request, p.Blame("refused", "there is no data plane here"))
            case _:
                return
        self._feed(p.MessageReceived(p.CONTROLLER, p.ClientMessages((note,))))

    # --- the interface ------------------------------------------------------------------------------------------

    def now(self) -> int:
        return self.time

    def call(self, act: Any) -> Any:
        while True:
            self.time += 1
            answer = act(self.client, self.time)
            self._feed(p.CallsMade())
            if not isinstance(answer, Blocked):
                return answer
            self.waits.append(answer.reason)
            self.blocked = True
            while self.blocked:
                self.answer()

    def note(self, act: Callable[[Client, int], object]) -> None:
        act(self.client, self.time)
        self._feed(p.CallsMade())

    def wait(self, over: Callable[[], bool], what: str, late: Late | None = None, until: int | None = None) -> None:
        self.waits.append(what)
        if late is not None and not over():
            self.note(late)
        while not over():
            self.answer()

    def sleep(self, nanoseconds: int) -> None:
        self.time += nanoseconds
        if self.unanswered:
            self.answer()

    def offer(self, buffer: ClientBuffer, content: Any, again: bool = False) -> None:
        self.offered.append(content)

    def unreadable(self, buffer: ClientBuffer) -> Exception | None:
        return None

    def contents(self, buffer: ClientBuffer, request: int) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        self.client.close(self.time)


class LoopbackDriver:
    """A driver of such clients."""

    title = "nothing at all"

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.ports: dict[str, LoopbackPort] = {}

    def join(self, name: str, weight: int, priority: int) -> LoopbackPort:
        return self.ports.setdefault(name, LoopbackPort(name, self.limits))

    def price(self, signature: Signature) -> Computation:
        return Computation(signature.name, signature.key, 1)

    def spawn(self, name: str, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def joined(self, thread: threading.Thread) -> None:
        thread.join()

    def drive(self, name: str, steps: Generator[Any, Any, Any]) -> Any:
        return list(steps)

    def now(self) -> int:
        return max((port.time for port in self.ports.values()), default=0)

    def sleep(self, nanoseconds: int) -> None:
        pass

    def trace(self) -> Any:
        return None

    def policies(self) -> Mapping[str, str]:
        return {"i0": "Fifo"}

    def live_source(self, over: Callable[[], bool]) -> LiveSource:
        raise NotImplementedError

    def costs(self) -> list[dict[str, Any]]:
        return []

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


def session(limits: Limits | None = None) -> tuple[sw.Session, LoopbackDriver]:
    driver = LoopbackDriver(limits)
    return sw.Session(driver), driver


def kinds(port: LoopbackPort) -> list[str]:
    return [type(call).__name__ for call in port.calls]


def test_port_and_driver_are_the_whole_interface_to_a_backend() -> None:
    port: Port = LoopbackPort("a", Limits())
    driver: Driver = LoopbackDriver()
    assert {name for name in dir(Port) if not name.startswith("_")} <= set(dir(port))
    assert {name for name in dir(Driver) if not name.startswith("_")} <= set(dir(driver))


def test_a_program_is_registered_once_and_then_called_by_its_number() -> None:
    s, driver = session()
    with s:
        for _ in range(3):
            step(ZERO)
    assert kinds(driver.ports["main"])[1:5] == ["Register", "Submit", "Submit", "Submit"]
    register = driver.ports["main"].calls[1]
    assert isinstance(register, p.Register)
    assert isinstance(register.ir, Program)
    assert [register.ir.name, register.ir.slices[0].name] == ["step", "slice0"]


def test_one_program_too_many_removes_the_least_recent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "PROGRAMS", 2)
    made = [sw.synthetic(f"f{number}", devices=two, duration="1us") for number in range(3)]
    s, driver = session(Limits(pipe=64, max_programs=2))
    with s:
        for each in (*made, made[0]):
            sw.block_until_ready(each(ZERO))
    wanted = ["Register", "Submit", "Register", "Submit", *["Unregister", "Register", "Submit"] * 2]
    assert [kind for kind in kinds(driver.ports["main"]) if kind != "Release"][1:] == wanted


def test_results_have_names_before_the_controller_answers() -> None:
    s, driver = session()
    with s:
        x = step(step(ZERO))
        assert not driver.ports["main"].waits
        assert not x._buffer.ready_at >= 0
        x.block_until_ready()
        assert driver.ports["main"].waits == ["client 'main' waits for the result of 'step'"]


def test_a_blocked_call_is_made_again() -> None:
    s, driver = session(Limits(max_runs=2, pipe=1))
    with s:
        kept = [step(ZERO) for _ in range(5)]
        assert driver.ports["main"].waits == ["2 runs have not ended"] * 3
        sw.block_until_ready(kept)
    assert kinds(driver.ports["main"]).count("Submit") == 5


def test_a_large_constant_is_put_once() -> None:
    table = np.ones(8192, np.float32)
    add = sw.jit(lambda x, y: x + y, devices=two, name="add")
    f = sw.program(lambda v: add(v, table), name="f")
    s, driver = session()
    with s:
        for _ in range(3):
            f(ZERO)
        for _ in range(3):
            add(ZERO, table)
    assert len(driver.ports["main"].offered) == 1 + 3


def test_a_call_that_takes_the_last_result_enters_few_functions() -> None:
    """`x = step(x)` in the user's thread, without the connection: Python calls, and the files that they are in."""
    found: list[str] = []

    def note(frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        ours = frame.f_globals.get("__name__", "").startswith(("seaway.", "core."))
        if event == "call" and ours and code.co_name != "<listcomp>":  # which Python 3.11 calls
            found.append(code.co_filename)

    s, _ = session(Limits(pipe=1000))
    with s:
        x = step(step(step(ZERO)))
        sys.setprofile(note)
        try:
            x = step(x)
        finally:
            sys.setprofile(None)
    assert 20 < len(found) <= 27
    assert len(set(found)) <= 13


def test_a_call_is_sent_with_the_ends_that_it_waited_for() -> None:
    s, driver = session()
    with s:
        step(step(ZERO)).block_until_ready()
        step(ZERO)
    submits = [call for call in driver.ports["main"].calls if isinstance(call, p.Submit)]
    assert [call.waited for call in submits] == [(), (), (2,)]


def test_errors_quote_the_users_own_names() -> None:
    s, driver = session()
    with s:
        x = step(ZERO)
        driver.ports["main"].refuse = "it divided by zero"
        with pytest.raises(sw.errors.RunError, match="it divided by zero") as caught:
            x.block_until_ready()
        assert caught.value.code == "user"
        driver.ports["main"].refuse = ""
        y = step(ZERO)
        with pytest.raises(sw.errors.RunError, match="no data plane"):
            np.asarray(y)
