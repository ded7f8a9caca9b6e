"""A controller that ends while its policy keeps devices free: the next one keeps nothing that nobody asked for."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from seaway.cli import main
from seaway.trace import Trace
from tests.backend.cluster import COST
from tests.backend.real import Real, real
from tests.backend.test_faults import TINY, register, runs

POLICY = f"""
from seaway.policies import Policy, Reserve


class Waits(Policy):
    \"\"\"Long gangs wait for ever; for as long as one waits, its devices are kept for it.\"\"\"

    reserves = True

    def pick(self, ready, now):
        long = [gang for gang in ready.heads() if gang.cost > {COST}]
        return Reserve(long[0]) if long else ready.best()


class Pauses(Policy):
    \"\"\"A gang waits until 300 ms after it could have entered.\"\"\"

    reserves = True

    def pick(self, ready, now):
        gang = ready.best()
        begin = gang.since + 300_000_000
        return gang if now >= begin else Reserve(gang, until=begin)
"""


@asynccontextmanager
async def driven(folder: Path, policy: str, *options: str) -> AsyncIterator[Real]:
    (folder / "mine.py").write_text(POLICY)
    given = ("--policy", f"{folder / 'mine.py'}:{policy}", *options)
    async with asyncio.timeout(120), real(folder, options=given) as found:
        yield found


def kept(status: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(devices, client, program) of all that is reserved."""
    return [
        (each["devices"], each["client"], each["program"])
        for island in status["islands"]
        for each in island["reserved"]
    ]


async def test_a_restarted_controller_keeps_nothing_for_runs_that_the_restart_has_ended(tmp_path: Path) -> None:
    async with driven(tmp_path, "Waits") as found:
        user = found.user()
        short, long = register(user, 3), register(user, 3, cost=20 * COST)
        await runs(user, short)
        waiting = user.submit(long, TINY)
        behind = user.submit(short, TINY)
        assert kept(await found.until(kept)) == [("0-3", "ann", "chain")]
        found.controller.kill()
        found.start_controller()
        for run in (waiting, behind):
            assert (await user.blamed(run.run)).code == "restart"
        status = await found.ready()
        assert (status["incarnation"], kept(status)) == (1, [])
        await asyncio.wait_for(runs(user, short), 10)
        waiting = user.submit(long, TINY)
        assert await found.until(kept)
        user.call(lambda client, now: client.cancel(waiting.run, now))
        await user.ended(waiting.run)
        assert kept(await found.status()) == []
        await asyncio.wait_for(runs(user, short), 10)
        assert not user.failures


async def test_the_end_of_a_reservation_comes_in_each_life_of_a_controller(tmp_path: Path) -> None:
    """It is told to end while devices are kept: the run ends first."""
    async with driven(tmp_path, "Pauses") as found:
        user = found.user()
        program = register(user, 2)
        run = user.submit(program, TINY)
        assert await found.until(kept)
        found.controller.signal(signal.SIGTERM)
        assert (await user.ended(run.run)).blame is None
        assert await found.controller.ended() == 0
        found.start_controller()
        await found.ready()
        await asyncio.wait_for(runs(user, program), 20)


async def test_the_log_of_a_controller_that_was_killed_while_it_kept_devices_is_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "record" / "ev.1"
    async with driven(tmp_path, "Waits", "--record", str(log.parent)) as found:
        user = found.user()
        user.submit(register(user, 1, cost=20 * COST), TINY)
        await found.until(kept)
        size = log.stat().st_size
        while log.stat().st_size == size:  # it is written a little later
            await asyncio.sleep(0.1)
            await found.status()
        found.controller.kill()
    mine = f"{tmp_path / 'mine.py'}:Waits"
    assert main(["replay", str(log), "--partial", "--policy", mine, "--save", str(tmp_path / "trace")]) == 0
    assert "the same commands, to the byte" in capsys.readouterr().out
    trace = Trace.load(tmp_path / "trace")
    assert trace.reservations()[["client", "devices"]].to_numpy().tolist() == [["ann", "0-3"]]
    assert [row["until"] for row in trace.core.rows("reservations")] == [-1], "its end is not known"
