"""gRPC has the same port as streams: its calls pass through, and its callers are known by their addresses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from backend.auth import Access, RefusalLogger
from backend.node import CallError, calls
from backend.streams import grpc_pipe
from backend.wire import call_messages
from backend.wire.call_messages import Status
from tests.backend.cluster import cluster

from .rig import PATIENCE, Port, only_line, port, refusals_in

SESAME = Access("sesame")
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


async def through(address: str, host: str) -> tuple[asyncio.Server, str]:
    """An address of this machine that leads to that one: it sees connections from `host`."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def led(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place, _, number = address.rpartition(":")
        inner = await asyncio.open_connection(place, int(number), local_addr=(host, 0))
        await asyncio.gather(pump(reader, inner[1]), pump(inner[0], writer))

    server = await asyncio.start_server(led, "127.0.0.1", 0)
    return server, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def piped_to(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]],
) -> AsyncIterator[Port]:
    """A port that hands what is no stream to this server."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    number = server.sockets[0].getsockname()[1]
    async with port(pipe=lambda refusals: grpc_pipe.GrpcPipe(number, refusals)) as found:
        yield found
    server.close()


async def test_a_call_through_the_port_is_answered_and_a_refused_one_is_logged_with_its_callers_address(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The gRPC server itself sees a connection from this process."""
    async with cluster(tmp_path, access=SESAME, agents=False) as found:
        server, address = await through(found.server.address, "127.0.0.7")
        async with SESAME.channel(address) as channel:
            report: call_messages.Report = await calls.ask(channel, SESAME, Status())
            assert report.json
            with pytest.raises(CallError, match="the token is wrong or missing"):
                await calls.ask(channel, Access("a guess"), Status())
        server.close()
    assert only_line(caplog).startswith("refused (token) ipv4:127.0.0.7:")


async def test_large_messages_pass_through_the_port_both_ways(tmp_path: Path) -> None:
    code = bytes(range(256)) * (24 << 12)  # 24 MiB
    async with cluster(tmp_path, agents=False) as found, Access().channel(found.server.address) as channel:
        kept: call_messages.KeepReply = await calls.ask(channel, Access(), call_messages.Keep(code))
        sent: call_messages.FindReply = await calls.ask(channel, Access(), call_messages.Find(kept.hash))
        assert sent.code == code


async def test_a_caller_of_grpc_that_leaves_at_once_is_still_known_by_its_address(tmp_path: Path) -> None:
    """Its call may begin when its connection has gone already."""
    async with cluster(tmp_path, agents=False) as found:
        refusals = found.server.refusals
        place, _, number = found.server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(place, int(number), local_addr=("127.0.0.7", 0))
        writer.write(HTTP2 + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
        await reader.read(1)
        mine = f"ipv4:127.0.0.7:{writer.get_extra_info('sockname')[1]}"
        (inner,) = [here for here, address in refusals.callers.items() if address == mine]
        writer.transport.abort()
        pipe = found.server._listener._pipe  # type: ignore[union-attr]
        assert pipe is not None
        while pipe._pairs:
            await asyncio.sleep(0.002)
        assert refusals.address_of(inner) == mine


async def test_connections_of_grpc_are_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(grpc_pipe, "MOST", 2)
    came: list[str] = []
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append("a connection")
        heard.append(await reader.read())
        writer.close()

    async def until(found: list[Any], count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(found) < count:
                await asyncio.sleep(0.002)

    server = await asyncio.start_server(hear, "127.0.0.1", 0)
    number = server.sockets[0].getsockname()[1]
    async with port(pipe=lambda refusals: grpc_pipe.GrpcPipe(number, refusals)) as found:
        inside = [await found.caller(HTTP2) for _ in range(2)]
        await until(came, 2)
        await found.caller(HTTP2)
        await until(came, 3)
        assert await inside[0].heard() == b"", "the oldest one of the host that has the most makes room"
        assert found.refused == {"busy": 1}
        assert "127.0.0.1" in only_line(caplog)
        assert "2 connections of gRPC are open" in only_line(caplog)
        await until(heard, 1)
        await found.gets_in()
    await until(heard, 3)
    assert heard == [HTTP2] * 3
    server.close()


@pytest.mark.parametrize("size", [1, 5 << 20])
async def test_the_last_words_of_the_grpc_server_reach_a_caller_that_reads_slowly(size: int) -> None:
    closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(HTTP2))
        writer.write(bytes(size))
        writer.close()
        closed.set()

    async with piped_to(answer) as found:
        caller = await found.caller()
        caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
        caller.writer.write(HTTP2)
        async with asyncio.timeout(PATIENCE):
            await closed.wait()
        caller.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await caller.heard() == bytes(size)


def test_callers_of_grpc_send_no_more_bytes_a_second_than_the_loop_can_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pipe = grpc_pipe.GrpcPipe(1, RefusalLogger())
    assert pipe._came(grpc_pipe.BURST) == 0
    assert pipe._came(grpc_pipe.RATE) == pytest.approx(1.0)
    assert pipe._came(grpc_pipe.RATE) == pytest.approx(2.0)  # all callers together
    now[0] += 2.5
    assert pipe._came(0) == 0
    now[0] += 60
    # no more is saved up than a burst
    assert pipe._came(grpc_pipe.BURST + grpc_pipe.RATE) == pytest.approx(1.0)


async def test_a_caller_that_has_to_rest_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_pipe, "BURST", 1 << 16)
    monkeypatch.setattr(grpc_pipe, "RATE", 16 << 20)
    sent = HTTP2 + bytes(range(256)) * (8 << 10)
    came: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.put_nowait(await reader.read(-1))
        writer.close()

    async with piped_to(take) as found:
        caller = await found.caller()
        caller.writer.write(sent)
        caller.writer.write_eof()
        assert await asyncio.wait_for(came.get(), PATIENCE) == sent


async def test_a_client_of_grpc_is_refused_where_nobody_speaks_it(caplog: pytest.LogCaptureFixture) -> None:
    async with port() as found, Access().channel(found.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary("/seaway.Cluster/Status")(b"", timeout=PATIENCE)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        await found.gets_in()
    said = refusals_in(caplog)  # a client of gRPC may try again
    assert said
    assert all("it does not begin as a stream of Seaway" in line for line in said)
