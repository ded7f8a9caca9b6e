"""Refusals: each is logged or counted, and none fills a log or memory; first the pure part, then a real cluster."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.admin import metrics
from backend.auth.access import HEADER, Access
from backend.auth.refusal_log import ELSEWHERE, EVERY, KINDS, SOURCES, RefusalLog, host_of, plain
from backend.node.calls import SERVICE, CallError, ask
from backend.server.cluster_status import figures_of
from backend.wire import framing
from backend.wire.call_messages import CancelCall, Enrol, Find, Permit, Report, Status
from core.protocol import effects as e
from core.protocol import messages as m
from seaway.cli.status import table
from tests.backend.auth.nonsense import opening, packet, said_on_a_stream
from tests.backend.cluster import Cluster, cluster, wait_until

MORE = re.compile(r", (\d+) more; the last: ")


def refusals_in(line: str) -> int:
    found = MORE.search(line)
    return int(found[1]) if found else 1


KNOCKS = st.lists(
    st.tuples(st.sampled_from(sorted(KINDS)), st.integers(0, 2 * SOURCES), st.integers(0, EVERY), st.booleans()),
    max_size=300,
)


@given(KNOCKS)
def test_each_refusal_is_logged_in_one_line_and_lines_are_few(knocks: list[tuple[str, int, int, bool]]) -> None:
    log, now, lines, knocked = RefusalLog(), 0, [], Counter[str]()
    last: dict[str, int] = {}

    def say(line: str) -> None:
        """Checks a line. Its source is the text between the kind and the reason."""
        who = line.partition(f" {KINDS[line[9 : line.index(')')]]}")[0].partition(":ipv4")[0]
        who = re.sub(r":\d+$", "", who.replace("ipv4:", ""))
        assert now - last.get(who, -EVERY) >= EVERY, line
        last[who] = now
        lines.append(line)

    for kind, address, pause, look in knocks:
        now += pause
        if look:
            for _, line in log.due(now):
                say(line)
        first = log.note(kind, f"ipv4:10.0.0.{address}:{now % 60000}", "Status", "no", now)
        knocked[kind] += 1
        if first is not None:
            say(first)
        assert len(log) <= SOURCES + len(KINDS)
    now += EVERY
    for _, line in log.due(now):
        say(line)
    assert sum(map(refusals_in, lines)) == len(knocks)
    assert +log.totals == knocked
    log.due(now + EVERY)
    assert len(log) == 0
    assert log.next_due() is None


def test_a_source_that_goes_on_is_logged_once_a_second_with_its_count() -> None:
    log, lines = RefusalLog(), []
    for now in range(0, 3 * EVERY, EVERY // 100):
        lines += [line for _, line in log.due(now)]
        line = log.note("token", "ipv4:10.0.0.7:4123", "Status", "wrong", now)
        lines += [line] if line else []
    assert [refusals_in(line) for line in lines] == [1, 99, 100]
    assert lines[0] == "refused (token) ipv4:10.0.0.7:4123 without the cluster's token: Status: wrong"
    assert "10.0.0.7 without the cluster's token, 99 more; the last: Status: wrong" in lines[1]


def test_many_addresses_share_a_line() -> None:
    log = RefusalLog()
    said = [log.note("name", f"ipv4:10.0.{at // 250}.{at % 250}:1", "x", "y", 0) for at in range(1000)]
    assert len([line for line in said if line]) == SOURCES + 1
    assert len(log) == SOURCES + 1
    (line,) = [line for _, line in log.due(EVERY) if MORE.search(line)]
    assert refusals_in(line) == 1000 - SOURCES - 1
    assert ELSEWHERE in line


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("ipv4:10.0.0.7:41234", "10.0.0.7"),
        ("ipv6:%5B::1%5D:41234", "[::1]"),
        ("unix:/run/x", "unix:/run/x"),
        ("", ""),
        ("127.0.0.1:5", "127.0.0.1:5"),
    ],
)
def test_the_host_of_an_address(address: str, host: str) -> None:
    assert host_of(address) == host


def test_the_name_that_a_stranger_gives_stays_on_one_short_line() -> None:
    line = RefusalLog().note("name", "ipv4:1.2.3.4:5", "a\nWARNING all is well\x1b[2J" + "x" * 10_000, "no", 0)
    assert line is not None
    assert line.isprintable()
    assert len(line) < 600
    assert plain("å b") == "å b"


# --- a real cluster ---------------------------------------------------------------------------------------------------


Shown = tuple[tuple[str, str], ...]
SESAME: Shown = ((HEADER, "Bearer sesame"),)  # without a version


async def refused(
    channel: grpc.aio.Channel, method: str, data: bytes, token: str = "sesame", shown: Shown = ()
) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await channel.unary_unary(method)(data, metadata=shown or Access(token).shown(), timeout=30)
    return error.value.code()


async def stream(address: str, name: str, data: bytes = b"", token: str = "sesame", proof: str = "") -> None:
    """Opens a stream, says something, and listens until it is closed."""
    with suppress(ConnectionError):
        async with asyncio.timeout(20):
            await said_on_a_stream(address, opening(token, name, proof=proof), data)


def method(kind: type) -> str:
    return f"/{SERVICE}/{kind.__name__}"


WHO = "who/" + "7" * 32
NONSENSE = framing.framed(framing.Address("host/0", "127.0.0.1:1"))
# A request on a channel for each kind of refusal. Each is counted once.
KNOCK: dict[str, Callable[[grpc.aio.Channel], Awaitable[Any]]] = {
    "token": lambda channel: refused(channel, method(Status), b"", "a guess"),
    "call": lambda channel: refused(channel, "/seaway.Cluster/Nothing", b""),
    "pass": lambda channel: refused(channel, method(Permit), msgspec.msgpack.encode(Permit(((1, "wrong"),)))),
    "malformed": lambda channel: refused(channel, method(Status), b"\xc1"),
    "oversized": lambda channel: refused(channel, method(Status), bytes(framing.MESSAGE + 1)),
    "agent": lambda channel: refused(
        channel, method(Enrol), msgspec.msgpack.encode(Enrol("x", 1, "a", "timed", "", 99, 0))
    ),
    "version": lambda channel: refused(channel, method(Enrol), b"", shown=SESAME),
}
# Kinds of refusals on streams, to an address. Each is counted once more.
ALSO: dict[str, Callable[[str], Awaitable[Any]]] = {
    "token": lambda address: stream(address, WHO, token="a guess"),
    "name": lambda address: stream(address, "host/0"),
    "version": lambda address: of_another_version(address),
    "malformed": lambda address: stream(address, WHO, b"\xff" * 40),
    "oversized": lambda address: stream(address, WHO, packet(b"", bytes(framing.MESSAGE + 1))),
}


async def of_another_version(address: str) -> None:
    other = framing.framed(framing.Opening("0.0.0", "sesame", WHO))
    assert not await said_on_a_stream(address, framing.MAGIC + other)


LARGE = (("grpc.max_send_message_length", -1), ("grpc.enable_http_proxy", 0))


def lines_of(caplog: pytest.LogCaptureFixture, kind: str) -> list[str]:
    return [
        record.getMessage() for record in caplog.records
        if record.name == "seaway.refused" and record.levelno == logging.WARNING
        and record.getMessage().startswith(f"refused ({kind}) ")
    ]  # fmt: skip


def all_told(caplog: pytest.LogCaptureFixture, kind: str, count: int) -> bool:
    return sum(map(refusals_in, lines_of(caplog, kind))) == count


async def test_each_kind_of_refusal_has_a_log_line_with_the_address_and_a_metric(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with cluster(tmp_path, access=Access("sesame")) as found:
        totals = found.server.refusals.totals
        assert not +totals, "a cluster that comes up refuses nobody"
        async with grpc.aio.insecure_channel(found.server.address, options=LARGE) as channel:
            for kind, knock in KNOCK.items():
                before = totals[kind]
                await knock(channel)
                assert totals[kind] == before + 1, kind
                (line,) = lines_of(caplog, kind)
                assert line.startswith(f"refused ({kind}) ipv4:127.0.0.1:")
            for kind, ask_otherwise in ALSO.items():
                before = totals[kind]
                await ask_otherwise(found.server.address)
                assert totals[kind] == before + 1, kind
            for kind in ALSO:
                await wait_until(partial(all_told, caplog, kind, totals[kind]))
        await _figures(found)


async def _figures(found: Cluster) -> None:
    async with Access().channel(found.server.address) as channel:
        report: Report = await ask(channel, Access("sesame"), Status())
    status = json.loads(report.json)
    assert status["refusals"] == {
        **dict.fromkeys(KINDS, 0),
        **{kind: (kind in KNOCK) + (kind in ALSO) for kind in {*KNOCK, *ALSO}},
    }
    assert 'seaway_refused_total{kind="oversized"} 2' in metrics.text_of(figures_of(found.server))
    assert "refused: 2 (token), 1 (name)" in table(status)
    status["refusals"] = dict.fromkeys(KINDS, 0)
    assert "refused: " not in table(status)


async def test_an_agent_logs_each_refusal_and_why_it_closed_a_stream(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that sends a message which only a host may send loses its connection, with the reason in the log."""
    caplog.set_level(logging.WARNING)
    async with cluster(tmp_path) as found:
        for address in (found.agents[0].address, found.server.address):
            await stream(address, "host/1", token="")
        assert [agent.node.refusals.totals["name"] for agent in found.agents.values()] == [1, 0]
        await stream(found.server.address, WHO, NONSENSE, token="")
        await wait_until(lambda: lines_of(caplog, "malformed"))
        assert "'who/7777" in lines_of(caplog, "malformed")[0]
        assert "only the controller sends a Address" in lines_of(caplog, "malformed")[0]
        user = found.user()
        await wait_until(lambda: user.remote.client.number)
        found.server.node.feed(_lie(found, user.remote.client.number))
        await wait_until(lambda: lines_of(caplog, "protocol"))
        assert "is not registered" in lines_of(caplog, "protocol")[0]
        assert "ipv4:127.0.0.1:" in lines_of(caplog, "protocol")[0]


def _lie(found: Cluster, number: int) -> e.MessageReceived:
    (session,) = (each for each in found.server.controller.state.sessions.values() if each.number == number)
    return e.MessageReceived(session.peer, m.Submit(1, 99, (), ()))


async def test_a_mistaken_request_of_a_known_caller_is_answered_and_is_no_refusal(tmp_path: Path) -> None:
    async with cluster(tmp_path, agents=False) as found, Access().channel(found.server.address) as channel:
        for request in (Find("0"), CancelCall("nobody")):
            with pytest.raises(CallError):
                await ask(channel, Access(), request)
        assert not +found.server.refusals.totals
