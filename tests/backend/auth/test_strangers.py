"""Bytes from strangers: random, almost right or too large, on every call and on streams. They harm no other process."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from backend.auth import access
from backend.auth.access import Access
from backend.node.calls import SERVICE
from backend.server.server import FEW, ControllerNames
from backend.wire import framing, versions
from backend.wire.call_messages import PAIRS
from tests.backend.auth.nonsense import nonsense, opening, said_on_a_stream
from tests.backend.cluster import cluster, wait_until
from tests.backend.test_faults import register, runs

REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)


@pytest.mark.parametrize("count", [1_500, pytest.param(100_000, marks=pytest.mark.full)])
async def test_random_bytes_on_every_call_and_on_streams_harm_no_other_process(tmp_path: Path, count: int) -> None:
    async with cluster(tmp_path) as found:
        user = found.user()
        program = register(user, 1)
        await runs(user, program)
        hosts = found.server.enrolment.agents()
        async with Access().channel(found.server.address) as channel:
            await _call_with_nonsense(channel, count * 9 // 10)
        await _stream_nonsense(found.server.address, "", "", count // 10)
        assert not found.server.failure.done()
        assert {host: agent.name for host, agent in found.server.enrolment.agents().items()} == {
            host: agent.name for host, agent in hosts.items()
        }
        await runs(user, program)
        await wait_until(lambda: len(found.server.controller.state.sessions) == 1)
        assert not user.failures


async def _call_with_nonsense(channel: grpc.aio.Channel, count: int) -> None:
    chance = random.Random(1)
    calls = [channel.unary_unary(f"/{SERVICE}/{kind.__name__}") for kind in PAIRS]
    calls += [channel.unary_unary("/grpc.health.v1.Health/Check")]
    answered = 0

    async def one(number: int) -> None:
        nonlocal answered
        try:
            await calls[number % len(calls)](nonsense(chance), timeout=30, metadata=versions.shown())
        except grpc.aio.AioRpcError as error:
            if error.code() not in REFUSALS:
                raise
        answered += 1

    for first in range(0, count, 50):
        await asyncio.gather(*(one(number) for number in range(first, min(first + 50, count))))
    assert answered == count


async def _stream_nonsense(address: str, name: str, proof: str, count: int) -> None:
    """Opens streams under this name, or under new names of clients, and says nonsense on them."""
    chance = random.Random(2)

    async def one() -> None:
        begun = opening("", name or f"who/{chance.randbytes(16).hex()}", proof=proof)
        with suppress(ConnectionError):  # the stream was cut, as it should be
            async with asyncio.timeout(30):
                assert await said_on_a_stream(address, begun, *(nonsense(chance) for _ in range(3)))

    for _ in range(max(1, count // 3 // 20)):
        await asyncio.gather(*(one() for _ in range(20)))


async def _ask_nonsense(address: str, count: int) -> None:
    chance = random.Random(3)

    async def one() -> None:
        begun = opening("", "", "GangTimesReply") + chance.choice((nonsense(chance), request(chance)))
        with suppress(ConnectionError):
            async with asyncio.timeout(30):
                await said_on_a_stream(address, begun)

    for _ in range(max(1, count // 20)):
        await asyncio.gather(*(one() for _ in range(20)))


def request(chance: random.Random) -> bytes:
    """A request of nonsense."""
    said = nonsense(chance)
    return framing.head(framing.REQUEST, said) + said


@pytest.mark.parametrize("count", [600, pytest.param(20_000, marks=pytest.mark.full)])
async def test_random_bytes_on_an_agents_port_harm_no_other_process(tmp_path: Path, count: int) -> None:
    """Strangers are refused there. A host that is broken has the right pass, and only its own stream is cut."""
    async with cluster(tmp_path) as found:
        user = found.user()
        program = register(user, 1)
        await runs(user, program)
        agent, secret = found.agents[0], found.server.secret
        totals = agent.node.refusals.totals
        await _ask_nonsense(agent.address, count // 3)
        assert totals["malformed"] > count // 3 * 4 // 5, "all but those that said nothing"
        for name in ("host/1", "client/1", "who/" + "7" * 32):
            assert not await said_on_a_stream(agent.address, opening("", name))
        assert totals["name"] == 3
        await _stream_nonsense(agent.address, "client/77", access.proof(secret, "client/77"), count // 3)
        await _connect_with_nonsense(agent.address, count // 3)
        assert not agent.ended
        await runs(user, program)
        assert not user.failures


async def _connect_with_nonsense(address: str, count: int) -> None:
    chance = random.Random(4)
    host, _, port = address.rpartition(":")

    async def one() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(chance.choice((b"", framing.MAGIC)) + nonsense(chance))
            writer.write_eof()
            async with asyncio.timeout(30):
                while await reader.read(1 << 16):
                    pass
        except ConnectionError:
            pass
        finally:
            writer.close()

    for _ in range(max(1, count // 20)):
        await asyncio.gather(*(one() for _ in range(20)))


async def test_a_stranger_that_is_cut_off_in_the_middle_of_a_message_is_told(tmp_path: Path) -> None:
    """The controller cannot end a stream while a message is half written. What it has begun is delivered, then the
    end."""
    async with cluster(tmp_path) as found:
        node, name = found.server.node, "who/" + "7" * 32
        node.announce("a long name " * 1_000_000, "127.0.0.1:1")  # more than fits into a socket
        host, _, port = found.server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(opening("", name))
        head = framing.HEAD.unpack(await reader.readexactly(framing.HEAD.size))
        assert head[0] == framing.ANSWER
        peer = node.names.peer_of(name, "")
        assert peer is not None
        await wait_until(lambda: node.connected(peer))
        writer.write(b"nonsense" * 4)
        await wait_until(lambda: not node.connected(peer))
        async with asyncio.timeout(30):
            said = await reader.read()
        assert len(said) > 12_000_000
        assert b"127.0.0.1:1" in said, "the message is whole"
        writer.close()


def test_strangers_that_have_gone_are_forgotten_and_those_still_here_keep_their_number() -> None:
    here: set[int] = set()
    names = ControllerNames(2, b"secret", here.__contains__)
    first = names.peer_of(f"who/{0:032}", "")
    assert first == 2
    here.add(first)
    numbers = [names.peer_of(f"who/{each:032}", "") for each in range(1, 10 * FEW)]
    assert len(set(numbers)) == len(numbers)
    assert len(names._clients) <= FEW
    assert names.peer_of(f"who/{0:032}", "") == first
