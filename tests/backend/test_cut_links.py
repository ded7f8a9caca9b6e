"""Each kind of link between real processes is cut in one direction. Whoever waits hears of it while it is cut, and all
goes on when it is back. The link is mended only when the wait has ended: a wait that lasts until then would never end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import seaway as sw
from tests.chaos.network import free_port
from tests.chaos.watching import Watch, standing

from .real import Program

LEASE = 2.0
BOUND = LEASE + 3.0  # seconds until a wait has ended; PATIENCE is when the test says that it never will
PATIENCE = 60.0
OTHER = {"up": "down", "down": "up"}
VALUES = np.arange(4, dtype=np.float32)


class Proxied:
    """A controller and two islands of one host with timed devices. Proxies: `client`, `agent-0`, `agent-1` to the
    controller, and `peers-0`, `peers-1` to the agents."""

    def __init__(self, folder: Path) -> None:
        self.watch = Watch()
        self.port = free_port()
        self._programs = [Program(
            folder / "controller.log", "controller", "--bind", f"127.0.0.1:{self.port}", "--islands", "2",
            "--hosts", "1", "--devices-per-host", "2", "--lease", str(LEASE), "--verbose",
        )]  # fmt: skip
        self._programs[0].line()
        for host in (0, 1):
            port = free_port()
            self._programs.append(Program(
                folder / f"agent-{host}.log", "agent", "--controller", self.through(f"agent-{host}", self.port),
                "--host", str(host), "--bind", f"127.0.0.1:{port}", "--advertise", self.through(f"peers-{host}", port),
                "--platform", "timed", "--devices", "2",
            ))  # fmt: skip

    def stands(self) -> None:
        """Wait until all agents have joined."""
        self.watch.begin(f"127.0.0.1:{self.port}")
        end = time.monotonic() + PATIENCE
        while (missing := standing(self.watch.status)) != "":
            assert time.monotonic() < end, missing
            time.sleep(0.05)

    def through(self, name: str, port: int) -> str:
        return f"127.0.0.1:{self.watch.proxy(name, port)}"

    def set(self, name: str, mode: str) -> None:
        self.watch.do(self.watch.proxies[name].set(mode))

    @contextmanager
    def cut(self, name: str, way: str) -> Iterator[None]:
        """Between agents either may have dialled the other, so the same direction is cut in both proxies."""
        ways = {name: way} | ({"peers-0": OTHER[way]} if name == "peers-1" else {})
        for each in ways:
            self.set(each, ways[each])
        try:
            yield
        finally:
            for each in ways:
                self.set(each, "")

    def stop(self) -> None:
        for program in self._programs:
            program.end()
        self.watch.stop()


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    found = Proxied(tmp_path_factory.mktemp("cut"))
    try:
        found.stands()
        yield found
    finally:
        found.stop()


class Calls:
    """One call for each kind of link; each ends with an error if that link is cut."""

    def __init__(self) -> None:
        self.meshes = [sw.slice(devices=2, island=f"i{island}", name=f"i{island}") for island in (0, 1)]
        self.steps = [
            sw.synthetic(f"step {island}", devices=mesh, duration="1ms") for island, mesh in enumerate(self.meshes)
        ]

    def put(self) -> None:
        sw.put(VALUES, devices=self.meshes[1]).block_until_ready()

    def step(self) -> None:
        self.steps[1](VALUES).block_until_ready()

    def move(self) -> None:
        self.steps[1](sw.put(self.steps[0](VALUES), devices=self.meshes[1])).block_until_ready()

    def all(self) -> None:
        for call in (self.put, self.step, self.move):
            call()


def good(call: Callable[[], None]) -> None:
    """Call again until it succeeds."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            call()
            return
        except sw.errors.RunError:
            assert time.monotonic() < end


CLIENT = ("client", "step", "client-lost")
AGENT = ("agent-1", "step", "host-lost")
CONTENTS = ("peers-1", "put", "client-lost")
MOVE = ("peers-1", "move", "host-lost")
FULL = pytest.mark.full


@pytest.mark.parametrize(
    ("link", "called", "code", "way"),
    [
        pytest.param(*CLIENT, "up", id="client to controller"),
        pytest.param(*CLIENT, "down", id="controller to client", marks=FULL),
        pytest.param(*AGENT, "up", id="agent to controller", marks=FULL),
        pytest.param(*AGENT, "down", id="controller to agent", marks=FULL),
        pytest.param(*CONTENTS, "up", id="client to agent", marks=FULL),
        pytest.param(*CONTENTS, "down", id="agent to client"),
        pytest.param(*MOVE, "up", id="agent to agent", marks=FULL),
        pytest.param(*MOVE, "down", id="agent from agent"),
    ],
)
def test_a_wait_ends_while_its_link_is_cut_one_way(
    proxied: Proxied, link: str, called: str, code: str, way: str
) -> None:
    address = f"grpc://127.0.0.1:{proxied.watch.proxy('client', proxied.port)}"
    with sw.connect(address, timeout=f"{PATIENCE}s", patience=f"{PATIENCE}s"):
        calls = Calls()
        good(calls.all)
        begun = time.monotonic()
        with proxied.cut(link, way), pytest.raises(sw.errors.RunError) as raised:
            getattr(calls, called)()
        seconds = time.monotonic() - begun
        print(f"{link} {way}: {raised.value} ({seconds:.1f} s, bound {BOUND} s)")
        assert seconds < BOUND + 5, "with time for a machine that does other work"
        assert raised.value.code == code
        if link == "client":
            assert "the controller is unreachable: nothing" in str(raised.value)
        good(calls.all)
