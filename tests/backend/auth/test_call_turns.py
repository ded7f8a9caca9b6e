"""Turns of calls: no call takes another's turn or waits for ever, and all calls together take no more than their
share."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import grpc
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.auth import call_turns
from backend.auth.access import Access
from backend.auth.call_turns import AT_ONCE, CALL, READERS, Busy, CallTurns, Meter, TurnGate
from backend.node.calls import SERVICE, ask
from backend.wire.call_messages import Status
from tests.backend.cluster import cluster, wait_until

MS = 1_000_000


def spend(turns: CallTurns[str], until: int, cost: int, step: int = MS // 10) -> list[tuple[str, str]]:
    """Gives turns until a time. Each call costs `cost` beside the fixed cost, and another of its connection
    follows it."""
    had, now = [], 0
    while now < until:
        while (found := turns.next(now)) is not None:
            who, host, address = found
            had.append((host, address))
            turns.wait(host, address, who)
            turns.charge(host, address, cost)
        now += step
    return had


def test_all_calls_together_take_their_part_of_the_time_and_no_more() -> None:
    turns: CallTurns[str] = CallTurns(0)
    for number in range(100):
        turns.wait("flood", f"flood:{number}", "x")
    had = spend(turns, 1000 * MS, 200_000)
    spent = len(had) * (CALL + 200_000)
    assert abs(spent - (call_turns.SHARE * 1000 * MS + call_turns.BURST)) < 2 * MS


def test_connections_have_equal_turns_even_if_one_host_has_many() -> None:
    turns: CallTurns[str] = CallTurns(0)
    for number in range(200):
        turns.wait("flood", "flood:1", f"call {number}")
    turns.wait("flood", "flood:2", "a call")
    turns.wait("good", "good:1", "a call")
    had = Counter(spend(turns, 1000 * MS, 0))
    assert abs(had["good", "good:1"] - had["flood", "flood:1"] - had["flood", "flood:2"]) <= 2
    assert abs(had["flood", "flood:1"] - had["flood", "flood:2"]) <= 2


def test_a_connection_with_expensive_calls_has_fewer_turns() -> None:
    turns: CallTurns[str] = CallTurns(0)
    turns.wait("costly", "costly:1", "c")
    turns.wait("costly", "costly:1", "c")
    turns.wait("cheap", "cheap:1", "c")
    turns.wait("cheap", "cheap:1", "c")
    had: Counter[str] = Counter()
    for now in range(0, 4000 * MS, MS):
        found = turns.next(now)
        if found is not None:
            _, host, address = found
            had[host] += 1
            turns.wait(host, address, "c")
            turns.charge(host, address, 9 * CALL if host == "costly" else 0)
    assert 8 < had["cheap"] / had["costly"] < 12


def test_when_the_queue_is_full_the_last_call_of_the_busiest_host_is_refused() -> None:
    turns: CallTurns[str] = CallTurns(0, room=10)
    assert [turns.wait("flood", f"flood:{at % 2}", f"f{at}") for at in range(10)] == [None] * 10
    assert turns.wait("good", "good:1", "g") in ("f8", "f9")
    assert turns.wait("flood", "flood:3", "f10") in ("f6", "f7", "f8", "f9")
    assert len(turns) == 10


CALLS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 5 * MS), st.sampled_from("wwwnf")), max_size=200
)


@given(CALLS)
def test_each_call_has_one_turn_or_is_refused_or_gives_up(calls: list[tuple[int, int, int, str]]) -> None:
    turns: CallTurns[int] = CallTurns(0, room=20)
    waiting: dict[int, tuple[str, str]] = {}
    now = 0
    for number, (host, connection, pause, what) in enumerate(calls):
        now += pause
        if what == "w":
            waiting[number] = (str(host), f"{host}:{connection}")
            out = turns.wait(*waiting[number], number)
            if out is not None:
                del waiting[out]
        elif what == "n" and (found := turns.next(now)) is not None:
            assert waiting.pop(found[0]) == found[1:]
            turns.charge(*found[1:], pause)
        elif what == "f" and waiting:
            gone = next(iter(waiting))
            turns.forget(*waiting.pop(gone), gone)
        assert len(turns) == len(waiting) <= 20
    while waiting:
        due = turns.ready_at(now)
        assert due is not None
        now = max(now, due)
        found = turns.next(now)
        assert found is not None, "a call was said to be ready"
        assert waiting.pop(found[0]) == found[1:]
    assert not turns._hosts
    assert turns.ready_at(now) is None


async def test_a_meter_counts_what_a_coroutine_does_and_not_what_runs_while_it_waits() -> None:
    clock = [0]

    def works(for_so_long: int) -> None:
        clock[0] += for_so_long

    async def other() -> None:
        works(1000)

    async def work() -> str:
        works(5)
        await asyncio.gather(other())
        with pytest.raises(ValueError, match="no"):
            await fails()
        works(7)
        return "done"

    async def fails() -> None:
        await asyncio.sleep(0)
        works(3)
        raise ValueError("no")

    meter = Meter(lambda: clock[0])
    assert await meter.of(work()) == "done"
    assert meter.spent == 15
    with pytest.raises(ValueError, match="no"):
        await meter.of(fails())
    assert meter.spent == 18


async def test_a_call_that_gives_up_leaves_no_turn_behind() -> None:
    gate, inside = TurnGate(), asyncio.Event()

    async def call(address: str) -> None:
        async with gate.turn(address):
            await inside.wait()

    tasks = [asyncio.create_task(call(f"ipv4:10.0.0.{at}:1")) for at in range(3 * AT_ONCE)]
    await wait_until(lambda: gate._inside == AT_ONCE)
    for task in tasks[::2]:
        task.cancel()
    inside.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert gate._inside == len(gate._turns) == 0
    gate.close()


async def test_a_slow_sender_delays_only_its_own_host() -> None:
    gate, come = TurnGate(), asyncio.Event()

    async def slow() -> None:
        async with gate.turn("ipv4:10.0.0.1:1") as turn, turn.reading():
            await come.wait()

    tasks = [asyncio.create_task(slow()) for _ in range(2 * READERS)]
    await wait_until(lambda: gate._reading["10.0.0.1"] == READERS)
    async with gate.turn("ipv4:10.0.0.2:1"):
        pass
    assert gate._reading["10.0.0.1"] == READERS
    come.set()
    await asyncio.gather(*tasks)
    assert not gate._reading
    assert gate._inside == 0
    gate.close()


async def test_calls_beyond_the_bound_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_turns, "SLOWLY", 0.0)
    gate, go = TurnGate(), asyncio.Event()
    gate._turns._room = 2

    async def call() -> None:
        async with gate.turn("ipv4:10.0.0.1:1"):
            await go.wait()

    tasks = [asyncio.create_task(call()) for _ in range(AT_ONCE + 3)]
    await wait_until(lambda: any(task.done() for task in tasks))
    (refused,) = [task for task in tasks if task.done()]
    with pytest.raises(Busy, match="wait already; ask again later"):
        refused.result()
    go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(task.exception() is None for task in tasks) == AT_ONCE + 2
    gate.close()


async def test_calls_under_a_flood_of_wrong_tokens_are_answered(tmp_path: Path) -> None:
    """Calls without the token wait in queues of their own, so that they take no turn of authorised callers."""
    async with cluster(tmp_path, access=Access("sesame"), agents=False) as found:
        # so little that a queue forms on any machine: the flood shares its loop with the server
        found.server.gate._turns._share = 0.02
        over = False

        async def flood(channel: grpc.aio.Channel) -> None:
            while not over:
                with pytest.raises(grpc.aio.AioRpcError):
                    await channel.unary_unary(f"/{SERVICE}/Status")(msgspec.msgpack.encode(Status()), timeout=30)

        async with Access().channel(found.server.address) as channel:
            floods = [asyncio.create_task(flood(channel)) for _ in range(100)]
            totals = found.server.refusals.totals
            await wait_until(lambda: len(found.server.gate._turns) > 75)
            before = totals["token"]
            await ask(channel, Access("sesame"), Status())
            assert totals["token"] - before < 50, "the call waited for one turn, and not for a hundred"
            over = True
            await asyncio.gather(*floods)
