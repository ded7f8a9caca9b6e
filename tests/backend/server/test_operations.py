"""Tools for operators of a cluster: metrics, health, the trace from another machine, cancelling a client's runs."""

from __future__ import annotations

import asyncio
import re
import signal
import urllib.error
import urllib.request
from pathlib import Path

import grpc
import pytest

from backend.admin import health, metrics, trace_export
from backend.auth.access import Access, AccessRefused
from backend.node.calls import CallError, ask
from backend.server.controller_cli import bounds_of
from backend.wire.call_messages import CancelCall, CancelReply, Recorded, RecordedPage, SeenReply
from core.model.errors import Impossible
from tests.backend.cluster import cluster, wait_until
from tests.backend.real import real
from tests.backend.test_faults import TINY, begun, endless, register, runs
from tests.intervals import intervals

from .test_programs import seaway

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"


async def test_prometheus_gets_metrics_and_an_operator_can_cancel_runs(tmp_path: Path) -> None:
    async with asyncio.timeout(240), real(tmp_path, options=("--metrics-port", "0")) as found:
        place = found.figures()
        user = found.user()
        short, long = register(user, 2), endless(user)
        await runs(user, short)
        await begun(found, user, long)
        # enough for half a minute, even on a slow machine
        last = [user.submit(long, TINY) for _ in range(20)][-1]
        text = await asyncio.to_thread(_get, place)
        assert figure(text, "seaway_clients") == 1
        assert figure(text, 'seaway_island_hosts_connected{island="i0"}') == 2
        assert figure(text, 'seaway_client_runs{client="ann"}') >= 1
        assert figure(text, 'seaway_run_seconds_count{client="ann"}') == 1
        assert figure(text, 'seaway_gang_seconds_count{island="i0"}') >= 2
        assert figure(text, 'seaway_device_seconds_total{client="ann",island="i0"}') > 0
        assert figure(text, "seaway_stalls_total") == 0
        assert figure(text, "seaway_contents_through_controller_bytes_total") == 0
        with pytest.raises(urllib.error.HTTPError, match="404"):
            await asyncio.to_thread(_get, place + "/other")
        said = await asyncio.to_thread(seaway, "cancel", found.address, "ann")
        assert re.fullmatch(r"client 1: [1-9]\d* runs? cancelled\n", said)
        assert (await user.blamed(last.run)).code == "cancelled"
        await runs(user, short)
        text = await asyncio.to_thread(_get, place)
        assert figure(text, 'seaway_runs_failed_total{client="ann"}') == 21
        assert figure(text, 'seaway_run_seconds_count{client="ann"}') == 2
        refused = await asyncio.to_thread(lambda: seaway("cancel", found.address, "bob", code=1))
        assert "no client is called 'bob'" in refused


def _get(place: str) -> str:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(place, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text: str = answer.read().decode()
    return text


def figure(text: str, name: str) -> float:
    """A sample's value."""
    samples = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    (value,) = [value for key, _, value in samples if key == name]
    return float(value)


@pytest.mark.parametrize(("text", "place"), [("9100", ("127.0.0.1", 9100)), ("0.0.0.0:1", ("0.0.0.0", 1))])
def test_metrics_stay_on_this_machine_unless_an_address_is_given(text: str, place: tuple[str, int]) -> None:
    assert metrics.place_of(text) == place
    assert metrics.protected(text) == (place[0] == "127.0.0.1")


@pytest.mark.parametrize("text", ["x", ":1", "1.2.3.4:70000", "-1"])
def test_an_invalid_port_is_named(text: str) -> None:
    with pytest.raises(AccessRefused, match=f"--metrics-port {text}: a port"):
        metrics.place_of(text)


async def answered(request: bytes, well: bool = True) -> bytes:
    """The first line of what the port for metrics says to it."""
    server = await metrics.serve("0", dict, lambda: well)
    async with server:
        host, _, port = metrics.address_of(server).rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        writer.write_eof()
        try:
            return (await reader.read()).split(b"\r\n")[0]
        except ConnectionError:
            return b""
        finally:
            writer.close()


async def test_a_request_for_anything_else_gets_no_metrics() -> None:
    for request in (b"", b"GET", b"POST /metrics HTTP/1.1\r\n\r\n", b"\xff" * 20_000):
        assert await answered(request) in (b"", b"HTTP/1.1 405 Method Not Allowed")


async def test_the_metrics_port_answers_probes_too() -> None:
    probe = b"GET /healthz HTTP/1.1\r\n\r\n"
    assert await answered(probe) == b"HTTP/1.1 200 OK"
    assert await answered(probe, well=False) == b"HTTP/1.1 503 Service Unavailable"


async def test_health_is_reported_for_controller_and_islands_and_a_probe_needs_no_token(tmp_path: Path) -> None:
    def request(service: str) -> bytes:
        return bytes((0x0A, len(service))) + service.encode() if service else b""

    async with (
        cluster(tmp_path, hosts=1, access=Access("sesame")) as found,
        Access().channel(found.server.address) as channel,
    ):
        check = channel.unary_unary(CHECK)
        for service in ("", "seaway.Cluster", "i0"):
            assert await check(request(service)) == health.encoded(health.SERVING)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await check(request("i7"))
        assert refused.value.code() == grpc.StatusCode.NOT_FOUND
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await check(b"\x12\x01x")
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        watch = channel.unary_stream(WATCH)(request("i0"))
        assert await watch.read() == health.encoded(health.SERVING)
        found.agents[0].leave("enough")
        async with asyncio.timeout(10):
            assert await watch.read() == health.encoded(health.NOT_SERVING)
        watch.cancel()


async def test_the_number_of_watchers_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "WATCHERS", 2)
    async with cluster(tmp_path, agents=False) as found, Access().channel(found.server.address) as channel:
        watches = [channel.unary_stream(WATCH)(b"") for _ in range(2)]
        for watch in watches:
            assert await watch.read() == health.encoded(health.SERVING)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_stream(WATCH)(b"").read()
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        for watch in watches:
            watch.cancel()

        async def again() -> bool:
            try:
                return bool(await channel.unary_stream(WATCH)(b"").read())
            except grpc.aio.AioRpcError:
                return False

        async with asyncio.timeout(10):
            while not await again():  # names of clients that have gone make room
                await asyncio.sleep(0.05)


