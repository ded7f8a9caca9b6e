"""Faults of real processes: each is killed, stopped or told to end, and runs under way end by name or go on."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import seaway as sw
from core.client.client_limits import Submitted
from core.protocol import effects as e

from .cluster import COST, User, chain
from .real import Program, Real, await_end, children_of, real

TINY = np.arange(8, dtype=np.float32).tobytes()
STEPS = 1500  # steps of a long run: a millisecond each
LEAF = 7  # of a tree of eight hosts, two below each


def register(user: User, length: int, island: str = "", cost: int = COST) -> int:
    wanted = chain(length, 4, island=island, cost=cost)
    program: int = user.call(lambda client, now: client.register(wanted, now))
    return program


def endless(user: User) -> int:
    """A program whose runs end only by faults within the test: without any, they take half a minute."""
    return register(user, STEPS, cost=20 * COST)


async def runs(user: User, program: int) -> None:
    run = user.submit(program, TINY)
    assert (await user.ended(run.run)).blame is None


async def begun(found: Real, user: User, program: int) -> Submitted:
    """Submit a run, and wait until it is under way."""
    run = user.submit(program, TINY)
    await found.until(lambda status: any(island["under_way"] for island in status["islands"]))
    return run


# --- the controller -----------------------------------------------------------------------------------------------


async def test_a_controller_that_is_killed_and_restarted_finds_its_hosts_and_clients(tmp_path: Path) -> None:
    async with real(tmp_path, lease=20.0) as found:
        user = found.user()
        short, long = register(user, 3), endless(user)
        await runs(user, short)
        kept = user.submit(short, TINY)
        assert (await user.ended(kept.run)).blame is None
        under_way = await begun(found, user, long)
        found.controller.kill()
        await asyncio.sleep(0.3)
        found.start_controller()
        blame = await user.blamed(under_way.run)
        assert (blame.code, blame.cause) == ("restart", "the controller was restarted while this ran")
        await runs(user, short)
        status = await found.ready()
        assert status["incarnation"] == 1
        assert [client["name"] for client in status["clients"]] == ["ann"]
        agents = [host["agent"] for island in status["islands"] for host in island["hosts"]]
        assert agents == ["host-0", "host-1"]
        assert status["islands"][0]["platform"] == "timed"
        again = user.submit(short, kept.results[0])  # buffers on the hosts still belong to their client
        assert (await user.ended(again.run)).blame is None
        other = found.user("bob")  # a new client learns where the hosts are
        await runs(other, register(other, 2))
        assert not user.failures


async def test_a_controller_that_pauses_longer_than_a_lease_does_not_claim_a_restart(tmp_path: Path) -> None:
    async with real(tmp_path) as found:
        user = found.user()
        short, long = register(user, 3), endless(user)
        await runs(user, short)
        under_way = await begun(found, user, long)
        found.controller.signal(signal.SIGSTOP)
        lost = await user.until(lambda effect: isinstance(effect, e.LogLine) and "out of reach" in effect.text)
        assert lost.text.startswith("the controller is out of reach: nothing heard for 2")
        blame = await user.blamed(under_way.run)
        assert blame.code == "client-lost"
        assert blame.cause.startswith("the controller is unreachable: nothing heard for 2")
        found.controller.signal(signal.SIGCONT)
        assert (await found.ready())["incarnation"] == 0


# --- hosts --------------------------------------------------------------------------------------------------------


async def test_a_host_that_pauses_for_less_than_its_lease_loses_nothing(tmp_path: Path) -> None:
    async with real(tmp_path, lease=3.0) as found:
        user = found.user()
        run = await begun(found, user, register(user, STEPS))
        found.agents[1].signal(signal.SIGSTOP)
        await asyncio.sleep(0.7)
        found.agents[1].signal(signal.SIGCONT)
        assert (await user.ended(run.run)).blame is None
        assert (await found.status())["islands"][0]["epoch"] == 0


async def test_a_host_that_pauses_for_longer_is_given_up_and_returns_as_a_new_one(tmp_path: Path) -> None:
    async with real(tmp_path, lease=2.5) as found:
        user = found.user()
        run = await begun(found, user, endless(user))
        found.agents[1].signal(signal.SIGSTOP)
        blame = await user.blamed(run.run)
        assert (blame.code, blame.host, blame.program) == ("host-lost", 1, "chain")
        found.agents[1].signal(signal.SIGCONT)
        await found.ready(epoch=1)
        assert "restarting" in found.agents[1].said()
        await runs(user, register(user, 3))


@pytest.mark.parametrize("fidelity", ["exact", "cohort"])
def test_a_simulated_leaf_of_the_tree_is_missed_when_its_lease_is_over(fidelity: Any) -> None:
    """Not first when a gang takes too long: each host has a connection to the controller, beside the tree."""
    crash = [sw.fault("1ms", "crash_host", LEAF)]
    tree: Any = {"profile": "seaway", "fidelity": fidelity, "config": {"fanout": 2}}
    with sw.simulate("B", hosts=8, faults=crash, **tree) as session:
        step = sw.synthetic("chain", devices=64, duration="1s", steps=STEPS)
        with pytest.raises(sw.errors.RunError, match=f"host-lost] host {LEAF} of island"):
            step(np.float32(0)).block_until_ready()
        assert session.now() == pytest.approx(10, rel=0.01)


async def test_so_is_a_real_one(tmp_path: Path) -> None:
    async with real(tmp_path, hosts=8, devices_per_host=1, lease=5.0, options=("--fanout", "2")) as found:
        user = found.user()
        program = user.call(lambda client, now: client.register(chain(STEPS, 8, cost=100 * COST), now))
        run = await begun(found, user, program)
        found.agents[LEAF].kill()
        blame = await user.blamed(run.run)
        assert (blame.code, blame.host) == ("host-lost", LEAF)


async def test_a_host_that_is_told_to_end_is_drained_first(tmp_path: Path) -> None:
    async with real(tmp_path) as found:
        user = found.user()
        run = user.submit(register(user, 100), TINY)
        await runs(user, register(user, 1))
        found.agents[1].signal(signal.SIGTERM)
        assert await found.agents[1].ended() == 0
        assert (await user.ended(run.run)).blame is None
        assert "Traceback" not in found.agents[1].said()
        found.agent(1)
        await found.ready()
        await runs(user, register(user, 2))


NO_DRAIN = "it was told to end, and no controller is connected that could drain it: it ends now"


async def test_hosts_without_their_controller_end_when_they_are_told_to(tmp_path: Path) -> None:
    """So does a host that was being drained. (A host that waited for its grace period would return 1.)"""
    async with real(tmp_path) as found:
        user = found.user()
        await begun(found, user, endless(user))
        found.agents[0].signal(signal.SIGTERM)
        await found.until(lambda status: status["islands"][0]["phase"] != "running" or "drain" in str(status))
        assert found.agents[0].process.poll() is None
        found.controller.kill()
        assert await found.agents[0].ended() == 0
        found.agents[1].signal(signal.SIGTERM)
        assert await found.agents[1].ended() == 0
        for agent in found.agents.values():
            assert NO_DRAIN in agent.said()
            assert "Traceback" not in agent.said()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
@pytest.mark.parametrize("platform", ["timed", "cpu"])
def test_an_agent_that_never_found_a_controller_ends_when_it_is_told_to(
    tmp_path: Path, platform: str, number: int, status: int
) -> None:
    log = tmp_path / "agent.log"
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # it never listens
        at = f"127.0.0.1:{nobody.getsockname()[1]}"
        agent = Program(log, "agent", "--controller", at, "--platform", platform, "--devices", "1")
        try:
            while f"no answer yet from a controller at {at}" not in agent.said():
                assert agent.process.poll() is None, agent.said()
                time.sleep(0.02)
            agent.signal(number)
            assert agent.process.wait(30) == status
            assert "Traceback" not in agent.said()
        finally:
            agent.end()


# --- clients ------------------------------------------------------------------------------------------------------

CLIENT = """
import sys, time
import numpy as np
import seaway as sw
with sw.connect(sys.argv[1], client="victim") as s:
    x = sw.put(np.ones((8, 4), np.float32), sw.slice(2, island="i0"))
    x.block_until_ready()
    print("ready", flush=True)
    time.sleep(60)
