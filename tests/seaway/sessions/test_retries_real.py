"""`retries=` with real processes that are killed; and a get that is under way while its controller is restarted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import seaway as sw
from backend.wire.call_messages import Status
from tests.backend.real import PATIENCE, Real, real

pytestmark = pytest.mark.full  # real processes, some killed
LARGE = np.arange(4096, dtype=np.float32)  # too large to ride in a call
BOTH = sw.slice(devices=2, name="both")
TURNS = 1_500_000  # of a loop that takes a second or so
loop: Any = jax.lax.fori_loop


@sw.jit(devices=BOTH)
def slow(x: Any) -> Any:
    return loop(0, TURNS, lambda _, y: y + 1, x) - TURNS + x.sum()


@sw.program(retries=3)
def chained(x: Any) -> Any:
    return slow(slow(x))


def expected(x: Any) -> Any:
    return x + x.sum()


def wait_until(over: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not over():
        assert time.monotonic() < end
        time.sleep(0.02)


def under_way(session: sw.Session) -> bool:
    """Whether some gang is under way."""
    driver: Any = session.driver
    status = json.loads(driver._loop.do(driver._head.ask(Status())).json)
    return any(island["under_way"] for island in status["islands"])


def close(result: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(result), wanted, rtol=1e-4)


def test_a_killed_host_costs_only_time() -> None:
    with sw.local(hosts=2) as session:
        driver: Any = session.driver
        first = chained(LARGE)
        second = chained(first)  # reads what is to be made again
        wait_until(lambda: under_way(session))
        os.kill(driver.agents[1].pid, signal.SIGKILL)
        close(second, expected(expected(expected(expected(LARGE)))))
        close(first, expected(expected(LARGE)))
        assert first.run is not None
        assert first.run.tries >= 1


def driven(folder: Path, work: Callable[[Real, Any], None], **options: Any) -> None:
    async def drive() -> None:
        async with (
            asyncio.timeout(120),
            real(folder, devices_per_host=1, platform="cpu", lease=30.0, **options) as found,
        ):
            ask = asyncio.get_running_loop()

            def wait(what: Any) -> Any:
                return asyncio.run_coroutine_threadsafe(what, ask).result(PATIENCE)

            await asyncio.to_thread(work, found, wait)

    asyncio.run(drive())


def test_a_killed_controller_costs_only_time(tmp_path: Path) -> None:
    def work(found: Real, wait: Any) -> None:
        with sw.connect(f"grpc://{found.address}", retries=1) as session:
            kept = sw.put(LARGE, BOTH)
            kept.block_until_ready()
            result = slow(kept)
            wait_until(lambda: under_way(session))
            found.controller.kill()
            found.start_controller()
            close(result, expected(LARGE))
            assert result.run is not None
            assert result.run.tries == 1

    driven(tmp_path, work)


def test_a_get_that_is_under_way_meanwhile_is_asked_again(tmp_path: Path) -> None:
    def work(found: Real, wait: Any) -> None:
        with sw.connect(f"grpc://{found.address}") as session:
            kept = sw.put(LARGE, BOTH)
            kept.block_until_ready()
            read: list[Any] = []
            found.agents[0].signal(signal.SIGSTOP)  # so that the contents cannot come yet
            reader = threading.Thread(target=lambda: read.append(np.asarray(kept)))
            reader.start()
            client = session.main._port.client
            wait_until(lambda: client._retries._gets)
            found.controller.kill()
            found.start_controller()
            found.agents[0].signal(signal.SIGCONT)
            reader.join(PATIENCE)
            assert not reader.is_alive()
            np.testing.assert_array_equal(read[0], LARGE)

    driven(tmp_path, work)
