"""A port admits honest callers only, tells the others why, and is open to honest ones whatever the others do."""

from __future__ import annotations

import pytest

from backend.auth import Access
from backend.streams import StreamRefused, listener
from backend.wire import framing, versions
from backend.wire.framing import HEAD, MAGIC, OPENING, PACKET, Answered, StreamFrame

from .rig import answer_in, heard_by, only_line, opening, port

SESAME = Access("sesame")
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


async def test_a_caller_with_the_token_and_a_name_is_welcomed_and_both_ends_are_heard() -> None:
    async with port(SESAME) as found:
        connection = await found.dial("peer/3")
        there = found.taken[3]
        assert there.called == "a stream as 'peer/3'"
        for sender, receiver in ((connection, there), (there, connection)):
            sender.put(PACKET, b"message", b"contents")
            sender.flush()
            assert await heard_by(receiver) == StreamFrame(PACKET, b"message", b"contents")
        connection.close()
        assert not found.refused


@pytest.mark.parametrize(
    ("access", "name", "kind", "text"),
    [
        (Access("a guess"), "peer/1", "token", "the token is wrong or missing"),
        (Access(), "peer/1", "token", "the token is wrong or missing"),
        (Access("å"), "peer/1", "token", "the token is wrong or missing"),
        (SESAME, "", "name", "no process here is called ''"),
        (SESAME, "nobody/1", "name", "no process here is called 'nobody/1'"),
    ],
)
async def test_another_caller_is_refused_with_the_reason_which_is_logged_with_its_address(
    caplog: pytest.LogCaptureFixture, access: Access, name: str, kind: str, text: str
) -> None:
    async with port(SESAME) as found:
        with pytest.raises(StreamRefused, match=text) as refused:
            await found.dial(name, access)
        assert refused.value.kind == kind
        assert found.refused == {kind: 1}
        assert not found.taken
        await found.gets_in()
    line = only_line(caplog)
    assert line.startswith(f"refused ({kind}) ipv4:127.0.0.1:")
    assert line.endswith(f": a stream as {name!r}: {text}")


async def test_a_refused_caller_reads_the_reason_although_it_goes_on_talking() -> None:
    """If a connection is closed while bytes are unread, TCP throws away what the other end has not read yet."""
    async with port(SESAME) as found:
        caller = await found.caller(opening(token="a guess") + bytes(1 << 20))
        caller.writer.write_eof()
        assert answer_in(await caller.heard()) == Answered(versions.mine(), "token", "the token is wrong or missing")


@pytest.mark.usefixtures("impatient")
async def test_a_refused_caller_that_does_not_leave_is_left_soon() -> None:
    async with port(SESAME) as found:
        caller = await found.caller(opening(token="a guess"))
        assert answer_in(await caller.heard()).refused == "token"
        await found.no_nameless()


async def test_a_refused_caller_that_has_gone_harms_nobody() -> None:
    async with port(SESAME) as found:
        for _ in range(30):
            caller = await found.caller(opening(token="a guess"))
            caller.writer.transport.abort()
        await found.until_refused(token=30)
        await found.no_nameless()
        await found.gets_in()


# --- bytes that are no opening ----------------------------------------------------------------------------------------

WELL = "it did not introduce itself in 0.05 s"
NOT_OURS = "it does not begin as a stream of Seaway"
GARBAGE: dict[str, tuple[bytes, str, str]] = {
    "nothing": (b"", "malformed", WELL),
    "half of how a stream begins": (MAGIC[:8], "malformed", WELL),
    "no opening": (MAGIC, "malformed", WELL),
    "half a head": (MAGIC + HEAD.pack(OPENING, 10, 0)[:5], "malformed", WELL),
    "half an opening": (opening()[:-1], "malformed", WELL),
    "other bytes": (b"\xff" * 40, "malformed", NOT_OURS),
    "another version of the stream": (MAGIC[:-2] + b"2\n" + bytes(40), "malformed", NOT_OURS),
    "HTTP/2": (HTTP2, "malformed", NOT_OURS),
    "HTTP": (b"GET / HTTP/1.1\r\n\r\n", "malformed", NOT_OURS),
    "garbage": (MAGIC + b"\xff" * 40, "malformed", "no frame begins with 255"),
    "zeros": (MAGIC + bytes(40), "malformed", "no frame begins with 0"),
    "a packet": (MAGIC + framing.head(PACKET, b"x") + b"x", "malformed", "a stream does not begin with an opening"),
    "no msgpack": (MAGIC + framing.head(OPENING, b"\xc1" * 20) + b"\xc1" * 20, "malformed", "this is no Opening"),
    "an opening of other types": (
        MAGIC + framing.head(OPENING, b"\x81\xa4name\x07") + b"\x81\xa4name\x07",
        "malformed",
        "this is no Opening",
    ),
    "a large opening": (MAGIC + HEAD.pack(OPENING, 16385, 0), "oversized", "a frame of 16,385 bytes; 16,384 may come"),
    "an opening with large contents": (
        MAGIC + HEAD.pack(OPENING, 1, 32 << 20),
        "oversized",
        "a frame of 33,554,433 bytes",
    ),
}


