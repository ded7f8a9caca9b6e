"""The controller learns the offset of each host's clock, whatever the clocks and whatever the answers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from backend.admin import metrics
from backend.auth import access
from backend.auth.access import Access
from backend.node import clock_sync
from backend.node.calls import SERVICE, CallError, new_server
from backend.node.clock_sync import Clocks, HostClock, shifted
from backend.server.cluster_status import figures_of
from backend.wire.call_messages import Tick, Tock
from core.record.clocks import drift
from seaway.cli.status import table
from tests.backend.cluster import cluster, wait_until

S = 1_000_000_000
MS = 1_000_000
SECRET = b"sesame"
AHEAD = 1234 * S
WORST = 10 * S  # longest wait for an answer, on a busy machine


def proof(*hosts: int) -> str:
    return access.proof(SECRET, f"clock/{','.join(map(str, hosts))}")


async def test_the_offset_of_a_clock_that_is_ahead_and_fast_is_found_within_the_bound(tmp_path: Path) -> None:
    """On one machine all monotonic clocks are the same, so the true offset is the one that the test has added."""
    async with cluster(tmp_path, agents=False) as found:
        clock = shifted(f"{AHEAD / S:g}:100")
        await found.agent(0, clock=HostClock(clock))
        await found.agent(1)
        clocks = found.server.clocks
        last: dict[int, Any] = {}

        def told_more() -> bool:
            return all(host in clocks._told and clocks._told[host] != last.get(host) for host in (0, 1))

        for _ in range(5):
            await wait_until(told_more)
            last.update(clocks._told)
            for host, now in ((0, clock), (1, time.monotonic_ns)):
                begun, known = clocks.now(), clocks.of(host)
                before, shown, after = clocks.now(), now(), clocks.now()
                assert known is not None
                low, high = shown - after, shown - before  # the truth lies between these
                gained = drift(after - begun, 100)
                assert low - known["bound"] - gained <= known["offset"] <= high + known["bound"]
                assert (known["bound"] < WORST, known["jumps"]) == (True, 0)


async def test_status_and_metrics_show_the_clock_offsets(tmp_path: Path) -> None:
    async with cluster(tmp_path, agents=False) as found:
        await found.agent(0, clock=HostClock(shifted("1000")))
        await wait_until(lambda: found.server.clocks.of(0))
        status = figures_of(found.server)
        known, unknown = (host["clock"] for host in status["islands"][0]["hosts"])
        assert abs(known["offset"] - 1000 * S) <= known["bound"]
        assert unknown is None
        figures = metrics.text_of(status)
        offset = re.search(r'^seaway_clock_offset_seconds\{host="0"\} (\S+)$', figures, re.MULTILINE)
        bound = re.search(r'^seaway_clock_bound_seconds\{host="0"\} (\S+)$', figures, re.MULTILINE)
        assert offset is not None
        assert bound is not None
        assert (float(offset[1]), float(bound[1])) == (known["offset"] / S, known["bound"] / S)
        assert 'host="1"' not in figures
        shown = [f"{known[name] / MS:,.3f}" for name in ("offset", "bound")]
        assert ["0", shown[0], "ms", shown[1], "ms"] in [line.split() for line in table(status).splitlines()]


def test_with_many_hosts_status_shows_those_with_the_least_known_clocks() -> None:
    known = [{"offset": 0, "bound": host * MS, "jumps": int(host == 19)} for host in range(20)]
    hosts = [{"host": host, "connected": True, "clock": clock} for host, clock in enumerate(known)]
    island = {
        "name": "i0", "phase": "running", "epoch": 0, "hosts": hosts, "devices": 20, "under_way": 0, "late": [],
        "stalled": 0,
    }  # fmt: skip
    found = {
        "islands": [island], "clients": [], "buffers": 0, "contents_through_controller": 0, "said": [],
        "stalled": [], "stalled_elsewhere": 0, "waits": [], "refused": [],
    }  # fmt: skip
    lines = table(found).splitlines()
    assert [line.split()[0] for line in lines if line.endswith(" ms")] == [str(each) for each in range(12, 19)]
    assert next(line for line in lines if line.startswith("19 ")).endswith("19.000 ms  has jumped 1 time")
    assert "  and 12 hosts with narrower bounds" in lines
    island["hosts"] = [{**host, "clock": None} for host in hosts]
    assert "ahead" not in table(found)


def test_the_bound_of_an_offset_grows_with_its_age() -> None:
    now = [10 * S]
    clocks = Clocks(2, SECRET, lambda: now[0])

    async def told() -> Tock:
        return await clocks.answer(Tick((1,), proof(1), 9 * S, S, 1000))

    tock = asyncio.run(told())
    assert (tock.received, tock.sent) == (10 * S, 10 * S)
    # The clock here said 10 s, less 1 us at the earliest, when the host knew that.
    assert clocks.of(1) == {"offset": -S, "bound": 1000 + 1, "jumps": 0}
    now[0] += 5 * S
    assert clocks.of(1) == {"offset": -S, "bound": 1000 + MS + 1, "jumps": 0}
    assert clocks.of(0) is None


def test_the_more_processes_ask_the_longer_each_of_them_pauses() -> None:
    now = [0]
    clocks = Clocks(1000, SECRET, lambda: now[0])

    def pause(host: int) -> float:
        return asyncio.run(clocks.answer(Tick((host,), proof(host), 0, 0, -1))).pause / S

    assert pause(0) == clock_sync.PAUSE
    assert [pause(host) for host in range(512)][-1] == 512 * clock_sync.EACH
    now[0] = 2 * clock_sync.LATELY
    assert pause(0) == clock_sync.PAUSE
    many = tuple(range(512))  # of one process
    assert asyncio.run(clocks.answer(Tick(many, proof(*many), 0, 0, -1))).pause / S == clock_sync.PAUSE


@pytest.mark.parametrize(
    ("tick", "says"),
    [
        (Tick((0,), "", 0, 0, 5), "only hosts"),
        (Tick((0,), proof(1), 0, 0, 5), "only hosts"),
        (Tick((0, 7), proof(0, 7), 0, 0, 5), "no host 7"),
    ],
)
def test_only_a_host_with_a_valid_proof_may_report_its_clock(tick: Tick, says: str) -> None:
    clocks = Clocks(2, SECRET, time.monotonic_ns)
    with pytest.raises(CallError, match=says):
        asyncio.run(clocks.answer(tick))
    assert clocks.of(0) is None


@asynccontextmanager
async def false_controller(answer: Callable[[], bytes]) -> AsyncIterator[str]:
    """A controller whose answers about its clock are arbitrary."""

    async def handler(_: bytes, __: object) -> bytes:
        return answer()

    server = new_server()
    methods = {"Tick": grpc.unary_unary_rpc_method_handler(handler)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, methods)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


def tock(start: int = 1, ahead: int = 0, took: int = 0, pause: int = 10 * MS) -> bytes:
    now = time.monotonic_ns() + ahead
    return msgspec.msgpack.encode(Tock(start, now, now + took, pause))


@pytest.mark.parametrize(
    "wrong",
    [
        b"", b"\xc1", msgspec.msgpack.encode({"start": 1}), tock(took=3600 * S), tock(took=-1), tock(pause=0),
        tock(start=0), msgspec.msgpack.encode(Tock(1, -5, 5, 10 * MS)),
        msgspec.msgpack.encode(Tock(1, 1 << 63, 1 << 63, 10 * MS)),
    ],
    ids=["nothing", "no message", "half of one", "an hour", "backwards", "no pause", "no start", "early", "late"],
)  # fmt: skip
async def test_an_impossible_answer_is_refused_and_the_next_one_counts(
    wrong: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock_sync, "PAUSE", 0.01)
    said = [wrong]
    async with false_controller(lambda: said.pop() if said else tock()) as address:
        clock = HostClock()
        clock.join(0, SECRET, address, Access())
        await wait_until(lambda: clock.clock.readings)
        assert clock.refused == 1
        known = clock.clock.at(clock.now())
        assert known is not None
        assert abs(known.offset) <= known.bound
        await clock.leave(0)


async def test_the_clock_of_a_new_controller_is_measured_anew() -> None:
    now = [dict[str, int](start=1, ahead=0)]
    async with false_controller(lambda: tock(**now[0])) as address:
        clock = HostClock()
        clock.join(0, SECRET, address, Access())
        await wait_until(lambda: len(clock.clock.readings) > 3)
        first = clock.clock.readings[0].at
        assert clock.clock.at(first) is not None
        now[0] = {"start": 2, "ahead": AHEAD}
        await wait_until(lambda: clock.clock.since is not None and len(clock.clock.readings) > 2)
        assert clock.clock.at(first) is None  # the offset at that time is unknown now
        known = clock.clock.at(clock.now())
        assert known is not None
        assert abs(known.offset - AHEAD) <= known.bound < WORST
        assert (clock.refused, clock.clock.jumps) == (0, 0)
        now[0] = {"start": 2, "ahead": 0}  # the same clock, set back
        await wait_until(lambda: clock.clock.jumps == 1)
        await clock.leave(0)


async def test_hosts_of_one_process_ask_once_for_all(tmp_path: Path) -> None:
    async with cluster(tmp_path, hosts=4, agents=False) as found:
        clock = HostClock()
        for host in range(4):
            await found.agent(host, clock=clock)
        await wait_until(lambda: all(found.server.clocks.of(host) for host in range(4)))
        last = [found.server.clocks.of(host) for host in range(4)]
        assert len({each["offset"] for each in last if each is not None}) == 1
        assert len(found.server.clocks._heard) == 1
