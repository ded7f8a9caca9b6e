"""The sockets: who may listen and connect, gRPC's own client on them, clients that are killed, and the server's end."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from backend.door.protocol.ifrt_messages import (
    GrpcHostBufferLookupRequest,
    GrpcHostBufferLookupResponse,
    GrpcHostBufferStoreMetadata,
    GrpcHostBufferStoreRequest,
    GrpcIfrtSessionMetadata,
    IfrtRequest,
    IfrtResponse,
)
from backend.door.server import door_server
from backend.door.server.door_server import DoorServer, ListenRefused, listen_for_clients
from backend.door.server.ifrt_service import PIECE, SERVICE, SESSION_METADATA, STORE_METADATA, TransportLimits
from backend.door.session.session_port import SessionLink, SessionPort, Version
from backend.door.transport import http2_frames as frames

from ...cluster import wait_until
from ..grpc_rig import NEWEST
from ..minimal_session import MinimalSession

INIT = IfrtRequest()
INIT.init_request.SetInParent()
SESSION = ((SESSION_METADATA, GrpcIfrtSessionMetadata(version=NEWEST).SerializeToString()),)


@asynccontextmanager
async def door(address: str, **limits: int) -> AsyncIterator[tuple[DoorServer, list[MinimalSession]]]:
    made: list[MinimalSession] = []

    def opening(version: Version, link: SessionLink) -> SessionPort:
        made.append(MinimalSession(version, link))
        return made[-1]

    server = await listen_for_clients(opening, address, limits=TransportLimits(**limits))
    try:
        yield server, made
    finally:
        server.close()
        await wait_until(lambda: not server.connections)


def channel(server: DoorServer) -> grpc.aio.Channel:
    options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1)]
    return grpc.aio.insecure_channel(server.address, options=options)


async def greeted(server: DoorServer, client: grpc.aio.Channel) -> Any:
    """A session's call, which has been answered once."""
    call = client.stream_stream(SERVICE + "IfrtSession")(metadata=SESSION)
    await call.write(INIT.SerializeToString())
    answer = IfrtResponse.FromString(await call.read())
    assert answer.init_response.session_id in server.sessions.open
    return call


@pytest.fixture(params=["unix", "tcp"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"unix:{tmp_path}/door.sock" if request.param == "unix" else "127.0.0.1:0"


async def test_grpcs_own_client_has_a_session_and_buffers_on_two_connections(address: str) -> None:
    async with door(address) as (server, made), channel(server) as control, channel(server) as buffers:
        call = await greeted(server, control)
        (session_id,) = server.sessions.open
        contents = os.urandom(5 * PIECE + 3)
        shown = GrpcHostBufferStoreMetadata(session_id=session_id, handle=3, buffer_size=len(contents))
        pieces = (
            GrpcHostBufferStoreRequest(data=contents[at : at + PIECE]).SerializeToString()
            for at in range(0, len(contents), PIECE)
        )
        await buffers.stream_unary(SERVICE + "HostBufferStore")(
            pieces, metadata=((STORE_METADATA, shown.SerializeToString()),)
        )
        asked = GrpcHostBufferLookupRequest(session_id=session_id, handle=3)
        read = buffers.unary_stream(SERVICE + "HostBufferLookup")(asked.SerializeToString())
        assert b"".join([GrpcHostBufferLookupResponse.FromString(part).data async for part in read]) == contents
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() == grpc.StatusCode.OK
        assert made[0].log[-1] == ("ended", "the client has ended the session")


async def test_requests_in_a_burst_are_answered_in_order_with_fewer_writes(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = 0
    write = door_server._Connection._write

    def counted(self: Any) -> None:
        nonlocal writes
        writes += 1
        write(self)

    monkeypatch.setattr(door_server._Connection, "_write", counted)
    async with door(address) as (server, made), channel(server) as client:
        call = await greeted(server, client)
        for number in range(1000):
            request = IfrtRequest()
            request.request_metadata.op_id = number
            request.check_future_request.future_handle = 1
            await call.write(request.SerializeToString())
        answers = [IfrtResponse.FromString(await call.read()) for _ in range(1000)]
        assert [answer.response_metadata.op_id for answer in answers] == list(range(1000))
        before = writes
        for _ in range(100):
            made[0].link.send(b"x")
        await wait_until(lambda: writes > before)
        assert writes - before < 10  # one, and perhaps acknowledgements of the client's PINGs
        call.cancel()


async def test_a_killed_clients_session_ends_at_once(tmp_path: Path) -> None:
    client = f"""
import grpc, sys, time
channel = grpc.insecure_channel(sys.argv[1])
call = channel.stream_stream("{SERVICE}IfrtSession")(iter(lambda: time.sleep(60), 1), metadata={SESSION!r})
time.sleep(60)
"""
    async with door(f"unix:{tmp_path}/door.sock") as (server, made):
        child = await asyncio.to_thread(subprocess.Popen, [sys.executable, "-c", client, server.address])
        try:
            await wait_until(lambda: bool(server.sessions.open))
            assert made[0].log == []
        finally:
            child.kill()
            await asyncio.to_thread(child.wait)
        await wait_until(lambda: not server.connections)
        assert made[0].log == [("ended", "the client has gone")]


async def test_a_stop_ends_sessions_and_closes_all_sockets(address: str) -> None:
    async with door(address) as (server, made), channel(server) as client:
        call = await greeted(server, client)
        path, reached = (
            server.address,
            await asyncio.get_running_loop().run_in_executor(None, _connect, server.address),
        )
        server.close()
        assert made[0].log[-1] == ("ended", "the server stops")
        assert await call.code() == grpc.StatusCode.UNAVAILABLE
        reached.settimeout(5)
        while reached.recv(4096):
            pass
        reached.close()
        with pytest.raises(OSError, match=r"refused|No such file"):
            _connect(path)
        if path.startswith("unix:"):
            assert not Path(path.removeprefix("unix:")).exists()


async def test_a_stop_does_not_wait_for_a_client_that_reads_nothing(tmp_path: Path) -> None:
    async with door(f"unix:{tmp_path}/door.sock") as (server, _):
        stuck = _connect(server.address)
        head = frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0, b"")
        stuck.sendall(head + frames.frame(frames.PING, 0, 0, bytes(8)) * 9_000)
        with suppress(BlockingIOError):
            stuck.setblocking(False)
            while stuck.send(frames.frame(frames.PING, 0, 0, bytes(8))):
                await asyncio.sleep(0)
        await wait_until(lambda: bool(server.connections))
        server.close()
        await wait_until(lambda: not server.connections)
        stuck.close()


def _connect(address: str) -> socket.socket:
    if address.startswith("unix:"):
        made = socket.socket(socket.AF_UNIX)
        place: Any = address.removeprefix("unix:")
    else:
        made = socket.socket()
        host, _, port = address.rpartition(":")
        place = (host, int(port))
    try:
        made.connect(place)
    except OSError:
        made.close()
        raise
    return made


# --- who may --------------------------------------------------------------------------------------------------------


async def test_the_socket_is_its_users_only(tmp_path: Path) -> None:
    async with door(f"unix:{tmp_path}/door.sock"):
        assert stat.S_IMODE((tmp_path / "door.sock").stat().st_mode) == 0o600


async def test_another_user_is_refused_though_it_could_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with door(f"unix:{tmp_path}/door.sock") as (server, made):
        uid = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: uid + 1)
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "door.sock"))
        assert await reader.read() == b""
        writer.close()
        assert not server.connections
        assert not made


