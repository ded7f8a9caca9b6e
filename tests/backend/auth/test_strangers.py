"""Bytes from strangers: random, almost right or too large, on every call and on streams. They harm no other process."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import grpc
import pytest

from backend.auth.access import Access
from backend.node.calls import SERVICE
from backend.node.node import STREAM
from backend.server.server import FEW, ControllerNames
from backend.wire import envelopes, versions
from backend.wire.call_messages import PAIRS
from experiments.bench.strangers.attacks import nonsense
from tests.backend.cluster import cluster, wait_until
from tests.backend.test_faults import register, runs

REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.full)])
def test_random_bytes_on_every_call_and_on_streams_harm_no_other_process(tmp_path: Path, count: int) -> None:
    async def work() -> None:
        async with cluster(tmp_path) as found:
            user = found.user()
            program = register(user, 1)
            await runs(user, program)
            hosts = found.server.enrolment.agents()
            async with Access().channel(found.server.address) as channel:
                await _call_with_nonsense(channel, count * 9 // 10)
                await _stream_nonsense(channel, count // 10)
            assert not found.server.failure.done()
            assert {host: agent.name for host, agent in found.server.enrolment.agents().items()} == {
                host: agent.name for host, agent in hosts.items()
            }
            await runs(user, program)
            await wait_until(lambda: len(found.server.controller.state.sessions) == 1)
            assert not user.failures

    asyncio.run(work())


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


async def _stream_nonsense(channel: grpc.aio.Channel, count: int) -> None:
    chance = random.Random(2)

    async def one() -> None:
        call = channel.stream_stream(STREAM)(
            metadata=(("name", f"who/{chance.randbytes(16).hex()}"), ("proof", ""), *versions.shown())
        )
        try:
            async with asyncio.timeout(30):
                for _ in range(3):
                    await call.write(nonsense(chance))
                await call.done_writing()
                while await call.read() is not grpc.aio.EOF:
                    pass
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the stream was cut, as it should be
        finally:
            call.cancel()

    for _ in range(max(1, count // 3 // 20)):
        await asyncio.gather(*(one() for _ in range(20)))


def test_a_stranger_that_is_cut_off_in_the_middle_of_a_message_is_told(tmp_path: Path) -> None:
    """gRPC cannot end a call while a message is half written. Without a grace period, the caller would wait for
    ever."""

    async def work() -> None:
        async with cluster(tmp_path) as found:
            node, name = found.server.node, "who/" + "7" * 32
            node.announce("a long name " * 1_000_000, "127.0.0.1:1")  # more than fits into a window
            async with Access().channel(found.server.address) as channel:
                call = channel.stream_stream(STREAM)(
                    metadata=(("name", name), ("proof", ""), *versions.shown())
                )
                await call.initial_metadata()
                peer = node.names.peer_of(name, "")
                assert peer is not None
                assert node.connected(peer)
                await call.write(b"nonsense")
                await wait_until(lambda: not node.connected(peer))
                async with asyncio.timeout(30):
                    while await call.read() is not grpc.aio.EOF:
                        pass
                assert await call.code() == grpc.StatusCode.OK

    asyncio.run(work())


def test_a_message_that_is_too_large_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with cluster(tmp_path) as found:
            user = found.user()
            program = register(user, 1)
            large = bytes(envelopes.MESSAGE + 1)
            options = (("grpc.max_send_message_length", -1), ("grpc.enable_http_proxy", 0))
            async with grpc.aio.insecure_channel(found.server.address, options=options) as channel:
                for kind in PAIRS:
                    with pytest.raises(grpc.aio.AioRpcError) as refused:
                        await channel.unary_unary(f"/{SERVICE}/{kind.__name__}")(
                            large, timeout=30, metadata=versions.shown()
                        )
                    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
                call = channel.stream_stream(STREAM)(
                    metadata=(("name", "who/" + "7" * 32), ("proof", ""), *versions.shown())
                )
                with pytest.raises((grpc.aio.AioRpcError, asyncio.InvalidStateError)):  # noqa: PT012
                    await call.write(large)
                    while await call.read() is not grpc.aio.EOF:
                        pass
                    raise asyncio.InvalidStateError
            await runs(user, program)

    asyncio.run(work())


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