"""


async def test_buffers_of_a_killed_client_are_freed_and_other_clients_go_on(tmp_path: Path) -> None:
    async with real(tmp_path, hosts=1, islands=2, lease=2.5) as found:
        user = found.user()
        program = user.call(lambda client, now: client.register(chain(2, 2, island="i1"), now))
        first = user.submit(program, TINY)
        assert (await user.ended(first.run)).blame is None
        user.call(lambda client, now: client.release(first.results, now))
        with (tmp_path / "victim.log").open("w") as said:
            victim = subprocess.Popen(
                [sys.executable, "-c", CLIENT, f"grpc://{found.address}"], stdout=subprocess.PIPE, stderr=said
            )
        assert victim.stdout is not None
        try:
            line = await asyncio.to_thread(victim.stdout.readline)
            assert line, (tmp_path / "victim.log").read_text()
            status = await found.status()
            assert sorted(client["name"] for client in status["clients"]) == ["ann", "victim"]
            assert status["buffers"] > 0
        finally:
            victim.kill()
            victim.wait()
            victim.stdout.close()
        status = await found.until(lambda status: len(status["clients"]) == 1)
        assert status["clients"][0]["name"] == "ann"
        assert status["buffers"] == 0
        mine = user.submit(program, TINY)
        assert (await user.ended(mine.run)).blame is None
        user.call(lambda client, now: client.release(mine.results, now))
        status = await found.until(lambda status: status["buffers"] == 0 and status["runs"] == 0)
        assert [island["epoch"] for island in status["islands"]] == [0, 0]


# --- JAX's own processes, and its cache ---------------------------------------------------------------------------


def summed(session: Any, devices: int) -> Any:
    """A collective over all of an island's devices."""
    total: Any = jax.lax.psum
    step = sw.pmap(lambda x: x + total(x, "all"), "all", devices=sw.slice(devices, name="all"))
    return np.asarray(step(np.arange(devices, dtype=np.float32)))


