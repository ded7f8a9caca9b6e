"""Accounts: a client is whose its driver says, has what its account may have, and shares with its account's others."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import protocol as p
from core.controller import HOUR, AccountView, Config, Controller
from core.controller.usage import DAY, Usage
from core.model import Account, SliceSpec, Value, small
from core.protocol import Used
from core.record import LogAbout, Recorder, decode
from core.record.eventlog import replayed
from core.schedule.policy import Stride
from tests.core.build import Build
from tests.golden.failing import _steps
from tests.golden.running import _zeros
from tests.laws import examples
from tests.world.world import World

from .rig import Rig, S

ANN, ALSO, BOB = 1, 2, 3  # connections: the first two are of one account


def rig(hosts: int = 4, **limits: Any) -> Rig:
    """Ann and Bob have accounts, with these limits each."""
    made = Rig(hosts, config=Config(accounts=True))
    for peer, name in ((ANN, "ann"), (ALSO, "ann"), (BOB, "bob")):
        made.feed(p.PeerIdentified(peer, Account(name, **({"role": "user"} | limits))))
    return made


def opened(hosts: int = 4, **limits: Any) -> Rig:
    """Their sessions are open."""
    made = rig(hosts, **limits)
    for peer, name in ((ANN, "train"), (ALSO, "eval"), (BOB, "bob")):
        made.say(peer, p.Open(name))
    made.said()
    return made


def account(of: Rig, name: str = "ann") -> AccountView:
    (found,) = (each for each in of.controller.accounts.shown(of.now) if each.limits.name == name)
    return found


def register(at: Rig, peer: int, program: int = 1, devices: int = 1, on: str = "s", size: int = 8) -> None:
    build = Build(f"work{program}", **{on: devices})
    value = build.arg(on, size, split="0")
    at.say(peer, p.Register(program, build.program(build.call("make", on, [value]))))


def refusals(of: Rig) -> list[str]:
    """Since this was asked last, calls that were refused: why."""
    return [note.blame.cause for note in of.said() if isinstance(note, p.Refused)]


# --- who is who ---------------------------------------------------------------------------------------------------


def test_a_clients_name_begins_with_its_account_and_what_the_program_says_is_a_label() -> None:
    names = {each.name: each.account for each in opened().controller.snapshot().clients}
    assert names == {"ann/train": "ann", "ann/eval": "ann", "bob": "bob"}


def test_a_weight_or_priority_above_the_highest_is_refused_by_name() -> None:
    at = rig(weight=4, priority=0)
    for peer, opening, why in (
        (ANN, p.Open("eve", weight=10**6), "it asks for weight 1000000, and the highest weight of account 'ann' is 4"),
        (ALSO, p.Open("eve", priority=1), "it asks for priority 1, and the highest priority of account 'ann' is 0"),
    ):
        at.say(peer, opening)
        assert at.said() == [p.ConnectionClosed(why, "refused")]
    at.say(BOB, p.Open("bob", weight=4, priority=-3))
    assert [each.name for each in at.controller.snapshot().clients] == ["bob"]


def test_a_viewer_opens_no_session() -> None:
    at = rig(role="viewer")
    at.say(ANN, p.Open("a"))
    assert at.said() == [
        p.ConnectionClosed("account 'ann' is a viewer's: it may look, and opens no session", "refused")
    ]


def test_where_there_are_accounts_nobody_is_let_in_without_one() -> None:
    at = Rig(1, config=Config(accounts=True))
    at.say(ANN, p.Open("a"))
    (note,) = at.said()
    assert "nobody has said whose it is" in note.reason


def test_a_session_does_not_pass_to_another_account() -> None:
    at = opened()
    at.feed(p.PeerIdentified(ANN, Account("bob", "user")))
    assert at.said() == [p.ConnectionClosed("it was opened by account 'ann', and this is 'bob'")]
    assert account(at).clients == 1


def test_without_accounts_each_client_is_its_own_as_ever() -> None:
    at = Rig(2)
    for peer in (ANN, BOB):
        at.say(peer, p.Open("a", weight=10**6, priority=1000))
    shares = [each.share for each in at.controller.state.sessions.values()]
    assert shares == [each.number for each in at.controller.state.sessions.values()]
    assert account(at, "").clients == 2


@pytest.mark.parametrize(("proved", "kept"), [(0, False), (6, False), (5, True)])
def test_a_client_comes_back_as_itself_only_if_it_has_proved_its_number(proved: int, kept: bool) -> None:
    """Else others could take what it left on hosts."""
    controller = Controller(small(1, 1), config=Config(accounts=True, recovery=1), incarnation=1, starts=(7, 8))
    controller.handle(p.PeerIdentified(ANN, Account("ann", "user"), client=proved), 0)
    controller.handle(p.MessageReceived(ANN, p.Open("a", client=5, start=7)), 0)
    controller.handle(p.Wakeup(), 10 * S)
    (client,) = controller.snapshot().clients
    assert (client.number == 5) is kept


# --- what is refused ------------------------------------------------------------------------------------------------


def test_the_devices_of_an_accounts_slices_are_counted_together_and_a_slice_beyond_is_refused() -> None:
    at = opened(devices=3)
    register(at, ANN, devices=2)
    register(at, ALSO, devices=2)
    register(at, BOB, devices=2)
    assert refusals(at) == ["account 'ann' may have 3 devices, has 2 and asks for 2 more: release a slice first"]
    at.say(ANN, p.ReleaseSlice("s"))
    register(at, ALSO, 2, devices=2)
    assert refusals(at) == []
    assert account(at).has["devices"] == 2
    assert len(at.controller.snapshot().clients) == 3


def test_a_put_on_a_slice_beyond_the_quota_is_refused() -> None:
    at = opened(devices=1)
    at.say(ANN, p.Put(1, Value((8,), "float32"), SliceSpec("s", 2)))
    assert refusals(at) == ["account 'ann' may have 1 devices, has 0 and asks for 2 more: release a slice first"]


def test_a_program_beyond_the_quota_is_refused_by_name_and_its_runs_fail_with_the_same_reason() -> None:
    at = opened(programs=1)
    register(at, ANN, 1)
    register(at, ALSO, 1)
    register(at, BOB, 1)
    assert refusals(at) == ["account 'ann' may have 1 programs, has 1 and asks for 1 more: unregister one first"]
    at.say(ALSO, p.Submit(9, 1, (bytes(32),), (0,)))
    assert at.blame(9)[0] == "refused"
    at.say(ANN, p.Unregister(1))
    register(at, ALSO, 2)
    assert refusals(at) == []
    assert account(at).has["programs"] == 1


def test_a_run_beyond_the_quota_fails_and_those_under_way_go_on() -> None:
    at = opened(runs=2)
    for peer in (ANN, ALSO, BOB):
        register(at, peer)
        for run in (10 * peer, 10 * peer + 1):
            at.say(peer, p.Submit(run, 1, (bytes(32),), (0,)))
    why = "account 'ann' may have 2 runs under way, has 2 and asks for 1 more: await one first"
    assert at.blame(20) == ("refused", why)
    assert sorted(at.ended) == [20, 21]
    assert [account(at, name).has["runs"] for name in ("ann", "bob")] == [2, 2]
    assert account(at).used.runs == 2, "what is refused is not counted"


def test_arrays_beyond_the_quota_of_device_memory_are_refused_whether_put_or_made() -> None:
    at = opened(device_memory=64)
    at.say(ANN, p.Put(1, Value((8,), "float32"), SliceSpec("s", 1)))
    at.say(ALSO, p.Put(1, Value((16,), "float32"), SliceSpec("s", 1)))
    assert refusals(at) == [
        "account 'ann' may have 64 bytes of arrays, has 32 bytes and asks for 64 bytes more: release some first"
    ]
    register(at, ANN, on="s", size=12)
    at.say(ANN, p.Submit(5, 1, (bytes(48),), (50,)))
    assert at.blame(5)[0] == "refused"
    at.say(ANN, p.Release((1,)))
    at.say(ANN, p.Submit(6, 1, (bytes(48),), (60,)))
    assert 6 not in at.ended
    assert account(at).has["device_memory"] == 48


def test_a_quota_counts_what_clients_hold_so_a_loop_that_donates_its_state_has_room() -> None:
    at = opened(device_memory=32)
    build = Build("step", s=1)
    state = build.arg("s", 8, donate=True)
    at.say(ANN, p.Put(1, state.value, build.slices[0]))
    at.say(ANN, p.Register(1, build.program(build.call("step", "s", [state], donate=(0,)))))
    for run in range(1, 6):
        at.say(ANN, p.Submit(run, 1, (run,), (run + 1,)))
    assert not at.ended
    assert account(at).has["device_memory"] == 32


def test_an_account_with_too_much_in_hosts_memory_makes_nothing_more() -> None:
    at = opened(host_memory=10)
    at.say(ANN, p.Put(1, Value((8,), "float32"), SliceSpec("s", 1)))
    number = at.controller.state.by_peer[ANN].number
    at.controller.accounts._spill.spilled_bytes[number] = 32  # as if it had been spilled
    at.say(ALSO, p.Put(1, Value((8,), "float32"), SliceSpec("s", 1)))
    assert refusals(at) == [
        "account 'ann' may have 10 bytes of arrays in hosts' memory or on their disks, has 32 bytes: release some first"
    ]


def run_for(at: Rig, peer: int, run: int, seconds: int) -> None:
    at.say(peer, p.Submit(run, 1, (bytes(32),), (0,)))
    if run not in at.ended:
        at.now += seconds * S
        at.done(at.gangs[-1].hosts[0][0], at.gangs[-1])


def test_when_the_device_seconds_of_a_day_are_used_up_runs_fail_and_are_told_when_they_may_run_again() -> None:
    at = opened(1, device_seconds=100)
    for peer in (ANN, BOB):
        register(at, peer)
    run_for(at, ANN, 1, 60)
    run_for(at, ANN, 2, 60)
    run_for(at, ANN, 3, 60)
    assert at.blame(3) == (
        "refused",
        "account 'ann' has used its 100 device-seconds of 24 hours; it may run programs again in 23 h 58 min",
    )
    run_for(at, BOB, 4, 1)
    assert at.ended[4] is None
    at.now = DAY * HOUR
    run_for(at, ANN, 5, 1)
    assert at.ended[5] is None


# --- what is used ----------------------------------------------------------------------------------------------------


def test_a_gang_is_charged_from_when_its_devices_were_free_for_it() -> None:
    at = opened(1)
    for peer in (ANN, BOB):
        register(at, peer)
        at.say(peer, p.Submit(peer, 1, (bytes(32),), (0,)))
    first, second = at.gangs
    at.now += 3 * S
    at.done(0, first)
    at.now += 2 * S
    at.done(0, second)
    assert [account(at, name).used.device_time for name in ("ann", "bob")] == [3 * S, 2 * S]


def test_contents_that_clients_put_and_get_are_counted() -> None:
    at = opened(1)
    at.say(ANN, p.Put(1, Value((8,), "float32"), SliceSpec("s", 1)))
    at.done(0, next(step for step in at.steps if isinstance(step, p.RecvStep)))
    at.say(ANN, p.Get(1, 1))
    at.done(0, next(step for step in at.steps if isinstance(step, p.SendStep)))
    assert account(at).used == Used(bytes_in=32, bytes_out=32)


def test_what_was_used_before_a_restart_is_known_again() -> None:
    before = opened(1)
    register(before, ANN)
    run_for(before, ANN, 1, 60)
    after = Rig(1, config=Config(accounts=True))
    after.feed(p.UsageKnown(tuple(before.controller.accounts.rows())))
    after.feed(p.PeerIdentified(ANN, Account("ann", "user")))
    assert account(after).used == Used(60 * S, runs=1)


@given(
    st.lists(st.tuples(st.integers(0, 60 * HOUR), st.integers(1, 100)), max_size=12).map(sorted), st.integers(1, 300)
)
def test_a_day_is_over_when_the_error_says_so_and_not_before(uses: list[tuple[int, int]], limit: int) -> None:
    usage, now = Usage(), 0
    for now, seconds in uses:
        usage.add(Used(seconds), now)
    again = usage.again_at(limit, now)
    assert usage.since(DAY, again).device_time < limit
    assert again == now or usage.since(DAY, again - 1).device_time >= limit
    assert usage.total.device_time == sum(seconds for _, seconds in uses)


# --- shares ----------------------------------------------------------------------------------------------------------


def test_two_sessions_of_an_account_have_one_share() -> None:
    accounts = {name: Account(name[0], "user") for name in ("a1", "a2", "b1")}
    world = World(small(1, 1), policy=Stride, accounts=accounts)
    program = _steps(1, devices=1, cost=10_000_000)
    for name in accounts:
        client = world.client(name)
        for _ in range(60):
            client.submit(program, *_zeros(program))
    assert world.run_until(lambda: len(world.gangs) >= 80)
    runs = {run.id: run.session.name for run in world.machine.state.runs.values()}
    left = Counter(runs.values())
    served = {name: 60 - left[name] for name in ("a/a1", "a/a2", "b/b1")}
    assert abs(served["a/a1"] + served["a/a2"] - served["b/b1"]) <= 12, served
    assert world.run()
    assert not world.faults


@examples(20)
@given(st.integers(0, 1 << 32).map(Random))
def test_use_is_never_negative_and_is_nothing_when_all_clients_have_gone(rng: Random) -> None:
    names = [f"c{number}" for number in range(rng.randint(1, 4))]
    accounts = {name: Account(rng.choice("xy"), "user", runs=rng.choice((None, 2))) for name in names}
    world = World(small(2, 2), seed=rng.getrandbits(32), policy=Stride, accounts=accounts)
    program = _steps(2, devices=rng.choice((1, 2, 4)))
    clients = [world.client(name) for name in names]

    def views() -> tuple[AccountView, ...]:
        found: tuple[AccountView, ...] = world.machine.accounts.shown(world.now)
        return found

    def has(view: AccountView) -> tuple[int, ...]:
        return view.clients, *view.has.values()

    for _ in range(rng.randint(1, 20)):
        client = rng.choice(clients)
        run = client.submit(program, *_zeros(program))
        if rng.random() < 0.3:
            client.release(run.results[0])
        world.run_for(rng.randrange(2_000_000))
        assert all(min(has(view)) >= 0 for view in views())
    assert world.run()
    for client in clients:
        client.close()
    assert world.run()
    assert not world.faults
    assert all(not any(has(view)) for view in views())


# --- records ---------------------------------------------------------------------------------------------------------


def test_whose_a_client_is_is_recorded_and_replayed() -> None:
    def made() -> Controller:
        return Controller(small(1, 1), config=Config(accounts=True))

    recorder = Recorder(made(), LogAbout())
    recorder.handle(p.UsageKnown((("ann", 0, Used(1, 2, 3, 4)),)), 0)
    for peer, role in ((ANN, "user"), (BOB, "viewer")):
        recorder.handle(p.PeerIdentified(peer, Account("ann", role, weight=2)), 1)  # type: ignore[arg-type]
        recorder.handle(p.MessageReceived(peer, p.Open("a", weight=2)), 2)
    list(replayed(decode(recorder.log()), made()))  # or it raises `Diverged`