async def test_small_messages_on_tcp_go_at_once() -> None:
    async with door("127.0.0.1:0") as (server, _), channel(server) as client:
        call = await greeted(server, client)
        (connection,) = server.connections
        assert connection._transport is not None
        number = connection._transport.get_extra_info("socket").fileno()
        with socket.socket(fileno=os.dup(number)) as sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        call.cancel()


async def test_there_are_not_more_connections_than_may_be(tmp_path: Path) -> None:
    async with door(f"unix:{tmp_path}/door.sock", connections=1) as (server, _):
        first_reader, first = await asyncio.open_unix_connection(str(tmp_path / "door.sock"))
        assert await first_reader.read(9)
        reader, second = await asyncio.open_unix_connection(str(tmp_path / "door.sock"))
        assert await reader.read() == b""
        assert len(server.connections) == 1
        first.close()
        second.close()


async def test_a_socket_that_a_dead_server_left_is_replaced_and_a_living_ones_is_not(tmp_path: Path) -> None:
    path = tmp_path / "door.sock"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    async with door(f"unix:{path}"):
        with pytest.raises(ListenRefused, match="in use"):
            await listen_for_clients(MinimalSession, f"unix:{path}")
        assert path.exists()


@pytest.mark.parametrize(
    ("at", "text"),
    [
        ("0.0.0.0:0", "speaks no TLS"), ("[::]:0", "speaks no TLS"), ("192.0.2.7:1", "listen at unix:PATH"),
        ("example.org:1", "speaks no TLS"), ("door.sock", "unix:PATH or HOST:PORT"), (":1", "unix:PATH or HOST:PORT"),
        ("127.0.0.1:http", "unix:PATH or HOST:PORT"), ("127.0.0.1:99999", "unix:PATH or HOST:PORT"),
        ("unix:/nowhere/at/all.sock", "No such file"),
    ],
)  # fmt: skip
async def test_an_address_that_cannot_be_is_refused_with_what_to_write(at: str, text: str) -> None:
    with pytest.raises(ListenRefused, match=text):
        await listen_for_clients(MinimalSession, at)


async def test_nonsense_is_hung_up_on_and_others_go_on(address: str) -> None:
    async with door(address) as (server, _), channel(server) as client:
        call = await greeted(server, client)
        stranger = await asyncio.get_running_loop().run_in_executor(None, _connect, server.address)
        stranger.settimeout(5)
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await wait_until(lambda: len(server.connections) == 1)
        stranger.close()
        await call.write(INIT.SerializeToString())
        assert await call.read()
        call.cancel()
