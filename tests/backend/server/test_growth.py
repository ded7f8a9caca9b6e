"""A cluster of real processes grows while a JAX program computes on it, and a later start finds it as it has become."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backend.auth import AccessRefused
from backend.server.cluster_file import KEPT, at_start, cluster_in, keep, keep_larger
from backend.server.roles import why_not
from backend.wire import GrowCall
from core.model import Account, Cluster, Impossible, Role, small
from tests.backend.real import Program, Real, real

from .test_programs import seaway, up

PROGRAM = """
import sys, time
from pathlib import Path
import jax.numpy as jnp, numpy as np, seaway as sw

folder, numbers = Path(sys.argv[2]), np.arange(4800, dtype=np.float32)
step = sw.jit(lambda x: x + 1.0, devices=sw.slice(devices=2, name="train"))
wide = sw.jit(lambda x: x * 2.0, devices=sw.slice(devices=6, name="wide"))

def on_all():
    try:
        with sw.connect(f"grpc://{sys.argv[1]}", client="wide"):
            assert np.array_equal(np.asarray(wide(numbers)), 2 * numbers)
        print("wide is right", flush=True)
    except sw.errors.RunError as error:
        print("wide is refused" if "asks for 6 devices" in str(error) else error, flush=True)

with sw.connect(f"grpc://{sys.argv[1]}", client="train") as s:
    x, steps = step(numbers - 1), 0
    on_all()
    while not (folder / "stop").exists():
        x, steps = step(x), steps + 1
        x.block_until_ready()
        print("step", steps, flush=True)
        if (folder / "wide").exists():
            (folder / "wide").unlink()
            on_all()
        time.sleep(0.02)
    assert np.array_equal(np.asarray(x), numbers + steps)
    assert len(s.trace.machines.islands) == 1 and s.trace.machines.islands[0].hosts == 3, s.trace.machines
    print("right", flush=True)
"""
ISLAND = '[[island]]\nname = "i0"\nhosts = {}\ndevices_per_host = 2\n'


async def test_a_program_goes_on_while_hosts_join_and_then_has_a_slice_on_them(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    async with asyncio.timeout(100), real(tmp_path, hosts=2, platform="cpu") as found:
        program = Program(tmp_path / "program", found.address, str(tmp_path), python=("-c", PROGRAM))
        try:
            await _until(program, "wide is refused")
            await _until(program, "step")
            early = found.program("early", "agent", "--controller", found.address, "--island", "i0", "--devices", "2")
            assert await early.ended() == 2
            assert "`seaway grow`, with a file that has more hosts, makes room for it" in early.said()
            file.write_text(ISLAND.format(3))
            assert (await _run("grow", found.address, str(file))).startswith("the cluster has 3 hosts now")
            await _until(program, "step")
            found.program(
                "third", "agent", "--controller", found.address, "--island", "i0", "--name", "third", "--devices", "2"
            )
            await found.ready()
            (tmp_path / "wide").touch()
            await _until(program, "wide is right")
            assert (await _run("drain", found.address, "host-0")).endswith("host 0 has left\n")
            await _until(program, "step")
            (tmp_path / "stop").touch()
            await _until(program, "right")
            await _again(found, file)
        finally:
            program.end()


async def _again(found: Real, file: Path) -> None:
    """What the cluster has become outlives its controller, which is started with the options that it had."""
    found.controller.kill()
    found.start_controller()
    status = await found.until(lambda status: sum(host["member"] for host in status["islands"][0]["hosts"]) >= 2)
    assert [host["agent"] for host in status["islands"][0]["hosts"]] == ["host-0", "host-1", "third"]
    file.write_text(ISLAND.format(1))
    assert "island 'i0' has 1 hosts, not 3: drain hosts" in await _run("grow", found.address, str(file), code=1)
    file.write_text("[[island]")
    assert "cluster.toml is no TOML" in await _run("grow", found.address, str(file), code=1)


async def _run(*words: str, code: int = 0) -> str:
    return await asyncio.to_thread(lambda: seaway(*words, code=code))


async def _until(program: Program, word: str) -> None:
    while word not in await asyncio.to_thread(program.line):
        pass


def test_up_on_a_running_state_grows_it_and_a_later_up_has_all_its_hosts(tmp_path: Path) -> None:
    shape, record = ("--devices-per-host", "2", "--platform", "timed"), tmp_path / "record"
    with up(tmp_path, "--hosts", "2", "--record", str(record), *shape) as (_, address):
        said = seaway("up", "--state", str(tmp_path), "--hosts", "3", *shape)
        assert said.startswith(f"3 hosts, 6 devices at grpc://{address}")
        again = seaway("up", "--state", str(tmp_path), "--hosts", "3", *shape, code=1)
        assert "it has no more hosts than there are, 3" in again
    assert "the same commands" in seaway("replay", str(record)), "growth is in the record"
    with up(tmp_path, "--hosts", "2", *shape) as (_, address):
        assert '"agent": "host-2"' in seaway("status", address, "--json")


# --- what is kept of a cluster that has grown -------------------------------------------------------------------------


def test_a_start_has_what_it_is_given_unless_the_cluster_has_grown_beyond_that(tmp_path: Path) -> None:
    assert at_start(tmp_path, small(2, 2)) == at_start(None, small(2, 2)) == small(2, 2)
    keep(tmp_path, small(3, 2))
    assert at_start(tmp_path, small(2, 2)) == small(3, 2)
    assert at_start(tmp_path, small(4, 2)) == small(4, 2), "it may grow with a start, too"
    assert at_start(tmp_path, small(3, 2)) == small(3, 2), "which has not been until it has begun"
    keep_larger(tmp_path, small(4, 2))
    assert at_start(tmp_path, small(3, 2)) == small(4, 2)


@pytest.mark.parametrize(
    "other", [small(2, 4), small(2, 2, islands=2), cluster_in(ISLAND.format(2).replace("i0", "x").encode(), "x")]
)
def test_a_start_with_other_hosts_is_refused_by_name(tmp_path: Path, other: Cluster) -> None:
    keep(tmp_path, small(3, 2))
    with pytest.raises(AccessRefused, match=r"has grown to island 'i0': 3 hosts x 2 cpu, and the one given now has"):
        at_start(tmp_path, other)


@pytest.mark.parametrize("kept", [b"", b"{}", b'{"islands": []}', b"\xff", b'{"islands": [{"name": "a", "hosts": 0}]}'])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, kept: bytes) -> None:
    (tmp_path / KEPT).write_bytes(kept)
    with pytest.raises(AccessRefused, match=rf"{KEPT} is damaged .*\. Put back a copy of it; or add --forget, once"):
        at_start(tmp_path, small(2, 2))


def test_a_file_that_is_no_cluster_is_refused_by_name() -> None:
    with pytest.raises(Impossible, match="mine: the cluster has no key 'islands'; nearest: 'island'"):
        cluster_in(b"islands = 3", "mine")


@pytest.mark.parametrize(("role", "may"), [("viewer", False), ("user", False), ("operator", True), ("cluster", True)])
def test_growth_is_for_operators(role: Role, may: bool) -> None:
    why = why_not(Account("ann", role), GrowCall(b"", "cluster.toml"), ())
    assert (why == "") is may
    assert may or "Grow needs the role operator" in why
