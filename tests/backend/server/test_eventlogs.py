"""A controller's events, recorded in a file and replayed: the same commands to the byte, or an error that says
why."""

from __future__ import annotations

import argparse
import asyncio
import gzip
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backend.server import eventlogs
from core.controller import Config
from core.model.errors import Impossible
from core.model.topology import small
from core.record.eventlog import Diverged, LogError, replayed
from core.schedule.policy import Fifo, Policy, Ready, RoundRobin, Stride, Ticket
from seaway.cli import main, replaying
from tests.backend.cluster import chain, cluster, wait_until
from tests.backend.real import real
from tests.backend.test_faults import register, runs

from .test_control import TINY
from .test_operations import _get, figure
from .test_programs import seaway


class Oldest(Policy):
    """A policy of a user's own program."""

    def pick(self, ready: Ready, now: int) -> Ticket:
        return ready.best()


class Picky(Oldest):
    def __init__(self, taste: object) -> None:
        self.taste = taste


def recorded(folder: Path) -> Path:
    """The log of a real controller with two hosts and two clients. One of the hosts dies."""
    path = folder / "run.log"

    async def drive() -> None:
        async with cluster(folder, policy=Stride, record=path) as found:
            users = [found.user("ann"), found.user("bob")]
            for user in users:
                program = user.call(lambda client, now: client.register(chain(3, 4), now))
                submitted = [user.submit(program, TINY.tobytes()) for _ in range(5)]
                assert (await user.ended(submitted[-1].run)).blame is None
            await found.agents[1].stop()
            await wait_until(lambda: not found.server.node.connected(1))
            (folder / "order").write_text(found.server.controller.order.island(0))

    asyncio.run(drive())
    return path


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("recorded"))


def test_a_replay_gives_the_same_commands_to_the_byte(log: Path) -> None:
    found = eventlogs.read(log)
    assert found.about.policy == "core.schedule.policy.stride:Stride"
    kinds = {type(entry.event).__name__ for entry in found.entries}
    assert kinds >= {"Connected", "MessageReceived", "WorldUp"}
    controller = eventlogs.machine_of(found.about)
    assert sum(1 for _ in replayed(found, controller)) == len(found.entries)
    assert controller.order.island(0) == log.with_name("order").read_text()
    assert not controller.state.runs, "all of them have ended, as they did then"


def test_the_commands_of_seaway_show_a_log_and_replay_it(
    log: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["log", str(log), "--kind", "MessageReceived", "--last", "60"]) == 0
    said = capsys.readouterr().out
    assert "policy core.schedule.policy.stride:Stride; 1 island, 2 hosts, 4 devices" in said
    assert "Open(name='ann'" in said
    assert "Wakeup" not in said
    assert main(["replay", str(log), "--save", str(tmp_path / "trace")]) == 0
    said = capsys.readouterr().out
    assert "the same commands, to the byte" in said
    assert "order of island 'i0'" in said
    assert list((tmp_path / "trace").iterdir())
    middle = next(index for index, entry in enumerate(eventlogs.read(log).entries) if "Submit" in str(entry.event))
    assert main(["replay", str(log), "--stop", str(middle)]) == 0
    said = capsys.readouterr().out
    assert "island 'i0': running, epoch 0, hosts 0-1" in said
    assert "client 1 'ann'" in said or "client 2 'ann'" in said
    assert "run 1, 'chain'" in said


