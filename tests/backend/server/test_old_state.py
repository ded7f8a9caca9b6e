"""A controller that is started with an older copy of its state: hosts and clients that know better do not obey it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seaway as sw
from backend.server.controller_cli import main
from tests.backend.real import Real, real

OLD = "this --state is an older copy, or another one"


def put() -> Any:
    kept = sw.put(np.arange(8, dtype=np.float32), sw.slice(1, name="one"))
    kept.block_until_ready()
    return kept


def again(found: Real, *options: str, state: Path | None = None) -> None:
    """The controller is killed and started again, perhaps with a copy of its state."""
    found.controller.kill()
    if state is not None:
        shutil.rmtree(found.folder / "state")
        shutil.copytree(state, found.folder / "state")
    found.start_controller(*options)


def copy(found: Real, name: str) -> Path:
    return Path(shutil.copytree(found.folder / "state", found.folder / name))


async def refused(found: Real) -> None:
    """The operator sees it in the status, in the log, and at the level of errors."""
    status = await found.until(lambda status: status["refused"])
    assert [each["agent"] for each in status["refused"]] == ["host 0"]
    assert OLD in status["refused"][0]["reason"]
    assert "add --forget" in status["refused"][0]["reason"]
    assert any("host 0 does not obey this controller: it has served a start" in text for text in status["said"])
    assert "seaway.controller ERROR host 0 does not obey" in (found.folder / "controller.log").read_text()
    assert not any(host["member"] for host in status["islands"][0]["hosts"])


def is_lost(kept: Any) -> None:
    """Its session has ended by name, and says so to each call."""
    with pytest.raises(sw.errors.SeawayError, match=r"\[restart\] .*started without what this session knows"):
        np.asarray(kept)
    with pytest.raises(sw.errors.SessionClosed, match="started without what this session knows"):
        put()


async def test_an_older_state_is_refused_by_name_and_the_newest_finds_all_and_to_forget_begins_anew(
    tmp_path: Path,
) -> None:
    """The copy is of the first start: the start that it makes has the number of the second, which hosts have served."""
    async with real(tmp_path, hosts=1, devices_per_host=1, platform="cpu", lease=5.0) as found:

        def program() -> None:
            old = copy(found, "old")
            again(found)
            asyncio.run(found.ready())
            with sw.connect(f"grpc://{found.address}"):
                kept = put()
                newest = copy(found, "newest")
                again(found, state=old)
                is_lost(kept)
            asyncio.run(refused(found))
            no_host = pytest.raises(sw.errors.SeawayError, match="no host obeys this controller")
            with sw.connect(f"grpc://{found.address}"), no_host:
                put()
            again(found, state=newest)
            status = asyncio.run(found.ready())
            assert "recovered: 1 buffers found on hosts" in status["said"]
            assert not status["refused"]
            with sw.connect(f"grpc://{found.address}"):
                kept = put()
                again(found, "--forget", state=old)
                is_lost(kept)
            status = asyncio.run(found.ready())
            assert (status["incarnation"], status["refused"], status["buffers"]) == (0, [], 0)
            again(found)  # what it remembers is good for its next start
            asyncio.run(found.ready(epoch=1 << 20))
            with sw.connect(f"grpc://{found.address}"):
                assert np.asarray(put()).tolist() == list(range(8))

        await asyncio.to_thread(program)
        assert found.agents[0].process.poll() is None  # it has begun anew by itself


def test_to_forget_needs_a_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--forget", "--bind", "127.0.0.1:0"]) == 2
    assert "--forget: of which --state FOLDER?" in capsys.readouterr().err
