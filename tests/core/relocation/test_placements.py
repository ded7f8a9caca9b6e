"""A policy that is a `Placement` says which slices have devices, and which; see `core/controller/placements`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core.model.program import Program, SliceSpec
from core.model.topology import Cluster, Island
from core.schedule.policy import NEVER, BestKind, ClusterView, FirstFit, InTurn, Placement, SliceUse, Spread, Stride
from tests.core.views.rig import ROWS, Arrays, program
from tests.world.script import RunHandle
from tests.world.test_world import drain as drained
from tests.world.timing import S
from tests.world.world import World

from .test_moves import operate, right, used, where


def begun(policy: Callable[[], Placement], *islands: Island) -> World:
    return World(Cluster(islands or (Island(name="i", hosts=2, devices_per_host=2),)), seed=7, policy=policy)


def alone(devices: int, **more: object) -> Program:
    return program("make", SliceSpec("s", devices, exclusive=True, **more), ROWS)  # type: ignore[arg-type]


class Client:
    """One with a slice, which it has from its first call until it releases it."""

    def __init__(self, made: World, name: str, devices: int, **more: object) -> None:
        self.world, self.arrays = made, Arrays(made.client(name))
        self.program = alone(devices, **more)

    def calls(self) -> RunHandle:
        return self.arrays.a.submit(self.program, bytes(32))

    def ran(self) -> RunHandle:
        run = self.calls()
        assert self.world.run_until(lambda: run.ended)
        assert run.good
        return run

    def releases(self) -> None:
        self.arrays.a.release_slice("s")


def drain(made: World) -> None:
    for client in made.clients:
        client.release_slice("s")
    drained(made)


def settled(made: World) -> None:
    made.run_for(S)


# --- who starts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "passes"), [(FirstFit, True), (InTurn, False)])
def test_a_later_slice_passes_one_that_does_not_fit_only_if_the_policy_says_so(
    policy: type[Placement], passes: bool
) -> None:
    made = begun(policy)
    holder, wide, narrow = (Client(made, name, devices) for name, devices in (("a", 2), ("b", 4), ("c", 2)))
    holder.ran()
    waits, then = wide.calls(), narrow.calls()
    settled(made)
    assert (waits.ended, then.ended) == (False, passes)
    for each in (holder, narrow) if passes else (holder,):
        each.releases()
    assert made.run_until(lambda: waits.ended)
    wide.releases()
    assert made.run_until(lambda: then.ended)
    assert waits.good
    assert then.good
    drain(made)


def test_a_slice_that_waits_says_for_what() -> None:
    made = begun(InTurn)
    Client(made, "a", 4).ran()
    Client(made, "b", 4).calls()
    settled(made)
    (run,) = [run for run in made.machine.state.runs.values() if run.waits]
    assert run.waits == "slice 's' waits for the policy to start it"
    drain(made)


def test_what_is_kept_for_one_is_not_given_to_another_in_the_same_decision() -> None:
    class Keeping(Placement):
        def decide(self, cluster: ClusterView) -> None:
            for use in cluster.waiting:
                if not cluster.start(use):
                    cluster.keep(use)

    made = begun(Keeping)
    holder = Client(made, "a", 1)
    holder.ran()
    wide, narrow = Client(made, "b", 4), Client(made, "c", 2)
    waits, then = wide.calls(), narrow.calls()
    settled(made)
    assert not then.ended
    holder.releases()
    assert made.run_until(lambda: waits.ended)
    assert not then.ended
    drain(made)


def test_shared_slices_are_started_by_it_too() -> None:
    made = begun(InTurn)
    clients = [Arrays(made.client(name)) for name in "ab"]
    shared = program("read", SliceSpec("s", 4), ROWS)
    runs = [each.a.submit(shared, bytes(32)) for each in clients]
    assert made.run()
    assert all(run.good for run in runs)
    drain(made)


# --- where --------------------------------------------------------------------------------------------------------

TWO_KINDS = (
    Island(name="old", hosts=1, devices_per_host=2, kind="slow"),
    Island(name="new", hosts=1, devices_per_host=2, kind="fast"),
)


def test_it_names_the_devices() -> None:
    class Last(Placement):
        def decide(self, cluster: ClusterView) -> None:
            for use in cluster.waiting:
                (island,) = cluster.suits(use)
                cluster.start(use, island, devices=island.free_devices[-use.devices :])

    made = begun(Last)
    client = Client(made, "a", 2)
    kept = client.ran().results[0]
    assert where(made, kept) == [2, 3]
    right(made, client.arrays, kept)
    drain(made)


def test_spread_takes_one_device_of_each_host() -> None:
    made = begun(Spread)
    assert where(made, Client(made, "a", 2).ran().results[0]) == [0, 2]
    drain(made)


def test_the_kind_on_which_it_is_over_first_is_chosen() -> None:
    """40 s on what is free are over before 10 s on what is free in 50 s, and after 10 s on what is free in 20."""
    made = begun(BestKind, *TWO_KINDS)
    made.run_for(S)  # its hosts come
    times = (("slow", 40 * S), ("fast", 10 * S))
    first = Client(made, "a", 2, expected=(("slow", 100 * S), ("fast", 50 * S)))
    assert where(made, first.ran().results[0]) == [2, 3]
    second = Client(made, "b", 2, expected=times)
    assert where(made, second.ran().results[0], 2) == [0, 1]
    second.releases()
    made.run_for(35 * S)
    third = Client(made, "c", 2, expected=times)
    waits = third.calls()
    made.run_for(2 * S)
    assert not waits.ended
    first.releases()
    assert made.run_until(lambda: waits.ended)
    assert where(made, waits.results[0], 3) == [2, 3]
    drain(made)


def test_devices_that_are_no_place_for_the_slice_are_a_fault_of_the_policy_and_slices_wait_in_order_from_then_on() -> (
    None
):
    class Wrong(Placement):
        def decide(self, cluster: ClusterView) -> None:
            for use in cluster.waiting:
                cluster.start(use, devices=[0])

    made = begun(Wrong)
    client = Client(made, "a", 2)
    assert where(made, client.ran().results[0]) == [0, 1]
    text = "raised Impossible: 1 devices, 0 first, are no place for"
    assert any(text in told and "when asked to place slices" in told for told in made.told), made.told
    drain(made)


# --- what it sees -------------------------------------------------------------------------------------------------


class Watching(InTurn):
    """It keeps what it saw last."""

    seen: ClusterView

    def decide(self, cluster: ClusterView) -> None:
        super().decide(cluster)
        self.seen = cluster

    @property
    def uses(self) -> dict[str, SliceUse]:
        return {use.client_name: use for use in (*self.seen.waiting, *self.seen.running)}


def test_it_sees_who_waits_and_who_runs_since_when_and_for_how_long() -> None:
    policy = Watching()
    made = begun(lambda: policy)
    first = Client(made, "a", 2, expected=(("", 30 * S),), due=60 * S)
    first.ran()
    begin = made.now
    Client(made, "b", 4).calls()
    made.run_for(10 * S)
    a, b = policy.uses["a"], policy.uses["b"]
    assert [use.client_name for use in policy.seen.waiting] == ["b"]
    assert (a.state, b.state) == ("running", "waiting")
    assert (a.where, b.where) == (((0, 2),), ())
    assert 0 <= begin - a.began < S
    assert a.served(a.began + 10 * S) == 10 * S
    assert a.left("cpu", a.began + 10 * S) == 20 * S
    assert a.ends(a.began + 10 * S) == a.began + 30 * S
    assert a.deadline - a.asked == 60 * S
    assert a.left("cpu", a.began + 36 * S) == 6 * S, "it is late, and expected to need as much time again"
    assert b.ends(made.now) > 10**18, "nobody said"
    (island,) = policy.seen.islands
    assert (island.name, island.free, list(island.free_devices)) == ("i", 2, [2, 3])
    assert policy.seen.free_at(b, island) == (a.ends(policy.seen.now), 0)
    drain(made)


ROWS_OF_A_TORUS = Island(name="i", hosts=4, devices_per_host=4, torus=(4, 4), wraps=(False, False))


@pytest.mark.parametrize(("mesh", "after"), [((), "c"), ((2, 4), "b")], ids=["any devices", "a block"])
def test_a_block_of_a_torus_is_free_when_devices_beside_each_other_are(mesh: tuple[int, ...], after: str) -> None:
    """Rows 0 and 2 are free before row 1 is, and half of the devices then; but no two rows that are neighbours."""
    policy = Watching()
    made = begun(lambda: policy, ROWS_OF_A_TORUS)
    rows = {name: Client(made, name, 4, mesh=(1, 4), expected=(("", needs * S),))
            for name, needs in (("a", 100), ("b", 300), ("c", 200), ("d", 400))}  # fmt: skip
    for row in rows.values():
        row.ran()
    assert [policy.uses[name].where for name in rows] == [((0, 4),), ((4, 8),), ((8, 12),), ((12, 16),)]
    wide = Client(made, "wide", 8, mesh=mesh)
    run = wide.calls()
    settled(made)
    (island,) = policy.seen.islands
    at, more = policy.seen.free_at(policy.uses["wide"], island)
    assert at == policy.uses[after].ends(policy.seen.now)
    assert more == {"c": 0, "b": 4}[after]
    for name in ("a", "c", "b"):
        assert not run.ended
        rows[name].releases()
        settled(made)
        if name == after:
            break
    assert run.good
    drain(made)


def test_what_is_kept_is_not_free_at_any_time() -> None:
    class Keeping(Watching):
        def decide(self, cluster: ClusterView) -> None:
            super().decide(cluster)
            if cluster.waiting:
                self.kept = cluster.keep(cluster.waiting[0])
                self.next = cluster.free_at(cluster.waiting[-1], cluster.islands[0])

    policy = Keeping()
    made = begun(lambda: policy, ROWS_OF_A_TORUS)
    Client(made, "a", 8, mesh=(2, 4), expected=(("", 100 * S),)).ran()
    Client(made, "b", 16, mesh=(4, 4)).calls()
    Client(made, "c", 8, mesh=(2, 4)).calls()
    settled(made)
    assert policy.kept
    assert policy.next == (NEVER, 0), "all of it is kept"
    drain(made)


def test_time_on_one_kind_counts_on_another_by_what_it_needs_there() -> None:
    use = SliceUse(1, "s", 2, True, 1, 0, expected={"slow": 40 * S, "fast": 10 * S}, had={"slow": 20 * S})
    assert use.left("fast", 0) == 5 * S
    assert use.left("slow", 0) == 20 * S


# --- what it takes away -------------------------------------------------------------------------------------------


class Turns(Placement):
    """Each slice has devices for 10 s at most while others wait."""

    def decide(self, cluster: ClusterView) -> None:
        for use in sorted(cluster.waiting, key=lambda use: (use.served(cluster.now), use.number)):
            if not cluster.start(use):
                break
        else:
            return
        for use in cluster.running:
            if cluster.now - use.since >= 10 * S:
                cluster.suspend(use)
            else:
                cluster.wake(use.since + 10 * S)


def test_slices_take_turns_and_keep_what_they_have() -> None:
    made = begun(Turns)
    one, other = Client(made, "a", 4), Client(made, "b", 4)
    kept = one.ran().results[0]
    begin = made.now
    run = other.calls()
    assert made.run_until(lambda: run.ended)
    assert 9 * S < made.now - begin < 11 * S
    assert any("slice 's' of client 'a' is suspended: it gives way to others, as policy Turns says" in text
               for text in made.told)  # fmt: skip
    back = one.calls()
    assert made.run_until(lambda: back.ended)
    assert back.good
    assert 19 * S < made.now - begin < 22 * S
    right(made, one.arrays, kept, back.results[0])
    drain(made)


def test_a_slice_that_was_told_to_leave_may_be_released_before_it_has() -> None:
    made = begun(Turns)
    one, other = Client(made, "a", 4), Client(made, "b", 4)
    one.ran()
    run = other.calls()
    made.run_for(10 * S - 1)
    one.releases()
    assert made.run_until(lambda: run.ended)
    assert run.good
    drain(made)
    assert used(made) == [0] * 4


def test_an_operators_suspension_holds_against_the_policy() -> None:
    made = begun(Turns)
    one = Client(made, "a", 4)
    one.ran()
    assert operate(made, "suspend") == ""
    made.run_for(30 * S)
    waits = one.calls()
    made.run_for(30 * S)
    assert not waits.ended
    assert operate(made, "resume") == ""
    assert made.run_until(lambda: waits.ended)
    assert waits.good
    drain(made)


def test_it_moves_a_slice() -> None:
    class ToNew(InTurn):
        def decide(self, cluster: ClusterView) -> None:
            super().decide(cluster)
            for use in cluster.running:
                if use.at is not None and use.at.name == "old" and cluster.now - use.since > 5 * S:
                    cluster.move(use, cluster.islands[1])
                cluster.wake(use.since + 6 * S)

    made = begun(ToNew, *TWO_KINDS)
    client = Client(made, "a", 2)
    kept = client.ran().results[0]
    assert where(made, kept) == [0, 1]
    made.run_for(10 * S)
    assert where(made, kept) == [2, 3]
    right(made, client.arrays, kept)
    drain(made)


# --- with faults, and other policies --------------------------------------------------------------------------------


def test_a_slice_whose_devices_are_lost_waits_for_the_policy_again() -> None:
    made = begun(InTurn, Island(name="i", hosts=3, devices_per_host=2))
    client = Client(made, "a", 4)
    client.ran()
    made.crash_host(0)
    made.run_for(20 * S)
    again = client.ran()
    assert where(made, again.results[0]) == [2, 3, 4, 5]
    drain(made)


def test_gangs_enter_as_another_policy_says_if_its_pick_comes_first() -> None:
    class Both(Stride, InTurn):
        """Shares of gangs, and slices in turn."""

    made = begun(Both)
    Client(made, "a", 4).ran()
    waits = Client(made, "b", 4).calls()
    settled(made)
    assert not waits.ended
    assert isinstance(made.machine.state.islands[0].scheduler.policy, Stride)
    drain(made)
