"""A process answers one request on a connection of its own, or tells its caller why not."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from backend.auth import Access
from backend.streams import StreamRefused
from backend.wire import framing, versions
from backend.wire.call_messages import GangTimesReply, Status
from backend.wire.framing import HEAD, PACKET, REQUEST, Answered

from .rig import PATIENCE, Port, answer_in, only_line, opening, port

SESAME = Access("sesame")


REPLY = b"r" * 500_000
ASKED = GangTimesReply(b"", "right", 1)


async def answering(request: GangTimesReply) -> bytes:
    if request.proof == "wrong":
        raise StreamRefused("pass", "the signature is wrong")
    return REPLY


ANSWERS = {GangTimesReply: answering}


async def test_a_request_is_answered_on_a_connection_of_its_own() -> None:
    async with port(SESAME, answers=ANSWERS) as found:
        for _ in range(3):
            said = await found.ask(ASKED)
            assert msgspec.msgpack.decode(said) == REPLY
        assert not found.taken
        assert not found.refused
        await found.no_nameless()


def asking(said: bytes = b"", asks: str = "GangTimesReply", kind: int = REQUEST, **fields: str) -> bytes:
    begun = opening("", "sesame", asks=asks, **{"version": versions.mine(), **fields})
    return begun + (framing.head(kind, said) + said if said else b"")


REQUESTS: dict[str, tuple[bytes, str, str]] = {
    "an unknown request": (asking(asks="Enrol"), "call", "there is no such call"),
    "a request of another version": (asking(version="0.0.0"), "version", "install the same version"),
    "a request of no version": (asking(version=""), "version", "install the same version"),
    "a request that never comes": (asking(), "malformed", "no message came in 0.05 s"),
    "a request that is no msgpack": (asking(b"\xc1" * 10), "malformed", "this is no GangTimesReply"),
    "a packet": (asking(b"\x80", kind=PACKET), "malformed", "this is no GangTimesReply: a frame of kind 1"),
    "no frame": (asking() + b"\xff" * 10, "malformed", "no frame begins with 255"),
    "a large request": (asking() + HEAD.pack(REQUEST, 33 << 20, 0), "oversized", "a frame of 34,603,008 bytes"),
}


@pytest.mark.parametrize("said", REQUESTS)
@pytest.mark.usefixtures("impatient")
async def test_a_request_that_cannot_be_answered_is_refused_with_the_reason(
    caplog: pytest.LogCaptureFixture, said: str
) -> None:
    data, kind, why = REQUESTS[said]
    async with port(SESAME, answers=ANSWERS) as found:
        caller = await found.caller(data)
        answer = await caller.heard()
        welcomed = framing.framed(Answered(versions.mine()))
        refused = answer_in(answer.removeprefix(welcomed))
        assert refused.refused == kind
        assert why in refused.text
        assert found.refused == {kind: 1}
        assert f"refused ({kind}) {caller.address} " in only_line(caplog)
        assert why in only_line(caplog)


async def test_the_caller_of_a_refused_request_is_told() -> None:
    large = bytes(framing.MESSAGE + 1)
    async with port(SESAME, answers=ANSWERS) as found:
        for request, access, kind in (
            (ASKED, Access("a guess"), "token"),
            (Status(), SESAME, "call"),
            (GangTimesReply(b"", "wrong", 1), SESAME, "pass"),
            (GangTimesReply(large, "right", 1), SESAME, "oversized"),
        ):
            with pytest.raises(StreamRefused) as refused:
                await found.ask(request, access)
            assert refused.value.kind == kind
        assert found.refused == {"token": 1, "call": 1, "pass": 1, "oversized": 1}


async def test_callers_that_keep_their_connection_do_not_keep_others_from_being_answered() -> None:
    async with port(SESAME, answers=ANSWERS) as found:
        request = msgspec.msgpack.encode(ASKED)
        kept = [await found.caller(asking(request)) for _ in range(6)]
        for each in kept:
            await each.reader.readexactly(len(REPLY))
        assert msgspec.msgpack.decode(await found.ask(ASKED)) == REPLY
        assert len(found.listener._tasks) >= len(kept), "the others are still there"


@pytest.mark.usefixtures("impatient")
async def test_a_caller_that_does_not_read_its_answer_is_left_and_its_socket_is_free_for_others() -> None:
    async def large_answer(request: GangTimesReply) -> bytes:
        return bytes(30 << 20)

    async with port(SESAME, answers={GangTimesReply: large_answer}) as found:
        request = msgspec.msgpack.encode(ASKED)
        for _ in range(3):
            caller = await found.caller(asking(request))
            caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await no_nameless_after_one(found)
            caller.writer.transport.abort()
            await found.gets_in()


async def no_nameless_after_one(found: Port) -> None:
    async with asyncio.timeout(PATIENCE):
        while not found.listener._tasks:
            await asyncio.sleep(0.002)
    await found.no_nameless()
