"""Hosts keep the times of their gangs, and give them only to the client of the runs. A trace shows them in one
clock."""

from __future__ import annotations

import asyncio
import copy
import random
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seaway as sw
from backend.admin import trace_export
from backend.auth.access import Access
from backend.devices import gang_times
from backend.devices.gang_times import ROOM, RUNS, GangTimes, stretches, taken
from backend.node.calls import CallError, ask
from backend.streams import StreamRefused, dial
from backend.wire import call_messages, framing
from backend.wire.call_messages import GangTimesReply, Permit
from core.record.clocks import ClockExchange, PeerClock
from tests.backend.auth.nonsense import nonsense
from tests.backend.cluster import User, cluster, wait_until
from tests.backend.real import Real
from tests.backend.test_faults import register, runs

S = 1_000_000_000
MS = 1_000_000
WORST = 10 * S  # longest wait for an answer, on a busy machine


# --- what hosts keep of their gangs ---------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=60),
    st.sets(st.integers(0, 12)), st.integers(1, 20), st.integers(0, 30),
)  # fmt: skip
def test_the_last_gangs_are_kept_and_only_those_of_the_requested_runs_are_returned(
    gangs: list[tuple[int, bool]], wanted: set[int], room: int, most: int
) -> None:
    kept = GangTimes(room=room)
    for seq, (run, collective) in enumerate(gangs):
        kept.took(seq, run, 10 * seq, 10 * seq + 5, collective)
    told = [tuple(row) for row in kept.of(stretches(wanted), most).tolist()]
    last = [
        (seq, run, 10 * seq, 10 * seq + 5, int(collective))
        for seq, (run, collective) in list(enumerate(gangs))[-room:]
        if run in wanted
    ]
    assert told == (last[-most:] if most else [])
    assert len(kept) == min(len(gangs), room)


@given(st.lists(st.integers(0, 40)))
def test_ranges_of_runs_contain_all_given_runs_and_no_others(some: list[int]) -> None:
    found = stretches(some)
    assert [run for low, high in found for run in range(low, high)] == sorted(set(some))
    assert all(before[1] < after[0] for before, after in pairwise(found))


def test_a_permit_is_bounded_and_has_the_latest_runs() -> None:
    found = stretches(range(0, 4 * RUNS, 2))
    assert len(found) == RUNS
    assert found[-1] == (4 * RUNS - 2, 4 * RUNS - 1)


def answer_with(**changed: Any) -> call_messages.Stamped:
    clock = PeerClock()
    clock.heard(ClockExchange(0, 1000, 1000, 10))
    readings = struct.pack("<3q", *clock.readings[0])
    known = {"records": gang_times.RECORD.pack(7, 1, 100, 200, 1), "readings": readings, "since": -1, "rate": 200}
    return call_messages.Stamped(**{**known, **changed})


def test_times_of_a_host_are_converted_to_the_controllers_clock() -> None:
    assert taken(3, answer_with()) == [gang_times.Taken(3, 7, 1095, 1195, 7, True)]
    assert taken(3, answer_with(since=150)) == []  # when it was enqueued is unknown
    assert taken(3, answer_with(readings=b"")) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"records": bytes(32)}, {"readings": bytes(23)}, {"readings": struct.pack("<3q", 0, 5, 4)},
        {"readings": struct.pack("<6q", 9, 0, 0, 8, 0, 0)}, {"readings": struct.pack("<3q", 0, 1 << 62, 1 << 62)},
    ],
)  # fmt: skip
def test_times_that_no_host_can_have_measured_are_refused(changed: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match=r"are no|cannot be|is no time"):
        taken(3, answer_with(**changed))


# --- which clients get them -------------------------------------------------------------------------------------------


async def times_for(user: User, address: str, *others: tuple[int, str]) -> gang_times.Fetched:
    number = user.remote.client.number
    permitted = await user.head.ask(Permit(((number, user.remote.node.passes[f"client/{number}"]), *others)), 10.0)
    return await gang_times.fetched({0: address}, user.head.access, permitted, ROOM, 10.0)


