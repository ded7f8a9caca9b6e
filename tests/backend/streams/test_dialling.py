"""Where a port may be, and what a caller learns from a process that does not answer as one of Seaway."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from backend.auth import Access, AccessRefused
from backend.streams import StreamRefused, dial
from backend.wire import framing
from backend.wire.framing import HEAD, MAGIC

from .rig import PATIENCE, only_line, port

SESAME = Access("sesame")


async def test_a_port_may_be_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "seaway"
    async with port(SESAME, bind=f"unix:{path}") as found:
        assert found.address == f"unix:{path}"
        await found.gets_in()
        with pytest.raises(StreamRefused):
            await found.dial(access=Access())
        with pytest.raises(AccessRefused, match=f"cannot listen on unix:{path}: is the port taken"):
            async with port(bind=f"unix:{path}"):
                pass
        await found.gets_in()
    assert not path.exists()
    assert "refused (token) unix: without" in only_line(caplog)


async def test_a_file_that_a_killed_process_has_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "seaway"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
        killed.listen()
    async with port(bind=f"unix:{path}") as found:
        await found.gets_in()


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("mine")
    with pytest.raises(AccessRefused, match="cannot listen on"):
        async with port(bind=f"unix:{path}"):
            pass
    assert path.read_text() == "mine"


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as tried:
            tried.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_a_port_may_have_an_ipv6_address(caplog: pytest.LogCaptureFixture) -> None:
    async with port(SESAME, bind="[::1]:0") as found:
        assert found.address.startswith("[::1]:")
        await found.gets_in()
        with pytest.raises(StreamRefused):
            await found.dial(access=Access())
    assert "refused (token) ipv6:%5B::1%5D:" in only_line(caplog)


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "localhost:{}"])
async def test_a_port_that_is_taken_is_refused_with_a_remedy(address: str) -> None:
    async with port(bind=address.format(0)) as found:
        taken = address.format(found.address.rpartition(":")[2])
        with pytest.raises(AccessRefused, match=f"cannot listen on {taken}: is the port taken"):
            async with port(bind=taken):
                pass


async def test_an_unprotected_port_is_for_this_machine_only() -> None:
    with pytest.raises(AccessRefused, match=r"will not listen on 0\.0\.0\.0:0 unprotected"):
        async with port(bind="0.0.0.0:0"):
            pass


# --- the other end answers strangely ----------------------------------------------------------------------------------

STRANGE: dict[str, bytes] = {
    "nothing": b"",
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "zeros": bytes(100),
    "an opening": framing.framed(framing.Opening()),
    "an answer that is none": framing.head(framing.ANSWER, b"\xc1") + b"\xc1",
    "a large answer": HEAD.pack(framing.ANSWER, 17 << 10, 0),
}


@pytest.mark.parametrize("said", STRANGE)
async def test_a_process_that_answers_otherwise_ends_in_one_clear_error(said: str) -> None:
    over = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(MAGIC))
        writer.write(STRANGE[said])
        writer.write_eof()
        await reader.read()
        writer.close()
        over.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(ConnectionError, match=r"does not answer as a process|closed the connection") as error:
        await dial(address, Access(), "peer/1", "")
    assert "\n" not in str(error.value)
    async with asyncio.timeout(PATIENCE):
        await over.wait()
    server.close()
