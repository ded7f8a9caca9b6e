"""With certificates, both ends of a stream are checked before anything is said; other callers get one clear error."""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

import msgspec
import pytest

from backend.auth import Access
from backend.node import CallError, calls
from backend.streams import Tls
from backend.wire.call_messages import Status
from backend.wire.framing import MAGIC, PACKET, StreamFrame
from core.link import Unreadable
from tests.backend.cluster import cluster
from tests.backend.test_faults import register, runs

from .certificates import authority, issued
from .rig import PATIENCE, End, Port, both, either_loop, heard_by, only_line, opening, port

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="this machine has no openssl")


class Certificates(NamedTuple):
    ours: Access
    also_ours: Access  # of the same CA
    elsewhere: Access  # of the same CA, for another machine
    theirs: Access  # of another CA


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    ours, theirs = authority(folder / "ours"), authority(folder / "theirs")
    return Certificates(
        issued(ours), issued(ours, key="also"), issued(ours, "DNS:other.example", "elsewhere"), issued(theirs)
    )


# --- both ends are of our CA ------------------------------------------------------------------------------------------


async def test_two_ends_with_certificates_of_one_ca_hear_each_other(certificates: Certificates) -> None:
    async with port(certificates.ours) as found:
        connection = await found.dial("peer/1", certificates.also_ours)
        for sender, receiver in ((connection, found.taken[1]), (found.taken[1], connection)):
            sender.put(PACKET, b"message", b"contents")
            sender.flush()
            assert await heard_by(receiver) == StreamFrame(PACKET, b"message", b"contents")
        connection.close()
        assert not found.refused


async def test_nothing_but_how_a_stream_begins_is_in_plain_text(certificates: Certificates) -> None:
    access = msgspec.structs.replace(certificates.ours, token="a very secret token")
    async with port(access) as found:
        seen = bytearray()

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(1 << 16):
                seen.extend(data)
                target.write(data)
            target.close()

        async def listen_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            place, _, number = address.rpartition(":")
            inner = await asyncio.open_connection(place, int(number))
            await asyncio.gather(pump(reader, inner[1]), pump(inner[0], writer))
            over.set()

        over = asyncio.Event()
        server = await asyncio.start_server(listen_in, "127.0.0.1", 0)
        address, found.address = found.address, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        connection = await found.dial("peer/1")
        connection.put(PACKET, b"a very secret message")
        connection.flush()
        assert (await heard_by(found.taken[1])).message == b"a very secret message"
        connection.close()
        found.taken[1].close()
        async with asyncio.timeout(PATIENCE):
            await over.wait()
        server.close()
        found.address = address
        assert seen.startswith(MAGIC)
        assert b"secret" not in seen
        assert b"peer/1" not in seen


async def test_a_cluster_works_with_certificates(certificates: Certificates, tmp_path: Path) -> None:
    """Its calls go by gRPC through the same port."""
    async with cluster(tmp_path, access=certificates.ours) as found:
        user = found.user()
        await runs(user, register(user, 3))
        async with certificates.theirs.channel(found.server.address) as channel:
            with pytest.raises(CallError):
                await calls.ask(channel, certificates.theirs, Status(), 5, wait=False)
        assert not user.failures


# --- others -----------------------------------------------------------------------------------------------------------


async def refused(found: Port, access: Access, text: str) -> None:
    """The caller gets this error, at once."""
    async with asyncio.timeout(PATIENCE / 4):
        with pytest.raises(ConnectionError, match=text):
            await found.dial("peer/1", access)
    assert not found.taken