def test_a_log_that_cannot_be_replayed_is_refused_by_name(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*words: str) -> str:
        assert main(list(words)) == 1
        return capsys.readouterr().err

    assert "cannot be read: No such file" in refused("replay", str(tmp_path / "none"))
    (tmp_path / "text").write_text("hello")
    assert "is no event log, or is damaged" in refused("log", str(tmp_path / "text"))
    (tmp_path / "packed").write_bytes(gzip.compress(b"hello"))
    assert "this is not an event log" in refused("log", str(tmp_path / "packed"))
    data = log.read_bytes()
    (tmp_path / "short").write_bytes(data[: len(data) // 2])
    assert "was cut short" in refused("replay", str(tmp_path / "short"))
    harmed = gzip.decompress(data)
    (tmp_path / "harmed").write_bytes(gzip.compress(harmed[:2000] + bytes([harmed[2000] ^ 1]) + harmed[2001:]))
    assert "damaged" in refused("replay", str(tmp_path / "harmed"))
    last = len(eventlogs.read(log).entries) - 1
    assert f"events 0 to {last}" in refused("replay", str(log), "--stop", "999999")
    assert "this log has" in refused("log", str(log), "--kind", "Nothing")


def test_an_existing_log_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("")
    with pytest.raises(Impossible, match="is there already"):
        eventlogs.LogFile(tmp_path / "there")
    with pytest.raises(Impossible, match="cannot be written: No such file"):
        eventlogs.LogFile(tmp_path / "none" / "log")


@pytest.mark.parametrize("policy", [Fifo, Stride, lambda: RoundRobin(lead=7)])
def test_a_replay_makes_the_policy_again_with_its_settings(policy: Any) -> None:
    about = eventlogs.about(small(2, 2, 1), Config(window=3), policy, 4)
    again = eventlogs.machine_of(about)
    made = again.state.islands[0].scheduler.policy
    assert type(made) is type(policy())
    assert getattr(made, "lead", None) == getattr(policy(), "lead", None)
    assert (again.config.window, again.incarnation) == (3, 4)


PROGRAM = """
import numpy as np, seaway as sw

class Mine(sw.policies.Policy):
    def pick(self, ready, now):
        return ready.best()

step = sw.synthetic("step", devices=2, duration="1us")
if __name__ == "__main__":
    with sw.local(hosts=2, platform="timed", policy=Mine, record="run.log"):
        x = step(np.float32(0))
        for _ in range(20):
            x = step(x)
        x.block_until_ready()
"""


def test_a_session_with_the_users_own_policy_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert main(["replay", str(tmp_path / "run.log")]) == 1
    assert "policy '__main__:Mine', which cannot be made from here" in capsys.readouterr().err
    mine = f"{tmp_path / 'program.py'}:Mine"
    assert main(["replay", str(tmp_path / "run.log"), "--policy", mine]) == 0
    assert "the same commands, to the byte" in capsys.readouterr().out
    (tmp_path / "program.py").write_text(PROGRAM.replace("best()", "heads()[0]"))
    assert main(["replay", str(tmp_path / "run.log"), "--policy", mine]) == 1
    assert "whose source has changed since" in capsys.readouterr().err


def test_a_policy_that_has_changed_or_cannot_be_made_is_named() -> None:
    about = eventlogs.about(small(2, 2, 1), Config(), Oldest, 0)
    changed = argparse.Namespace(**{name: getattr(about, name) for name in about.__struct_fields__})
    changed.policy_source = "0" * 16
    with pytest.raises(LogError, match="whose source has changed since"):
        eventlogs.machine_of(changed, policy=Oldest)  # type: ignore[arg-type]
    with pytest.raises(LogError, match=r"a log may only name Seaway's .* add --policy FILE\.py:NAME"):
        eventlogs.machine_of(about)
    picky = eventlogs.about(small(2, 2, 1), Config(), lambda: Picky([1]), 0)
    with pytest.raises(LogError, match=r"add --policy FILE\.py:NAME"):
        eventlogs.machine_of(picky)
    again = eventlogs.machine_of(picky, policy=lambda: Picky([2]))
    assert isinstance(again.state.islands[0].scheduler.policy, Picky)


def test_a_difference_is_shown_with_the_events_before_it(log: Path) -> None:
    found = eventlogs.read(log)
    controller = eventlogs.machine_of(found.about)
    other = type(controller)(controller.cluster, Stride, Config(window=1), starts=controller.starts)
    recent: list[Any] = []
    with pytest.raises(Diverged) as diverged:
        recent.extend(replayed(found, other))
    text = "\n".join(replaying.difference(found, diverged.value, recent[-3:]))
    assert "the first difference is at event" in text
    assert text.count(" ms  ") == 4
    assert "replayed:" in text


# --- a disk that is full --------------------------------------------------------------------------------------

ROOM = 1 << 15  # bytes that a file may have; the kernel refuses more, as with a full disk


async def test_a_log_that_cannot_be_written_any_more_is_reported_everywhere_and_the_service_goes_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "record" / "ev.1"
    options = ("--record", str(path.parent), "--metrics-port", "0")
    async with asyncio.timeout(120), real(tmp_path, options=options) as found:
        place = found.figures()
        user = found.user()
        program = register(user, 50)
        await runs(user, program)
        assert (await found.status())["record"] == {"file": str(path), "lost": ""}
        assert figure(await asyncio.to_thread(_get, place), "seaway_record_lost") == 0
        resource.prlimit(found.controller.process.pid, resource.RLIMIT_FSIZE, (ROOM, ROOM))
        while not (status := await found.status())["record"]["lost"]:
            await runs(user, program)
        lost = status["record"]["lost"]
        assert lost == (
            f"the event log {path} could not be written any more (File too large), and nothing has been recorded "
            f"since: the part that was written can be read with --partial"
        )
        await runs(user, program)
        assert figure(await asyncio.to_thread(_get, place), "seaway_record_lost") == 1
        assert f"NOT RECORDED: {lost}" in await asyncio.to_thread(seaway, "status", found.address)
        assert found.controller.said().count(lost) == 1
        found.controller.signal(signal.SIGTERM)
        assert await found.controller.ended() == 0
        assert found.controller.said().splitlines()[-1] == f"seaway controller: {lost}"
        assert "Traceback" not in found.controller.said()
    assert path.stat().st_size <= ROOM
    with pytest.raises(LogError, match="was cut short"):
        eventlogs.read(path)
    assert len(eventlogs.read(path, partial=True).entries) > 100


SESSION = """
import resource, sys, warnings
import numpy as np
import seaway as sw
step = sw.synthetic("step", devices=2, duration="1us")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with sw.local(hosts=1, devices_per_host=2, platform="timed", record=sys.argv[1]) as s:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
        x = np.float32(0)
        while not s.driver.server.unrecorded():
            for _ in range(100):
                y = step(x)
            y.block_until_ready()
        y = step(x).block_until_ready()
print(*[f"{each.filename} {each.lineno}: {each.message}" for each in caught])
"""


def test_the_end_of_a_session_says_that_its_log_is_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    done = subprocess.run(
        [sys.executable, "-c", SESSION, str(path)], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.match(rf"<string> \d+: the event log {path} could not be written any more", done.stdout)
    assert done.stderr.count("could not be written any more") == 1, "as a line of the log, which is shown by default"
    assert "Traceback" not in done.stderr
