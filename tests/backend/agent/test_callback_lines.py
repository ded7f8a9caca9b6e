"""A host's programs call functions of their clients over streams that doors open: real streams, a real listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from backend.agent import callback_lines
from backend.agent.callback_lines import GONE, CallbackLines
from backend.auth import Access, RefusalLogger, TurnGate
from backend.contents import callbacks
from backend.contents.callbacks import CallbackFault
from backend.door.cluster.cluster_callbacks import ClusterCallbacks
from backend.door.session.session_callbacks import SessionCallbacks
from backend.streams import Listener, StreamRefused, dial
from backend.wire import framing

from ..streams.rig import PATIENCE, drive

SESAME = Access(token="sesame")


@asynccontextmanager
async def host() -> AsyncIterator[tuple[CallbackLines, str]]:
    lines = CallbackLines()
    listener = Listener(SESAME, RefusalLogger(), TurnGate(), streams={callbacks.STREAM: lines.take})
    address = listener.open("127.0.0.1:0")
    listener.start(lambda opening, connection: 0, lambda peer, connection: None)
    try:
        yield lines, address
    finally:
        await listener.close()


def asked(lines: CallbackLines, key: str, body: bytes) -> asyncio.Future[bytes]:
    """Asks from a thread, as XLA does."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    def came(body: bytes) -> None:
        loop.call_soon_threadsafe(answer.set_result, body)

    loop.run_in_executor(None, lines.ask, key, body, came)
    return answer


def echoing(session: SessionCallbacks) -> None:
    """The client answers each call with what it was asked, backwards."""
    session.begin(lambda message: session.answer(message[:8] + message[:7:-1]))


def test_calls_reach_the_client_of_their_session_also_those_that_were_early_and_large_ones() -> None:
    async def work() -> None:
        async with host() as (lines, address), asyncio.timeout(PATIENCE):
            session = SessionCallbacks()
            echoing(session)
            cluster = ClusterCallbacks({"host/3": address}, [3], SESAME, lambda host: ("", ""))
            early = asked(lines, cluster.key, b"early")
            cluster.open(session)
            assert await early == b"ylrae"
            large = bytes(range(256)) * (callbacks.PIECE // 100)
            assert await asked(lines, cluster.key, large) == large[::-1]
            assert await asyncio.gather(*(asked(lines, cluster.key, bytes([n, 1])) for n in range(50))) == [
                bytes([1, n]) for n in range(50)
            ]
            cluster.close()

    drive(work())


def test_a_client_that_goes_or_a_door_that_goes_fails_what_waits_with_the_reason() -> None:
    async def work() -> None:
        async with host() as (lines, address), asyncio.timeout(PATIENCE):
            session, came = SessionCallbacks(), asyncio.Event()
            session.begin(lambda message: came.set())  # it never answers
            cluster = ClusterCallbacks({"host/3": address}, [3], SESAME, lambda host: ("", ""))
            cluster.open(session)
            waiting = asked(lines, cluster.key, b"x")
            await came.wait()
            session.end()
            for answer in (await waiting, await asked(lines, cluster.key, b"y")):
                with pytest.raises(CallbackFault, match="the program's process has gone"):
                    callbacks.results_of(answer)
            came.clear()
            session.begin(lambda message: came.set())
            waiting = asked(lines, cluster.key, b"z")
            await came.wait()
            cluster.close()
            with pytest.raises(CallbackFault, match=GONE):
                callbacks.results_of(await waiting)

    drive(work())


def test_a_call_without_a_door_fails_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback_lines, "STREAM_S", 0)
    answers: list[bytes] = []
    CallbackLines().ask("nobody's", b"x", answers.append)
    with pytest.raises(CallbackFault, match=GONE):
        callbacks.results_of(answers[0])


@pytest.mark.parametrize("first", [b"", b"k" * 65])
def test_a_stream_without_a_key_is_closed(first: bytes) -> None:
    async def work() -> None:
        async with host() as (_, address), asyncio.timeout(PATIENCE):
            connection = await dial(address, SESAME, "", "", asks=callbacks.STREAM)
            connection.put(framing.REQUEST, first)
            connection.flush()
            connection.start(lambda: None)
            await connection.over.wait()
            with pytest.raises(StreamRefused, match="token"):
                await dial(address, Access(token="wrong"), "", "", asks=callbacks.STREAM)

    drive(work())