async def test_a_caller_of_another_ca_refuses_us_and_we_log_why(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with port(certificates.ours) as found:
        await refused(found, certificates.theirs, r"TLS with 127\.0\.0\.1:\d+ failed: .*certificate")
        await found.until_refused(malformed=1)
        await found.gets_in()
    assert only_line(caplog).startswith("refused (malformed) ipv4:127.0.0.1:")
    assert "TLS: tlsv1 alert unknown ca" in only_line(caplog)


async def test_a_certificate_of_another_ca_is_refused_and_its_caller_learns_it(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    # trusts us, and is not of ours
    liar = msgspec.structs.replace(certificates.theirs, ca=certificates.ours.ca)
    async with port(certificates.ours) as found:
        for _ in range(5):
            await refused(found, liar, r"TLS with .* failed: tlsv1 alert unknown ca")
        await found.until_refused(malformed=5)
        await found.gets_in()
    assert "TLS: certificate verify failed" in caplog.text


async def test_a_certificate_for_another_machine_is_refused_by_the_caller(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with port(certificates.elsewhere) as found:
        await refused(found, certificates.ours, "certificate verify failed.*IP address mismatch")
        found.address = found.address.replace("127.0.0.1", "localhost")
        await refused(found, certificates.ours, "certificate verify failed.*Hostname mismatch")
        await found.until_refused(malformed=2)
    assert "refused (malformed)" in caplog.text


async def test_a_caller_with_a_certificate_for_any_machine_is_taken(certificates: Certificates) -> None:
    """Clients have no address: only their CA is checked."""
    async with port(certificates.ours) as found:
        (await found.dial("peer/1", certificates.elsewhere)).close()


async def test_a_caller_without_certificates_ends_in_one_clear_error(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with port(certificates.ours) as found:
        await refused(found, Access(), "does not answer as a process of Seaway with the same protection")
        await found.until_refused(malformed=1)
        await found.gets_in()
    assert "TLS: " in only_line(caplog)


async def test_a_caller_with_certificates_at_a_port_without_ends_in_one_clear_error(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with port() as found:
        await refused(found, certificates.ours, "during the TLS handshake|reset by peer")
        await found.until_refused(malformed=1)
    assert "no frame begins with 22" in only_line(caplog)


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01", b"\x16\x03\x01\x00\x05hello", b"\xff" * 100, opening()])
@pytest.mark.usefixtures("impatient")
async def test_bytes_that_are_no_handshake_are_refused(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    async with port(certificates.ours) as found:
        caller = await found.caller(MAGIC + said)
        assert b"secret" not in await caller.heard()
        await found.until_refused(malformed=1)
        await found.no_nameless()
    assert "TLS: " in only_line(caplog) or "introduce itself in 0.05 s" in only_line(caplog)


def context(access: Access, most: ssl.TLSVersion) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.maximum_version = most
    made.load_verify_locations(cadata=access.ca.decode())
    with NamedTemporaryFile() as file:
        file.write(access.key + access.cert)
        file.flush()
        made.load_cert_chain(file.name)
    return made


@pytest.mark.parametrize(("version", "spoken"), [(ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_3, True)])
async def test_tls_before_version_1_3_is_refused(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, version: ssl.TLSVersion, spoken: bool
) -> None:
    def shake_hands(address: str) -> str | None:
        place, _, number = address.rpartition(":")
        with socket.create_connection((place, int(number)), PATIENCE) as plain:
            plain.sendall(MAGIC)
            with context(certificates.ours, version).wrap_socket(plain, server_hostname=place) as secured:
                return secured.version()

    async with port(certificates.ours) as found:
        if spoken:
            assert await asyncio.to_thread(shake_hands, found.address) == "TLSv1.3"
            return
        with pytest.raises(ssl.SSLError, match=r"(?i)alert protocol version"):
            await asyncio.to_thread(shake_hands, found.address)
        await found.until_refused(malformed=1)
        assert "TLS: unsupported protocol" in only_line(caplog)


# --- large contents, and bytes that were changed ----------------------------------------------------------------------


async def ends(certificates: Certificates) -> tuple[End, End]:
    """Two ends that have shaken hands; neither is started."""
    here, there = socket.socketpair()
    loop = asyncio.get_running_loop()
    calls, serves = (Tls(certificates.ours, serves=False, host="localhost"), Tls(certificates.ours, serves=True))
    for each in (here, there):
        each.setblocking(False)
    await asyncio.gather(calls.shake_hands(loop, here), serves.shake_hands(loop, there))
    return End(here, calls), End(there, serves)


@asynccontextmanager
async def secured(certificates: Certificates) -> AsyncIterator[tuple[End, End]]:
    async with both(await ends(certificates)) as found:
        yield found


@either_loop
async def test_large_contents_cross_both_ways_at_once(certificates: Certificates, loop: str) -> None:
    chance = random.Random(1)
    there, back = ([StreamFrame(PACKET, b"m", chance.randbytes(16 << 20)) for _ in range(2)] for _ in range(2))
    async with secured(certificates) as (left, right):
        left.start()
        right.start()
        for end, sent in ((left, there), (right, back)):
            for each in sent:
                end.connection.put(*each)
            end.connection.flush()
        assert await right.got(2) == there
        assert await left.got(2) == back


async def test_an_end_delivers_all_that_was_put_before_it(certificates: Certificates) -> None:
    sent = [StreamFrame(PACKET, b"%d" % number, bytes(100_000)) for number in range(50)]
    async with secured(certificates) as (left, right):
        left.start()
        for each in sent:
            left.connection.put(*each)
        left.connection.put(PACKET, b"last", lambda: b"loaded")
        left.connection.end()
        right.start()
        for _ in range(20):
            right.connection.put(PACKET, b"unwanted", bytes(100_000))
        right.connection.flush()
        await right.over()
        assert right.frames == [*sent, StreamFrame(PACKET, b"last", b"loaded")]
        right.close()
        await left.over()
        assert not left.frames


@either_loop
async def test_bytes_that_somebody_else_puts_into_a_stream_are_unreadable(
    certificates: Certificates, loop: str
) -> None:
    async with secured(certificates) as (left, right):
        right.start()
        left.connection.put(PACKET, b"good")
        left.connection.flush()
        await right.got(1)
        left.socket.send(b"\x17\x03\x03\x00\x20" + bytes(32))
        await right.until(lambda: right.wrong)
        assert isinstance(right.wrong, Unreadable)
        assert str(right.wrong).startswith("TLS: ")
        assert [each.message for each in right.frames] == [b"good"]
