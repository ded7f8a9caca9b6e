"""What `ps` shows of the processes of a cluster: what they are and which host, then the options that they have."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seaway as sw
from tests.backend.server.test_programs import up

from .real import Real, children_of, title_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

BOTH = sw.slice(2, name="both")
double = sw.jit(lambda x: x * 2, devices=BOTH, name="double")


def comm_of(pid: int) -> str:
    """What `top` shows, 15 bytes at most."""
    return Path(f"/proc/{pid}/comm").read_text().strip()


def only(found: list[int]) -> int:
    assert len(found) == 1
    return found[0]


def test_all_that_up_starts_is_called_what_it_is(tmp_path: Path) -> None:
    with up(tmp_path, "--hosts", "2", "--no-trust-clients") as (process, address):
        with sw.connect(f"grpc://{address}"):
            assert np.asarray(double(np.array([1, 2], np.float32))).tolist() == [2, 4]
        assert title_of(process.pid).startswith("seaway up --bind 127.0.0.1:0 ")
        controller = only(children_of(process.pid, "controller"))
        assert title_of(controller).startswith("seaway controller --bind 127.0.0.1:0 --policy fifo ")
        assert comm_of(controller) == "seaway controll"
        agents = {host: only(children_of(process.pid, f"agent host-{host}")) for host in range(2)}
        for host, agent in agents.items():
            assert title_of(agent).startswith(
                f"seaway agent host-{host} --controller {address} --host {host} --name host-{host} "
            )
            assert comm_of(agent) == "seaway agent ho"
            checkers = children_of(agent, f"checker of agent {agent}")
            assert len(checkers) <= 1
        assert any(children_of(agent, "checker") for agent in agents.values())
        coordination = only(children_of(controller, "coordination"))
        assert title_of(coordination).startswith("seaway coordination --world world/0/0 --members 2 ")
        everyone = [process.pid, controller, coordination, *agents.values()]
        assert not any("python" in title_of(each) for each in everyone)


async def test_an_agent_that_finds_no_controller_is_called_an_agent_and_keeps_its_environment(tmp_path: Path) -> None:
    """Its host's number is not known yet. A long title does not write over what lies behind the command line."""
    found = Real(tmp_path, 1, 1)
    found.address = "127.0.0.1:1"
    try:
        agent = found.agent(0, env={"SEAWAY_TEST": "still here"}).process.pid
        while not title_of(agent).startswith("seaway agent --controller "):
            assert found.agents[0].process.poll() is None
            await asyncio.sleep(0.02)
        assert b"SEAWAY_TEST=still here" in Path(f"/proc/{agent}/environ").read_bytes().split(b"\0")
    finally:
        await found.stop()


def test_the_process_of_a_user_keeps_its_title() -> None:
    before = title_of(os.getpid()), comm_of(os.getpid())
    with sw.local(hosts=2, platform="timed") as session:
        driver: Any = session.driver
        shown = [title_of(child.pid) for child in driver.agents]
        assert (title_of(os.getpid()), comm_of(os.getpid())) == before
    assert len(shown) == 1
    assert re.match(r"seaway agent hosts 0-1 --controller 127\.0\.0\.1:\d+ --name agent-0 ", shown[0])
