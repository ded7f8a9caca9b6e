"""The control plane over real gRPC, with devices that only take time: calls, contents, order, faults, strangers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from backend.auth.access import Access
from backend.node.calls import CallError
from backend.streams import StreamRefused, dial
from core.model.program import Sharding, SliceSpec, Value
from core.protocol import effects as e
from tests.backend.cluster import chain, cluster, wait_until

TINY = np.arange(8, dtype=np.float32)


async def test_a_program_runs_on_all_hosts(tmp_path: Path) -> None:
    async with cluster(tmp_path, hosts=4) as found:
        user = found.user()
        program = user.call(lambda client, now: client.register(chain(3, 8), now))
        runs = [user.submit(program, TINY.tobytes()) for _ in range(20)]
        for each in runs:
            assert (await user.ended(each.run)).blame is None
        assert [found.devices(host).gangs for host in found.agents] == [60] * 4
        assert found.server.node.carried == [0, 0]


async def test_contents_travel_directly_between_client_and_hosts(tmp_path: Path) -> None:
    """Timed devices keep no contents, so zeros of the right size come back, and none of them pass through the
    controller."""
    async with cluster(tmp_path) as found:
        user = found.user()
        value = Value((1 << 16,), "float32", 0, Sharding(((0,),)))
        array = np.ones(1 << 16, np.float32)

        def put(client: object, now: int) -> object:
            name = client.put(value, SliceSpec("all", 4), now)  # type: ignore[attr-defined]
            user.remote.offer(name).give(array)
            return name

        buffer = user.call(put)
        request = user.call(lambda client, now: client.get(buffer, now))
        await user.until(lambda effect: isinstance(effect, e.Received) and effect.blame is None)
        assert await wait_until(lambda: user.remote.taken(request) is not None or None)
        assert found.server.node.carried == [0, 0]
        assert sum(agent.node.carried[0] for agent in found.agents.values()) == array.nbytes


async def test_a_host_that_is_cut_off_for_less_than_its_lease_loses_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user()
        program = user.call(lambda client, now: client.register(chain(4, 4), now))
        runs = []
        for number in range(40):
            runs.append(user.submit(program, TINY.tobytes()))
            if number % 10 == 5:
                for outbox in list(found.server.node._outboxes.values()):
                    outbox.close()  # all connections of the controller
            await asyncio.sleep(0.002)
        for each in runs:
            assert (await user.ended(each.run)).blame is None


async def test_a_host_that_dies_fails_its_runs_by_name_and_a_new_one_takes_its_place(tmp_path: Path) -> None:
    async with cluster(tmp_path, lease=1_000_000_000) as found:
        user = found.user()
        program = user.call(lambda client, now: client.register(chain(2000, 4), now))
        first = user.submit(program, TINY.tobytes())
        # before that, it would wait for the host
        await wait_until(lambda: found.devices(1).gangs)
        await found.agents[1].stop()
        blame = await user.blamed(first.run)
        assert (blame.code, blame.host) == ("host-lost", 1)
        assert blame.program == "chain"
        await found.agent(1)
        await found.ready()
        short = user.call(lambda client, now: client.register(chain(2, 4), now))
        second = user.submit(short, TINY.tobytes())
        assert (await user.ended(second.run)).blame is None


async def test_an_agent_that_asks_for_a_taken_or_unknown_place_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path, islands=2) as found:
        with pytest.raises(CallError, match="an agent named 'host-1' is here already"):
            await found.agent(1)
        with pytest.raises(CallError, match="host 1 is here already: agent 'host-1'"):
            await found.agent(1, name="another")
        with pytest.raises(CallError, match="host 0 is one of island 'i0', not of 'i1'"):
            await found.agent(0, name="x", island="i1")
        with pytest.raises(CallError, match="there is no host 9: the cluster has hosts 0-3"):
            await found.agent(9)
        with pytest.raises(CallError, match="no island is called 'i7'"):
            await found.agent(-1, name="y", island="i7")
        with pytest.raises(CallError, match="has no free host with 2 devices"):
            await found.agent(-1, name="z")


async def test_no_peer_can_speak_as_a_host_or_as_another_client(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user()
        program = user.call(lambda client, now: client.register(chain(1, 4), now))
        run = user.submit(program, TINY.tobytes())
        await user.ended(run.run)
        known = user.remote.node.passes[f"client/{user.remote.client.number}"]
        for address, name, proof in (
            (found.server.address, "host/0", "0" * 64),
            (found.server.address, "client/1", known),
            (found.agents[0].address, "host/1", known),
            (found.agents[0].address, "client/77", known),
            (found.agents[0].address, "nonsense", known),
        ):
            with pytest.raises(StreamRefused, match=f"no process here is called '{name}'") as refused:
                await dial(address, Access(), name, proof)
            assert refused.value.kind == "name"
