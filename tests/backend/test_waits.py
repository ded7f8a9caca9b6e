"""What users see of waits: agents that are refused, stalls while they last, and what is compiled where."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path
from typing import Any

from tests.backend.server.test_operations import _get, figure
from tests.backend.server.test_programs import seaway

from .real import Real
from .test_faults import TINY, register


def agrees(found: dict[str, Any], text: str) -> bool:
    """Whether metrics and status agree on the stalls."""
    of_islands = all(
        figure(text, f'seaway_stalled{{island="{each["name"]}"}}') == each["stalled"] == len(each["late"])
        for each in found["islands"]
    )
    return of_islands and figure(text, 'seaway_stalled{island=""}') == found["stalled_elsewhere"]


async def test_a_refused_agent_is_shown_in_status_and_waiting_clients_are_told(tmp_path: Path) -> None:
    found = Real(tmp_path)
    try:
        async with asyncio.timeout(60):
            found.start_controller()
            found.agent(0)
            await found.until(lambda status: status["islands"][0]["phase"] == "running")
            user = found.user()
            program = register(user, 4)
            user.submit(program, TINY)
            await found.until(lambda status: status["waits"])
            wrong = found.program(
                "wrong", "agent", "--controller", found.address, "--host", "1", "--name", "host-1",
                "--platform", "timed", "--devices", "3",
            )  # fmt: skip
            assert await wrong.ended() == 2
            status = await found.until(lambda status: status["refused"])
            (refused,) = status["refused"]
            assert (refused["agent"], refused["island"]) == ("host-1", "i0")
            assert "has 3 devices" in refused["reason"]
            assert 0 <= refused["seconds_ago"] < 30
            told = "agent 'host-1' was refused: agent 'host-1' has 3 devices"
            assert any(told in each["reason"] for each in (*status["waits"], *status["stalled"]))
            shown = await asyncio.to_thread(seaway, "status", found.address)
            assert re.search(r"refused \d+ s ago: agent 'host-1' for island 'i0': ", shown)
            assert told in shown
            assert told in user.remote.awaited()
            assert "was refused" in found.controller.said()
            found.agent(1)
            status = await found.until(lambda status: not status["waits"] and not status["stalled"])
            assert not status["refused"]
    finally:
        await found.stop()


async def test_a_stall_has_a_start_time_and_disappears_when_it_is_over(tmp_path: Path) -> None:
    """A host is stopped for less than a lease."""

    found = Real(tmp_path, lease=30, options=("--metrics-port", "0"))
    try:
        async with asyncio.timeout(90):
            found.start_controller()
            place = found.figures()
            for host in range(2):
                found.agent(host)
            await found.ready()
            user = found.user()
            program = register(user, 4)
            await user.ended(user.submit(program, TINY).run)
            found.agents[1].signal(signal.SIGSTOP)
            run = user.submit(program, TINY).run
            status = await found.until(lambda status: status["stalled"])
            assert agrees(status, await asyncio.to_thread(_get, place))
            (stall,) = status["stalled"]
            assert (stall["client"], stall["island"], stall["hosts"]) == ("ann", "i0", "1")
            assert stall["seconds"] >= 5
            assert status["islands"][0]["late"] == [stall]
            shown = await asyncio.to_thread(seaway, "status", found.address)
            assert re.search(r"stalled for \d+ s: program ", shown)
            found.agents[1].signal(signal.SIGCONT)
            assert (await user.ended(run)).blame is None
            status = await found.until(lambda status: not status["stalled"])
            assert agrees(status, await asyncio.to_thread(_get, place))
            assert status["stalls"] == 1
            assert "stall" not in await asyncio.to_thread(seaway, "status", found.address)
            assert not [line for line in status["said"] if "stall" in line]
    finally:
        await found.stop()