@pytest.mark.parametrize("said", GARBAGE)
@pytest.mark.usefixtures("impatient")
async def test_a_caller_that_does_not_introduce_itself_is_closed_and_logged(
    caplog: pytest.LogCaptureFixture, said: str
) -> None:
    data, kind, why = GARBAGE[said]
    async with port() as found:
        caller = await found.caller(data)
        assert await caller.heard() == b""
        assert found.refused == {kind: 1}
        assert f"refused ({kind}) {caller.address} " in only_line(caplog)
        assert f": a connection: {why}" in only_line(caplog)
        await found.gets_in()


@pytest.mark.parametrize("said", ["nothing", "half of how a stream begins", "no opening", "half an opening"])
async def test_a_caller_that_leaves_before_it_has_introduced_itself_is_forgotten(said: str) -> None:
    async with port() as found:
        caller = await found.caller(GARBAGE[said][0])
        caller.writer.write_eof()
        assert await caller.heard() == b""
        await found.no_nameless()
        assert found.refused in ({}, {"malformed": 1})
        await found.gets_in()


async def test_what_comes_behind_an_opening_is_heard_by_the_stream() -> None:
    async with port() as found:
        caller = await found.caller(opening("peer/1") + framing.head(PACKET, b"early") + b"early")
        assert answer_in(await caller.reader.read(1000)) == Answered(versions.mine())
        assert await heard_by(found.taken[1]) == StreamFrame(PACKET, b"early", b"")


# --- many callers -----------------------------------------------------------------------------------------------------


async def test_silent_callers_beyond_a_number_close_the_oldest_of_the_busiest_host(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "NAMELESS", 10)
    async with port() as found:
        quiet = [await found.caller(host="127.0.0.2") for _ in range(4)]
        busy = [await found.caller(host="127.0.0.3") for _ in range(6)]
        more = [await found.caller(host="127.0.0.3") for _ in range(3)]
        await found.until_refused(busy=3)
        for each in busy[:3]:
            assert await each.heard() == b""
        await found.gets_in()
        await found.until_refused(busy=4)
        assert await busy[3].heard() == b""
        for each in (*quiet, *busy[4:], *more):
            assert not each.reader.at_eof()
            each.writer.write(opening())
            assert answer_in(await each.reader.read(1000)) == Answered(versions.mine())
    assert "refused (busy) 127.0.0.3 for too many calls: a connection: 10 connections wait already" in caplog.text


async def test_a_stream_that_was_admitted_is_no_stranger_and_is_not_closed_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "NAMELESS", 3)
    async with port() as found:
        friends = [await found.dial(f"peer/{number}") for number in range(5)]
        for _ in range(5):
            await found.caller()
        await found.until_refused(busy=2)
        for number, each in enumerate(friends):
            each.put(PACKET, b"still here")
            each.flush()
            assert (await heard_by(found.taken[number])).message == b"still here"
            each.close()


async def test_a_port_that_is_closed_closes_all_that_have_not_introduced_themselves() -> None:
    async with port() as found:
        quiet = [await found.caller(said) for said in (b"", MAGIC[:3], MAGIC, opening()[:-1])]
        await found.gets_in()
        await found.listener.close()
        for each in quiet:
            assert await each.heard() == b""
        with pytest.raises(ConnectionRefusedError):
            await found.dial()
        assert not found.refused
