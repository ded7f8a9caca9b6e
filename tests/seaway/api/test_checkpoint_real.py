"""Checkpoints of real sessions: written by the hosts, restored on clusters of other shapes, and when a host fails."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tensorstore
from jax.sharding import PartitionSpec

import seaway as sw
from backend.wire.call_messages import Status
from tests.backend.checkpoint.saved import contents as contents_of
from tests.backend.checkpoint.saved import save as save_step
from tests.backend.real import Real

pytestmark = pytest.mark.full  # real processes

P: Any = PartitionSpec
PATIENCE = 60.0
checkpoint = sw.checkpoint
A = sw.slice(mesh={"data": 2, "model": 2}, island="i0", name="A")
B = sw.slice(mesh={"data": 4}, island="i1", name="B")
TABLE = np.arange(64 * 48, dtype=np.float32).reshape(64, 48)
LARGE = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)

next_of = sw.jit(
    lambda x: x * 1.5 + 1, devices=A, in_shardings=P("data", "model"), out_shardings=P("data", "model"),
    donate_argnums=0,
)  # fmt: skip


@pytest.fixture(scope="module")
def shared() -> Iterator[sw.Session]:
    """Two islands of two hosts of two devices."""
    with sw.local(hosts=2, devices_per_host=2, islands=2) as session:
        yield session


def state() -> Any:
    x = sw.put(TABLE, devices=A, sharding=P("data", "model"))
    key = sw.jit(lambda n: jax.random.split(jax.random.key(n), 4), devices=A, out_shardings=P("data"))(7)
    half = sw.jit(lambda y: y.astype("bfloat16"), devices=B, out_shardings=P("data"))(x)
    return {"x": x, "more": [key, half], "n": 3}


def test_arrays_on_two_islands_are_saved_and_restored_elsewhere(shared: sw.Session, tmp_path: Path) -> None:
    saved = checkpoint.save(tmp_path, state(), step=7)
    assert int(saved) == 7
    assert checkpoint.latest(tmp_path) == 7
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path / "7" / "x")}}
    np.testing.assert_array_equal(tensorstore.open(spec).result().read().result(), TABLE)
    like = state()
    homes = {"x": B, "more": [B, A], "n": A}
    splits = {"x": P(None, "data"), "more": None, "n": None}
    found = checkpoint.restore(tmp_path, like, devices=homes, sharding=splits)
    assert (found["x"].slice, found["x"].sharding.spec, found["more"][0].sharding.spec) == (B, P(None, "data"), P())
    np.testing.assert_array_equal(np.asarray(found["x"]), TABLE)
    np.testing.assert_array_equal(np.asarray(found["more"][1]), TABLE.astype(found["more"][1].dtype))
    draw = sw.jit(lambda keys: jax.random.normal(keys[2], (3,)), devices=B)
    want = jax.random.normal(jax.random.split(jax.random.key(7), 4)[2], (3,))
    np.testing.assert_array_equal(np.asarray(draw(found["more"][0])), want)
    assert int(found["n"]) == 3


def test_steps_go_on_during_a_save_and_may_donate_the_saved_arrays(shared: sw.Session, tmp_path: Path) -> None:
    x, want, saved = sw.put(LARGE, devices=A, sharding=P("data", "model")), [], []
    number = jax.jit(lambda x: x * 1.5 + 1)
    array: Any = LARGE
    for step in range(4):
        saved.append(checkpoint.save(tmp_path, {"x": x}, step=step))
        want.append(np.asarray(array))
        for _ in range(3):
            x, array = next_of(x), number(array)
    sw.block_until_ready(saved)
    for step in range(4):
        found = checkpoint.restore(tmp_path, {"x": x}, step=step)
        np.testing.assert_allclose(np.asarray(found["x"]), want[step], rtol=1e-6)


def test_nothing_is_held_that_the_user_has_dropped(tmp_path: Path) -> None:
    """Not for whether a save has failed, either, which later calls tell."""
    shape_of: Any = jax.ShapeDtypeStruct
    save_step(tmp_path, 1, seed=1)
    with sw.local(devices_per_host=2) as session:
        checkpoint.save(tmp_path, {"x": sw.put(TABLE, devices=2)}, step=2).block_until_ready()
        none_held(session)
        np.testing.assert_array_equal(
            checkpoint.restore(tmp_path, {"x": shape_of((8, 6), "float32")}, step=1, devices=2)["x"], contents_of(1)[0]
        )
        none_held(session)


def none_held(session: sw.Session) -> None:
    driver: Any = session.driver
    session.main.flush()
    end = time.monotonic() + PATIENCE
    while held := json.loads(driver._loop.do(driver._head.ask(Status())).json)["buffers"]:
        assert time.monotonic() < end, f"{held} buffers are held"


def test_no_contents_pass_through_controller_or_client(shared: sw.Session, tmp_path: Path) -> None:
    driver: Any = shared.driver
    x = sw.block_until_ready(sw.put(LARGE, devices=A, sharding=P("data", "model")))
    before = len(shared.trace.transfers())
    checkpoint.save(tmp_path, x).block_until_ready()
    sw.block_until_ready(checkpoint.restore(tmp_path, x, step=0))
    assert len(shared.trace.transfers()) == before
    assert sum(driver.server.node.carried) == 0


def test_a_host_that_cannot_write_is_named_and_the_checkpoint_is_incomplete(shared: sw.Session, tmp_path: Path) -> None:
    """One host's files may not grow, as if its disk were full."""
    driver: Any = shared.driver
    agent = driver.agents[1].process.pid
    x = sw.block_until_ready(sw.put(LARGE, devices=A, sharding=P("data", "model")))
    before = resource.prlimit(agent, resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
    try:
        with pytest.raises(sw.errors.RunError, match="File too large") as error:
            checkpoint.save(tmp_path, x, step=3).block_until_ready()
        run = checkpoint.save(tmp_path, x, step=4).run  # and nobody waits for this one
        until = time.monotonic() + PATIENCE
        while not run.done:
            assert time.monotonic() < until
            sw.sleep("10ms")
        with pytest.raises(sw.errors.RunError, match="File too large"):
            checkpoint.save(tmp_path, x, step=5)
    finally:
        resource.prlimit(agent, resource.RLIMIT_FSIZE, before)
    blame = error.value.blame
    assert (blame.code, blame.host, blame.node) == ("checkpoint", 1, "checkpoint.save")
    assert str(tmp_path) in blame.cause
    assert checkpoint.latest(tmp_path) is None
    with pytest.raises(sw.errors.RunError, match=r"there is no step 3|step 3 is not complete"):
        checkpoint.restore(tmp_path, x, step=3).block_until_ready()
    assert int(checkpoint.save(tmp_path, x, step=3)) == 3  # the session goes on


def test_results_of_a_failed_step_are_not_saved(shared: sw.Session, tmp_path: Path) -> None:
    solve = sw.jit(lambda x: x[:5], devices=A, irregular=False)
    x = sw.put(TABLE, devices=A)
    checkpoint.save(tmp_path, solve(x), step=1).block_until_ready()
    many = sw.jit(lambda x: (x, 100), devices=A, irregular=True, max_shape=(8, 48))
    with pytest.raises(sw.errors.RunError):
        checkpoint.save(tmp_path, many(x), step=2).block_until_ready()
    assert checkpoint.latest(tmp_path) == 1


def test_a_save_that_was_killed_is_not_taken_for_complete(tmp_path: Path) -> None:
    """An agent is stopped when it should write, and is then killed. The other one goes on alone."""
    on, one = sw.slice(mesh={"data": 2}, name="on"), sw.slice(devices=1, name="one")
    with sw.local(hosts=2) as session:
        driver: Any = session.driver
        x = sw.block_until_ready(sw.put(LARGE, devices=on, sharding=P("data")))
        checkpoint.save(tmp_path, x, step=1).block_until_ready()
        os.kill(driver.agents[1].process.pid, signal.SIGSTOP)
        saved = checkpoint.save(tmp_path, x, step=2)
        until = time.monotonic() + PATIENCE
        while not list(tmp_path.glob("2.partial-*/value/c/*")):  # the other host has written
            assert time.monotonic() < until
            time.sleep(0.02)
        os.kill(driver.agents[1].process.pid, signal.SIGKILL)
        with pytest.raises(sw.errors.RunError) as error:
            saved.block_until_ready()
        assert error.value.code == "host-lost"
        with pytest.raises(sw.errors.RunError, match="step 2 is not complete"):
            checkpoint.restore(tmp_path, LARGE, step=2, devices=one).block_until_ready()
        found = checkpoint.restore(tmp_path, LARGE, devices=one)
        np.testing.assert_array_equal(np.asarray(found), LARGE)
        assert list(tmp_path.glob("2.partial-*"))
        checkpoint.save(tmp_path, found, step=3).block_until_ready()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "3"]