async def test_a_client_gets_the_times_of_its_own_gangs_and_of_no_others(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        ann, bob = found.user("ann"), found.user("bob")
        for user, length in ((ann, 3), (bob, 5)):
            await runs(user, register(user, length))
        await wait_until(lambda: all(agent.clock.clock.readings for agent in found.agents.values()))
        address = found.agents[0].address
        mine, theirs = await times_for(ann, address), await times_for(bob, address)
        assert (len(mine.rows), len(theirs.rows)) == (3, 5)
        assert not {row.seq for row in mine.rows} & {row.seq for row in theirs.rows}
        number = bob.remote.client.number
        for shown in ("", "0" * 64, ann.remote.node.passes[f"client/{ann.remote.client.number}"]):
            with pytest.raises(CallError, match=f"the pass of client {number} is wrong"):
                await times_for(ann, address, (number, shown))
        # Nor can a client add runs to those that the controller has signed.
        permitted = await ann.head.ask(Permit(()), 10.0)
        assert permitted.runs == b""
        forged = call_messages.Permitted(struct.pack("<2q", 0, 1 << 40), permitted.proof)
        none = await gang_times.fetched({0: address}, Access(), forged, ROOM, 10.0)
        assert (none.rows, none.missing) == ([], {0: "the controller has not signed this"})


async def test_a_host_that_does_not_answer_is_named_and_the_others_still_answer(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user()
        await runs(user, register(user, 2))
        await wait_until(lambda: found.agents[1].clock.clock.readings)
        permitted = await user.head.ask(
            Permit(((user.remote.client.number, user.remote.node.passes["client/1"]),)), 10.0
        )
        addresses = {0: "127.0.0.1:1", 1: found.agents[1].address}
        seen = await gang_times.fetched(addresses, Access(), permitted, ROOM, 2.0)
        assert [row.host for row in seen.rows] == [1, 1]
        assert list(seen.missing) == [0]


async def test_strangers_get_nothing_from_a_host_and_harm_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path, access=Access("sesame")) as found:
        user, chance = found.user(), random.Random(1)
        await runs(user, register(user, 1))
        kind = GangTimesReply
        assert await refused(found.agents[0].address, Access(), kind, b"") == "token"
        for _ in range(100):
            said = await refused(found.agents[0].address, Access("sesame"), kind, nonsense(chance))
            assert said in ("malformed", "pass")
        large = bytes(framing.MESSAGE + 1)
        assert await refused(found.agents[0].address, Access("sesame"), kind, large) == "oversized"
        with pytest.raises(CallError, match="token"):
            await ask(Access().channel(found.server.address), Access(), Permit(()))
        await runs(user, register(user, 1))


async def refused(address: str, access: Access, kind: type, request: bytes) -> str:
    """The kind of refusal of a request with these bytes."""
    with pytest.raises(StreamRefused) as error:  # noqa: PT012
        connection = await dial(address, access, "", "", asks=kind.__name__)
        connection.put(framing.REQUEST, request)
        connection.flush()
        frame = await connection.greeting()
        connection.close()
        answer = framing.read(frame.kind, frame.message)
        assert isinstance(answer, framing.Answered)
        raise StreamRefused(answer.refused, answer.text)
    return error.value.kind


# --- in a trace -------------------------------------------------------------------------------------------------------


async def test_gangs_of_a_host_with_another_clock_are_placed_correctly_in_the_trace(tmp_path: Path) -> None:
    """Two host processes, one of them twenty minutes ahead. Each gang takes 20 ms on both."""
    found = Real(tmp_path)
    try:
        found.start_controller()
        found.agent(0)
        found.agent(1, "--shift-clock", "1234.5:150")
        await found.ready()
        status = await found.until(lambda status: all(host["clock"] for host in status["islands"][0]["hosts"]))
        clock = status["islands"][0]["hosts"][1]["clock"]
        # The clock has gained 150 us a second since it was started, some seconds ago.
        assert abs(clock["offset"] - 1_234_500 * MS) <= clock["bound"] + 60 * 150_000
        trace, seen = await asyncio.to_thread(_a_program, found.address)
        _check_without_help(seen, await trace_export.fetched(found.address, Access()))
        rows, gangs = trace.hosts(), trace.gangs()
        assert rows["host"].tolist() == [0, 1] * 4
        assert (rows["inferred"] == "started").all()
        assert (gangs["inferred"] == "started").all()
        assert rows["bound_us"].between(0, WORST / 1000, inclusive="neither").all()
        assert (gangs["bound_us"] == rows.groupby("seq")["bound_us"].max().to_numpy()).all()
        _check_times(trace, rows, gangs)
        again = sw.trace.Trace.load(trace.save(tmp_path / "saved"))
        assert again.hosts().equals(rows)
        assert again.gangs().equals(gangs)
    finally:
        await found.stop()


def _a_program(address: str) -> Any:
    with sw.connect(f"grpc://{address}") as session:
        step = sw.synthetic("step", devices=sw.slice(devices=4), duration="20ms")
        x = step(np.float32(0))
        for _ in range(3):
            x = step(x)
        return session.trace, _driver(session)._seen_by_hosts


def _driver(session: sw.Session) -> Any:
    return session.driver


def _check_without_help(seen: list[gang_times.Taken], core: Any) -> None:
    """Check the times as hosts reported them, before they are combined with other knowledge."""
    gangs = {gang["seq"]: gang for gang in core.gangs.rows()}
    assert {(row.host, row.seq) for row in seen} == {(host, seq) for host in (0, 1) for seq in gangs}
    for row in seen:
        assert gangs[row.seq]["entered"] - row.bound <= row.enqueued < row.ended
        assert row.ended <= gangs[row.seq]["ended"] + row.bound
        assert 0 < row.bound < WORST


def _check_times(trace: Any, rows: Any, gangs: Any) -> None:
    ms = 1_000.0  # in microseconds
    entered = gangs.set_index("seq")["entered_us"].reindex(rows["seq"]).to_numpy()
    assert (rows["enqueued_us"] >= entered).all()
    assert (rows["ended_us"] <= trace.runs()["ended_us"].max()).all()
    for _, mine in rows.groupby("host"):
        # A host's devices run one gang after the other; the host notices each end late, if it is busy.
        assert (mine["started_us"].to_numpy()[1:] >= mine["ended_us"].to_numpy()[:-1]).all()
        span = mine["ended_us"].max() - mine["started_us"].min()
        assert 4 * 20 * ms - 2 * mine["bound_us"].max() <= span
    assert gangs["ended_us"].tolist() == rows.groupby("seq")["ended_us"].max().tolist()


def test_real_devices_are_timed_and_measured_starts_are_flagged() -> None:
    """All clocks of this machine are the same: hosts' times must lie between the controller's messages and
    reports."""
    with sw.local(hosts=2) as session:
        grow = sw.jit(lambda x: (x @ x) * 1e-3, devices=sw.slice(devices=2))
        x = grow(np.ones((64, 64), np.float32))
        for _ in range(4):
            x = grow(x)
        np.asarray(x)
        trace, driver = session.trace, _driver(session)
        _check_without_help(driver._seen_by_hosts, copy.deepcopy(driver.cluster.server.trace))
    rows, gangs = trace.hosts(), trace.gangs()
    assert len(gangs) == 5
    assert rows["host"].tolist() == [0, 1] * 5
    assert (rows["inferred"] == "started").all()
    assert (gangs["inferred"] == "started").all()
    assert (rows["started_us"] >= rows["enqueued_us"]).all()
    assert (rows["ended_us"] >= rows["started_us"]).all()
    assert trace.intervals()["ended_us"].max() == rows["ended_us"].max()
    after = driver.trace()  # the hosts are gone, but their times are kept
    assert after.hosts()[["seq", "host"]].equals(rows[["seq", "host"]])
