"""Processes of different versions refuse each other by name, before either reads the other's messages."""

from __future__ import annotations

import asyncio
import re
import types
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

import seaway as sw
from backend.auth.access import Access
from backend.node.calls import SERVICE, CallError, ask
from backend.wire import versions
from backend.wire.call_messages import AboutReply, Described, Enrol, Enrolled, Report, Status
from backend.wire.framing import Opening
from backend.wire.versions import HEADER, OTHER, mine
from core.model.topology import small
from core.record.eventcodec import fingerprint
from tests.backend.cluster import cluster, greeted, wait_until
from tests.backend.real import Program, real
from tests.backend.test_faults import register, runs

FIX = "install the same version on every machine of the cluster, and of its clients"
OTHERS = "9.9 (protocol 0badc0de)"
OF_OTHERS = f"import sys, backend.wire.versions as v; v.mine = lambda: {OTHERS!r}; from seaway.cli import main; "


class Other(Program):
    """One of our programs, as another version."""

    def __init__(self, log: Path, *words: str) -> None:
        code = f"{OF_OTHERS}sys.argv = ['seaway', *{words!r}]; sys.exit(main())"
        super().__init__(log, python=("-c", code))


def kind(fields: list[Any]) -> types.ModuleType:
    module = types.ModuleType("made")
    module.Word = msgspec.defstruct("Word", fields, module="made")  # type: ignore[attr-defined]
    return module


def test_a_message_with_another_field_is_another_protocol_version() -> None:
    first = kind([("host", int)])
    assert fingerprint([first]) == fingerprint([kind([("host", int)])])
    others: list[list[Any]] = [[("host", str)], [("number", int)], [("host", int), ("rank", int)], []]
    assert fingerprint([first]) not in {fingerprint([kind(fields)]) for fields in others}
    assert re.fullmatch(r"\S+ \(protocol [0-9a-f]{8}\)", mine())


async def test_an_agent_and_a_program_of_another_version_are_refused_in_one_line_and_do_not_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(240), real(tmp_path) as found:
        words = ("agent", "--controller", found.address, "--platform", "timed", "--name", "x")
        agent = Other(tmp_path / "other.log", *words)
        try:
            assert await agent.ended() == 2
            (line,) = agent.said().splitlines()
            refusal = f"Seaway {mine()} answers there, and Seaway {OTHERS} asks: {FIX}"
            assert line == f"seaway agent: {refusal}"
        finally:
            agent.end()
        user = found.user()
        await runs(user, register(user, 2))
        monkeypatch.setattr(versions, "mine", lambda: OTHERS)
        with pytest.raises(sw.errors.Unreachable) as refused:
            await asyncio.to_thread(sw.connect, f"grpc://{found.address}")
        assert str(refused.value) == f"the controller at {found.address} refused the connection: {refusal}"
        assert (await found.status())["islands"], "a caller of any version may ask for the status"


async def test_agents_and_clients_stop_when_their_controller_returns_as_another_version(tmp_path: Path) -> None:
    """A new controller replaces the one with which they enrolled. They learn of it when they reconnect."""

    async with asyncio.timeout(240), real(tmp_path) as found:
        user = found.user()
        await runs(user, register(user, 2))
        found.controller.kill()
        words = ("--bind", found.address, "--state", str(tmp_path / "state"), "--hosts", "2")
        other = Other(tmp_path / "other.log", "controller", *words, "--devices-per-host", "2")
        try:
            assert other.line().startswith("controller at")
            there = f"Seaway {OTHERS} answers there, and Seaway {mine()} asks: {FIX}"
            for agent in found.agents.values():
                assert await agent.ended() == 2
                assert agent.said().splitlines()[-1] == f"seaway agent: {there}"
                assert agent.said().count("restarting") == 1
                assert "Traceback" not in agent.said()
            await wait_until(lambda: user.failures)
            (failure,) = [str(each) for each in user.failures[:1]]
            assert failure == f"{found.address} refuses us: {there}"
        finally:
            other.end()


async def test_a_peer_that_states_no_version_is_refused_before_its_message_is_read(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found, Access().channel(found.server.address) as channel:
        unknown = "Seaway of an older version, which does not say which, asks"
        for message in (b"nonsense", msgspec.msgpack.encode({"name": "x", "where": 3})):
            for method in (Enrol, AboutReply):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await channel.unary_unary(f"/{SERVICE}/{method.__name__}")(message)
                assert refused.value.code() == OTHER
                assert unknown in str(refused.value.details())
        answer = await greeted(found.server.address, Opening(name="who/" + "5" * 32))
        assert answer.refused == "version"
        assert unknown in answer.text
        status = await channel.unary_unary(f"/{SERVICE}/Status")(msgspec.msgpack.encode(Status()))
        assert msgspec.msgpack.decode(status, type=Report).json


ANSWERS: list[tuple[msgspec.Struct, msgspec.Struct | None]] = [
    (Enrol("x", 1, "a", "timed", "", 2, 0), Enrolled(0, small(1, 2), b"", 1, 1)),
    (AboutReply("1"), Described(small(1, 2), ("timed",), 1, "1")),
    (AboutReply("1"), None),
]


@pytest.mark.parametrize(("request_", "answer"), ANSWERS)
@pytest.mark.parametrize(("said", "called"), [("", "of an older version, which does not say which,"), ("9.9", "9.9")])
async def test_an_answer_of_another_version_is_not_read_either(
    request_: msgspec.Struct, answer: msgspec.Struct | None, said: str, called: str
) -> None:
    async def answers(data: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        await context.send_initial_metadata(((HEADER, said),) if said else ())
        return b"another layout" if answer is None else msgspec.msgpack.encode(answer)

    server = grpc.aio.server()
    methods = {type(request_).__name__: grpc.unary_unary_rpc_method_handler(answers)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, methods)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with Access().channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(CallError) as refused:
            await ask(channel, Access(), request_)
    await server.stop(None)
    assert str(refused.value) == f"Seaway {called} answers there, and Seaway {mine()} asks: {FIX}"