async def test_connected_sessions_learn_how_long_steps_took(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user()
        assert (await user.head.ask(SeenReply(), 10)).seen == {}
        program = register(user, 1)
        submitted = [user.submit(program, TINY) for _ in range(300)]
        assert (await user.ended(submitted[-1].run)).blame is None
        (name, (count, median)), *others = (await user.head.ask(SeenReply(), 10)).seen.items()
        assert (name, others) == ("step", [])
        assert count > 3
        assert 500_000 < median < 50_000_000  # a step takes a millisecond


async def test_the_trace_travels_in_pages_and_arrives_unchanged(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        found.server._shelf = trace_export.SnapshotShelf(page=200)
        user = found.user()
        await runs(user, register(user, 20))
        access = found.server.access
        async with access.channel(found.server.address) as channel:
            first: RecordedPage = await ask(channel, access, Recorded())
            assert first.pages > 1
            with pytest.raises(CallError, match=f"has {first.pages} pages, and no page {first.pages}"):
                await ask(channel, access, Recorded(first.snapshot, first.pages))
            for _ in range(trace_export.KEPT):
                await ask(channel, access, Recorded())
            with pytest.raises(CallError, match="is gone: ask anew"):
                await ask(channel, access, Recorded(first.snapshot, 1))
        came = await trace_export.fetched(found.server.address, access)
        assert list(came.rows("gangs")) == list(found.server.trace.rows("gangs"))
        assert list(intervals(came)) == list(intervals(found.server.trace))
        assert len(came) == 20


async def test_one_run_of_a_client_is_cancelled_and_the_others_go_on(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user()
        program = register(user, 300)
        first, second = user.submit(program, TINY), user.submit(program, TINY)
        await wait_until(lambda: len(found.server.controller.state.runs) == 2)
        access = found.server.access
        async with access.channel(found.server.address) as channel:
            done: CancelReply = await ask(channel, access, CancelCall("ann", second.run))
            assert done.runs == (second.run,)
        blame = await user.blamed(second.run)
        assert blame.code == "cancelled"
        assert (await user.ended(first.run)).blame is None


@pytest.mark.parametrize(("seconds", "floor"), [(600, 5_000_000_000), (30, 5_000_000_000), (2, 2_000_000_000)])
def test_a_hard_bound_is_kept_as_given(seconds: float, floor: int) -> None:
    bounds = bounds_of(seconds)
    assert bounds.floor == floor
    assert bounds.hard * bounds.soft(0) == seconds * 1_000_000_000


def test_an_impossible_hard_bound_is_named() -> None:
    with pytest.raises(Impossible, match="--hard-bound 0: seconds, more than 0"):
        bounds_of(0)


async def test_a_step_that_exceeds_its_hard_bound_is_given_up_by_name(tmp_path: Path) -> None:
    """Its host reports that it has launched, and never that it has finished."""

    async with asyncio.timeout(240), real(tmp_path, lease=60.0, options=("--hard-bound", "1")) as found:
        user = found.user()
        run = await begun(found, user, endless(user))
        found.agents[1].signal(signal.SIGSTOP)
        assert (await user.blamed(run.run)).code == "timeout"