@pytest.mark.full
async def test_real_devices_keep_their_arrays_when_their_coordination_process_or_controller_is_killed(
    tmp_path: Path,
) -> None:
    async with real(tmp_path, devices_per_host=1, platform="cpu", lease=30.0) as found:

        def coordination() -> int:
            (pid,) = children_of(found.controller.process.pid, "coordination")
            return pid

        def program() -> None:
            with sw.connect(f"grpc://{found.address}") as session:
                kept = sw.put(np.arange(8, dtype=np.float32), sw.slice(2, name="all"))
                kept.block_until_ready()
                assert summed(session, 2).tolist() == [1.0, 2.0]
                os.kill(before := coordination(), signal.SIGKILL)
                asyncio.run(found.ready(epoch=1))
                await_end(before)
                assert summed(session, 2).tolist() == [1.0, 2.0]
                assert np.asarray(kept).tolist() == list(range(8))
                assert "its coordination process has died" in found.controller.said()
                again = coordination()
                found.controller.kill()
                found.start_controller()
                asyncio.run(found.ready())
                asyncio.run(found.until(lambda status: status["clients"]))
                assert np.asarray(kept).tolist() == list(range(8))
                assert summed(session, 2).tolist() == [1.0, 2.0]
                await_end(again)  # it ends with its controller, and no other process does

        await asyncio.to_thread(program)
        assert [agent.process.poll() for agent in found.agents.values()] == [None, None]


@pytest.mark.full
async def test_an_agent_whose_cache_cannot_be_written_works_without_it_and_says_so_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("this is no folder")
    async with real(tmp_path, hosts=1, devices_per_host=1, platform="cpu", lease=5.0) as found:
        found.agents[0].signal(signal.SIGTERM)
        await found.agents[0].ended()
        found.agent(0, "--cache", str(tmp_path / "file" / "cache"))
        await found.ready(epoch=1)

        def program() -> None:
            with sw.connect(f"grpc://{found.address}") as session:
                assert summed(session, 1).tolist() == [0.0]

        await asyncio.to_thread(program)
        assert found.agents[0].said().count("compiled code is not kept") == 1


async def test_code_that_a_controller_has_lost_is_uploaded_to_it_again(tmp_path: Path) -> None:
    """Its disk was full, or has damaged it; then it was restarted, and a host that has lost the code asks for it."""
    async with real(tmp_path, hosts=1, devices_per_host=1, platform="cpu", lease=2.0) as found:

        def program() -> None:
            with sw.connect(f"grpc://{found.address}", retries=4):
                double = sw.jit(lambda x: x * 2, devices=1)
                assert np.asarray(double(np.arange(3.0))).tolist() == [0.0, 2.0, 4.0]
                for epoch, damaged in enumerate((False, True), 1):
                    found.controller.kill()
                    for file in (tmp_path / "state" / "code").iterdir():
                        file.write_bytes(file.read_bytes()[:-1]) if damaged else file.unlink()
                    found.start_controller()
                    found.agents[0].kill()
                    found.agent(0)
                    asyncio.run(found.ready(epoch=epoch))
                    assert np.asarray(double(np.arange(3.0))).tolist() == [0.0, 2.0, 4.0]

        await asyncio.to_thread(program)