def test_agents_of_a_cluster_write_only_below_their_folder(tmp_path: Path) -> None:
    there = tmp_path / "there"
    (tmp_path / "log").mkdir()

    def work(found: Real) -> None:
        with sw.connect(f"grpc://{found.address}"):
            on = sw.slice(devices=2)
            x = sw.put(TABLE, devices=on, sharding=P("x"))
            checkpoint.save("run", x, step=1).block_until_ready()
            checkpoint.save(there / "run", x, step=2).block_until_ready()
            assert checkpoint.latest("run") == 2
            np.testing.assert_array_equal(np.asarray(checkpoint.restore("run", x)), TABLE)
            for asked in (tmp_path / "elsewhere", "../elsewhere"):
                with pytest.raises(sw.errors.RunError, match=r"files are written below|without '..'"):
                    checkpoint.save(asked, x).block_until_ready()

    async def drive() -> None:
        found = Real(tmp_path / "log", hosts=2, devices_per_host=1, platform="cpu")
        try:
            found.start_controller()
            for host in range(2):
                found.agent(host, "--checkpoints", str(there))
            await found.ready()
            await asyncio.to_thread(work, found)
        finally:
            await found.stop()

    asyncio.run(drive())
    assert sorted(path.name for path in (there / "run").iterdir()) == ["1", "2"]
    assert not (tmp_path / "elsewhere").exists()
