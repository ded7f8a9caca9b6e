"""What metrics show: how long runs and gangs took, device time and memory by client and island; all of it bounded."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import protocol as p
from core.controller import BOUNDS
from core.controller.meters import MOST, OTHERS, ClientFigures, IslandFigures
from core.controller.records import Histogram
from core.model import SliceSpec, Value, small
from core.schedule.policy import Stride
from tests.core.build import Build
from tests.core.relocation.test_moves import operate, where
from tests.core.views.rig import begun
from tests.golden.failing import _steps
from tests.golden.running import _zeros
from tests.laws import examples
from tests.world.world import World

from .rig import Rig, S

ANN, BOB, FIRST = 1, 2, 1000  # connections, and the first of many
MS = 1_000_000


def rig(hosts: int = 1, **options: Any) -> Rig:
    made = Rig(hosts, **options)
    for peer, name in ((ANN, "ann"), (BOB, "bob")):
        made.say(peer, p.Open(name))
    return made


def register(at: Rig, peer: int, devices: int = 1, gangs: int = 1) -> None:
    build = Build("work", s=devices)
    value = build.arg("s", 8, split="0")
    for number in range(gangs):
        value = build.call("make", "s", [value], node=f"make {number}")
    at.say(peer, p.Register(1, build.program(value)))


def submit(at: Rig, peer: int, run: int) -> p.GangStep:
    """Returns its first gang, which must have entered."""
    before = len(at.gangs)
    at.say(peer, p.Submit(run, 1, (bytes(32),), (run,)))
    return at.gangs[before]


def clients(at: Rig) -> list[ClientFigures]:
    return at.controller.meters.shown(at.now)[1]


def client(at: Rig, name: str = "ann") -> ClientFigures:
    (found,) = (each for each in clients(at) if each.meter.name == name)
    return found


def island(at: Rig, index: int = 0) -> IslandFigures:
    return at.controller.meters.shown(at.now)[0][index]


def times(of: Histogram) -> tuple[list[int], int]:
    """The bounds within which its times are (-1: beyond all), and their sum."""
    bounds = (*BOUNDS, -1)
    return [bounds[at] for at, count in enumerate(of.counts) for _ in range(count)], of.total


# --- times ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time", "bound"), [(0, 100_000), (100_000, 100_000), (100_001, 200_000), (10**12, 10**12), (10**12 + 1, -1)]
)
def test_a_time_is_counted_up_to_the_bound_that_it_does_not_exceed(time: int, bound: int) -> None:
    at = rig()
    register(at, ANN)
    gang = submit(at, ANN, 1)
    at.now += time
    at.done(0, gang)
    for found in (client(at).meter.run_time, island(at).gang_time):
        assert times(found) == ([bound], time)


def test_bounds_are_from_a_tenth_of_a_millisecond_to_a_quarter_of_an_hour() -> None:
    assert (BOUNDS[0], BOUNDS[1], BOUNDS[2], BOUNDS[-1]) == (100_000, 200_000, 500_000, 1000 * S)
    assert list(BOUNDS) == sorted(set(BOUNDS))


def test_a_run_waits_for_its_devices_and_its_time_is_from_the_call_to_the_end() -> None:
    at = rig()
    for peer in (ANN, BOB):
        register(at, peer)
    first, second = submit(at, ANN, 1), submit(at, BOB, 2)
    at.now += 3 * MS
    at.done(0, first)
    at.now += 4 * MS
    at.done(0, second)
    assert times(client(at).meter.wait_time) == ([100_000], 0)
    assert times(client(at).meter.run_time) == ([5 * MS], 3 * MS)
    assert times(client(at, "bob").meter.wait_time) == ([5 * MS], 3 * MS)
    assert times(client(at, "bob").meter.run_time) == ([10 * MS], 7 * MS)
    assert times(island(at).gang_time) == ([5 * MS, 5 * MS], 7 * MS)


def test_a_run_of_several_gangs_has_one_wait_and_one_time() -> None:
    at = rig()
    register(at, ANN, gangs=3)
    submit(at, ANN, 1)
    for gang in at.gangs:
        at.now += 2 * MS
        at.done(0, gang)
    assert times(client(at).meter.wait_time) == ([100_000], 0)
    assert times(client(at).meter.run_time) == ([10 * MS], 6 * MS)
    assert times(island(at).gang_time) == ([2 * MS] * 3, 6 * MS)


def test_a_run_that_fails_or_is_cancelled_is_counted_apart() -> None:
    at = rig()
    register(at, ANN)
    gang = submit(at, ANN, 1)
    at.done(0, gang, p.Blame("user", "no"))
    submit(at, ANN, 2)
    at.say(ANN, p.Cancel(2))
    found = client(at)
    assert (found.meter.failed, times(found.meter.run_time), found.runs) == (2, ([], 0), 0)


def test_copies_of_arrays_that_move_are_no_runs_of_the_client() -> None:
    made, a = begun(hosts=4)
    kept = a.whole()
    assert made.run()
    (before,) = made.machine.meters.shown(made.now)[1]
    assert operate(made, "move") == ""
    assert made.run()
    assert where(made, kept) == [4, 5, 6, 7]
    (after,) = made.machine.meters.shown(made.now)[1]
    for meter in (before.meter, after.meter):
        assert (sum(meter.run_time.counts), sum(meter.wait_time.counts), meter.failed) == (1, 1, 0)


# --- device time ------------------------------------------------------------------------------------------------------


def test_device_time_is_known_while_a_gang_has_its_devices() -> None:
    at = rig(2)
    register(at, ANN, devices=2)
    gang = submit(at, ANN, 1)
    at.now += 30 * S
    assert client(at).meter.shown_time == {0: 60 * S}
    at.now += 10 * S
    for host in (0, 1):
        at.done(host, gang)
    at.now += 10 * S
    assert client(at).meter.shown_time == {0: 80 * S}


def test_what_is_behind_in_the_order_has_no_devices_yet() -> None:
    at = rig()
    for peer in (ANN, BOB):
        register(at, peer)
        submit(at, peer, 1)
    at.now += S
    assert (client(at).meter.shown_time, client(at, "bob").meter.shown_time) == ({0: S}, {})


def test_a_counter_does_not_fall_when_a_later_gang_is_reported_over_first() -> None:
    """Ann's gang has ended on host 0 and not on host 1, and Bob's behind it on host 0 is over before."""
    at = rig(2)
    register(at, ANN, devices=2)
    register(at, BOB, devices=1)
    wide, narrow = submit(at, ANN, 1), submit(at, BOB, 2)
    at.now += 4 * S
    at.done(0, wide)
    before = client(at).meter.shown_time[0]
    assert before == 8 * S
    at.done(narrow.hosts[0][0], narrow)
    assert client(at).meter.shown_time[0] == before
    at.now += S
    at.done(1, wide)
    assert client(at).meter.shown_time[0] == before
    assert client(at, "bob").meter.shown_time == {0: 4 * S}


@examples(20)
@given(st.integers(0, 1 << 32).map(Random))
def test_clients_and_accounts_have_had_the_same_device_time_whatever_fails(rng: Random) -> None:
    world = World(small(2, 2, 2), seed=rng.getrandbits(32), policy=Stride)
    program = _steps(2, devices=rng.choice((1, 2, 4)))
    clients = [world.client(f"c{number}") for number in range(rng.randint(1, 4))]
    calls = [rng.choice(clients).submit(program, *_zeros(program)) for _ in range(rng.randint(1, 20))]
    world.run_for(rng.randrange(3 * MS))
    if rng.random() < 0.5:
        world.crash_host(rng.randrange(4))
    seen: dict[tuple[str, int], int] = {}
    for _ in range(10):
        world.run_for(rng.randrange(2 * MS))
        meters = [each.meter for each in world.machine.meters.shown(world.now)[1]]
        now = {(each.name, island): time for each in meters for island, time in each.shown_time.items()}
        assert all(now[key] >= time for key, time in seen.items())
        seen = now
    world.run()
    meters = [each.meter for each in world.machine.meters.shown(world.now)[1]]
    ended = [run.blame is not None for run in calls if run.ended]
    assert sum(each.failed for each in meters) == sum(ended)
    assert sum(sum(each.run_time.counts) for each in meters) == len(ended) - sum(ended)
    (account,) = world.machine.accounts.shown(world.now)
    assert sum(sum(each.device_time.values()) for each in meters) == account.used.device_time


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_is_shown_by_island_and_by_the_client_that_has_names_for_it() -> None:
    at = rig(2, memory=1 << 20)
    at.say(ANN, p.Put(1, Value((1024,), "float32"), SliceSpec("s", 2)))
    assert (island(at).memory_used, island(at).memory_reserved) == (8192, 8192)
    assert (client(at).memory, client(at, "bob").memory) == (8192, 0)
    at.say(ANN, p.Release((1,)))
    assert client(at).memory == 0


def test_memory_that_a_run_may_still_add_is_reserved() -> None:
    at = rig(1)
    register(at, ANN, gangs=20)  # more than the window lets in
    submit(at, ANN, 1)
    assert island(at).memory_reserved >= island(at).memory_used > 0


# --- names ------------------------------------------------------------------------------------------------------------


def test_sessions_of_one_name_are_counted_together_also_after_they_have_left() -> None:
    at = rig()
    at.say(3, p.Open("ann"))
    for peer in (ANN, 3):
        register(at, peer)
        at.done(0, submit(at, peer, peer))
    assert (client(at).programs, sum(client(at).meter.run_time.counts)) == (2, 2)
    for peer in (ANN, 3):
        at.say(peer, p.CloseSession())
    assert (client(at).programs, sum(client(at).meter.run_time.counts)) == (0, 2)


def test_a_client_that_is_gone_makes_room_for_another_name_and_the_longest_gone_first() -> None:
    at = Rig(1)
    for number in range(2 * MOST):
        at.say(FIRST + number, p.Open(f"c{number}"))
        at.say(FIRST + number, p.CloseSession())
    assert [each.meter.name for each in clients(at)] == [f"c{number}" for number in range(MOST, 2 * MOST)]


def test_more_names_than_are_counted_are_counted_together() -> None:
    at = Rig(1)
    for number in range(MOST + 3):
        at.say(FIRST + number, p.Open(f"c{number}"))
        register(at, FIRST + number)
    assert (len(clients(at)), client(at, OTHERS).programs) == (MOST + 1, 3)
    at.done(0, submit(at, FIRST + MOST + 1, 1))
    assert sum(client(at, OTHERS).meter.run_time.counts) == 1
    at.say(FIRST, p.CloseSession())
    at.say(FIRST - 1, p.Open("late"))
    names = [each.meter.name for each in clients(at)]
    assert ("late" in names, "c0" in names, len(names)) == (True, False, MOST + 1)
