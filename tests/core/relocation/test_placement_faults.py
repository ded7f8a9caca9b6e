"""What a `Placement` may do wrong, and what may happen while it decides: nobody waits for ever for that."""

from __future__ import annotations

import msgspec
import pytest

from core.controller.config import Config
from core.model.program import Program, SliceSpec, Value
from core.model.topology import Cluster, Island
from core.schedule.policy import BestFit, ClusterView, FirstFit, InTurn, Placement, SliceUse
from tests.core.build import Build
from tests.core.views.rig import PAIR, ROWS, Arrays, program
from tests.world.test_world import drain as drained
from tests.world.timing import S
from tests.world.world import World

from .test_moves import operate, right, where
from .test_placements import TWO_KINDS, Client, begun, drain

HALF = Value((4,), "float32")  # of ROWS, on two devices


def started(client: Client) -> None:
    run = client.calls()
    assert client.world.run_until(lambda: run.ended)
    assert run.good


# --- it raises ----------------------------------------------------------------------------------------------------


def test_what_it_has_started_before_it_raises_goes_on() -> None:
    class Breaks(Placement):
        def decide(self, cluster: ClusterView) -> None:
            for use in cluster.waiting:
                if cluster.start(use):
                    raise ZeroDivisionError

    made = begun(Breaks)
    started(Client(made, "a", 2))
    started(Client(made, "b", 2))
    drain(made)


def test_what_it_has_suspended_before_it_raises_comes_back() -> None:
    class Breaks(InTurn):
        def decide(self, cluster: ClusterView) -> None:
            super().decide(cluster)
            if cluster.running and cluster.waiting:
                cluster.suspend(cluster.running[0])
                raise ZeroDivisionError

    made = begun(Breaks)
    one, other = Client(made, "a", 4), Client(made, "b", 4)
    started(one)
    waits = other.calls()
    made.run_for(S)
    started(one)
    assert not waits.ended
    one.releases()
    assert made.run_until(lambda: waits.ended)
    assert waits.good
    drain(made)


# --- it is asked --------------------------------------------------------------------------------------------------


def test_a_call_that_needs_two_slices_gets_both_one_after_the_other() -> None:
    b = Build("two")
    b.slices = [SliceSpec(name, 2, exclusive=True) for name in "st"]
    x = b.call("first", "s", [b.arg("s", 8, split="0")])
    made = begun(FirstFit)
    made.run_for(S)  # its hosts come
    a = made.client("a")
    both = b.program(b.call("second", "t", [x]))
    for _ in range(2):  # the second time it is not registered, which asks for all slices
        run = a.submit(both, bytes(32))
        assert made.run_until(lambda run=run: run.ended)  # type: ignore[misc]
        assert run.good
        for name in "st":
            a.release_slice(name)
        made.run_for(S)
    drain(made)


def test_one_that_has_come_back_is_suspended_again_as_soon_as_it_may() -> None:
    class Eager(InTurn):
        """It never says when it wants to be asked."""

        def decide(self, cluster: ClusterView) -> None:
            super().decide(cluster)
            if cluster.waiting and cluster.running:
                cluster.suspend(cluster.running[0])

    made = begun(Eager)
    one, other = Client(made, "a", 4), Client(made, "b", 4)
    started(one)
    started(other)
    back = one.calls()
    assert made.run_until(lambda: back.ended, limit=30 * S)
    again = other.calls()
    assert made.run_until(lambda: again.ended, limit=30 * S)
    drain(made)


def test_a_client_that_an_operator_has_suspended_holds_up_nobody() -> None:
    made = begun(InTurn)
    one = Client(made, "a", 2)
    one.ran()
    assert operate(made, "suspend") == ""
    made.run_for(S)
    another = one.arrays.a.submit(program("more", SliceSpec("t", 4), ROWS), bytes(32))
    made.run_for(S)
    started(Client(made, "b", 4))
    made.clients[1].release_slice("s")
    made.run_for(S)
    assert not another.ended
    one.releases()
    made.run_for(S)
    assert operate(made, "resume") == "slice 't' is not suspended"
    assert made.run_until(lambda: another.ended, limit=30 * S)
    drain(made)


def test_a_slice_that_may_fail_waits_for_the_policy_as_soon_as_its_hosts_are_there() -> None:
    made = begun(InTurn)
    holder = Client(made, "a", 2)
    started(holder)
    made.crash_host(1)
    made.run_for(20 * S)
    wanted = Client(made, "b", 4, absent="fail")
    down = wanted.calls()
    assert made.run_until(lambda: down.ended)
    assert down.blame is not None
    assert "is down: it waits for hosts 1 of island 'i' (lost)" in down.blame.cause
    made.return_host(1)
    made.run_for(20 * S)
    holder.ran()
    waits = wanted.calls()
    made.run_for(S)
    assert not waits.ended
    (run,) = made.machine.state.runs.values()
    assert run.waits == "slice 's' waits for the policy to start it"
    holder.releases()
    assert made.run_until(lambda: waits.ended)
    assert waits.good
    drain(made)


# --- where one comes back -----------------------------------------------------------------------------------------


class Told(Placement):
    """It starts slices on the island that it is told, and suspends what it is told."""

    island, away = 0, False

    def decide(self, cluster: ClusterView) -> None:
        for use in cluster.waiting:
            cluster.start(use, cluster.islands[self.island])
        if self.away:
            self.away = not any(cluster.suspend(use) for use in cluster.running)
        cluster.wake(cluster.now + S)


def test_one_that_was_suspended_goes_on_where_the_policy_says() -> None:
    policy = Told()
    made = begun(lambda: policy, *TWO_KINDS)
    client = Client(made, "a", 2)
    kept = client.ran().results[0]
    assert where(made, kept) == [0, 1]
    policy.island, policy.away = 1, True
    made.run_for(5 * S)
    assert where(made, kept) == [2, 3]
    right(made, client.arrays, kept)
    drain(made)


def test_one_is_not_started_where_it_does_not_want_to_be() -> None:
    policy = Told()
    made = begun(lambda: policy, *TWO_KINDS)
    waits = Client(made, "a", 2, kind="fast").calls()
    made.run_for(5 * S)
    assert not waits.ended
    policy.island = 1
    assert made.run_until(lambda: waits.ended)
    assert where(made, waits.results[0]) == [2, 3]
    drain(made)


def test_one_with_views_of_other_slices_gets_the_devices_that_it_had_wherever_the_policy_wants_it() -> None:
    policy = Told()
    made = begun(lambda: policy, *TWO_KINDS)
    a = Arrays(made.client("a"))
    source = a.run("make", SliceSpec("s", 2), bytes(32), ROWS).results[0]
    a.run("pair", SliceSpec("t", 1), bytes(8), PAIR)
    made.run_for(2 * S)
    seen = a.a.view(HALF, SliceSpec("t", 1), (source, 0))
    made.run_for(2 * S)
    assert where(made, seen) == [0]
    policy.island = 1
    a.a.relocate("suspend", "t")
    made.run_for(2 * S)
    a.a.relocate("resume", "t")
    made.run_for(2 * S)
    right(made, a, seen, source)
    assert where(made, seen) == [0]
    for name in "st":
        a.a.release_slice(name)
    drained(made)


def test_one_that_comes_back_does_not_get_what_is_kept_for_another() -> None:
    class Keeping(InTurn):
        away = False

        def decide(self, cluster: ClusterView) -> None:
            for use in sorted(cluster.waiting, key=lambda use: -use.devices):
                if not cluster.start(use):
                    cluster.keep(use)
            if self.away:
                self.away = not cluster.suspend(cluster.running[0])

    policy = Keeping()
    made = begun(lambda: policy)
    small, holder, wide = Client(made, "a", 1), Client(made, "b", 1), Client(made, "c", 4)
    small.ran()
    holder.ran()
    policy.away = True
    waits = wide.calls()
    made.run_for(S)
    back = small.calls()
    made.run_for(S)
    assert not back.ended
    holder.releases()
    assert made.run_until(lambda: waits.ended)
    wide.releases()
    assert made.run_until(lambda: back.ended)
    assert back.good
    drain(made)


# --- it wants too much --------------------------------------------------------------------------------------------


def test_a_move_that_fails_is_not_tried_again_at_once() -> None:
    class Moving(InTurn):
        tries = 0

        def decide(self, cluster: ClusterView) -> None:
            super().decide(cluster)
            for use in cluster.running:
                self.tries += cluster.move(use, cluster.islands[1])

    policy = Moving()
    small = Island(name="j", hosts=1, devices_per_host=2, memory=8)
    made = begun(lambda: policy, Island(name="i", hosts=1, devices_per_host=2), small)
    started(Client(made, "a", 2))
    made.run_for(55 * S)
    assert policy.tries == 6, "each 10 s: `Config.preempt_keep`"
    drain(made)


def test_a_slice_that_is_suspended_whenever_it_runs_runs_for_a_moment_at_least() -> None:
    class Mad(InTurn):
        def decide(self, cluster: ClusterView) -> None:
            super().decide(cluster)
            for use in cluster.running:
                cluster.suspend(use)

    made = World(Cluster((TWO_KINDS[0],)), seed=7, policy=Mad, config=Config(preempt_keep=0))
    started(Client(made, "a", 2))
    times = sum("is suspended: it gives way" in text for text in made.told)
    assert times < 10
    drain(made)


# --- costs by kind ------------------------------------------------------------------------------------------------


def priced(part: bool) -> Program:
    """It has a time on devices of kind "slow" only, for what it computes on a slice of two devices, or on a part."""
    whole = SliceSpec("s", 2, exclusive=True)
    b = Build("priced")
    b.slices = [whole, SliceSpec("s[0]", 1, of="s", picks=(0,))] if part else [whole]
    at = b.slices[-1].name
    made = b.program(b.call("priced", at, [b.arg(at, 8, split="0")]))
    (computation,) = made.computations
    return msgspec.structs.replace(
        made, computations=(msgspec.structs.replace(computation, costs=(("slow", computation.cost),)),)
    )


@pytest.mark.parametrize("part", [False, True])
def test_a_slice_is_not_moved_to_where_its_computations_have_no_time(part: bool) -> None:
    made = begun(FirstFit, *TWO_KINDS)
    a = made.client("a")
    run = a.submit(priced(part), bytes(32))
    assert made.run_until(lambda: run.ended)
    assert operate(made, "move") == "slice 's' finds no other devices"
    drain(made)


def test_one_that_comes_back_where_its_computations_have_no_time_is_refused_what_it_calls() -> None:
    policy = Told()
    made = begun(lambda: policy, *TWO_KINDS)
    a = made.client("a")
    run = a.submit(priced(part=False), bytes(32))
    assert made.run_until(lambda: run.ended)
    policy.island, policy.away = 1, True
    made.run_for(5 * S)
    assert where(made, run.results[0]) == [2, 3]
    again = a.submit(priced(part=False), bytes(32))
    assert made.run_until(lambda: again.ended)
    assert again.blame is not None
    assert "computation 'priced' has a time on slow" in again.blame.cause
    drain(made)


# --- a cluster that grows -----------------------------------------------------------------------------------------


class Watching(InTurn):
    uses: list[SliceUse]

    def decide(self, cluster: ClusterView) -> None:
        super().decide(cluster)
        self.uses = cluster.running


def test_it_sees_islands_as_they_are_after_the_cluster_has_grown_and_new_ones_run_programs() -> None:
    whole = Cluster((Island(name="i", hosts=2, devices_per_host=2), Island(name="j", hosts=1, devices_per_host=2)))
    small = Cluster((Island(name="i", hosts=1, devices_per_host=2),))
    grown = Cluster(whole.islands[:1])
    policy = Watching()
    made = World(whole, seed=7, policy=lambda: policy, known=small)
    Client(made, "a", 2).ran()
    made.grow(grown)
    made.run_for(S)
    assert [use.at for use in policy.uses] == [grown.islands[0]]
    made.grow(whole)
    made.run_for(S)
    started(Client(made, "b", 2, island="j"))
    assert [use.at for use in policy.uses] == list(whole.islands)
    drain(made)


# --- slices of several sizes --------------------------------------------------------------------------------------


def test_one_does_not_grow_by_itself_while_the_policy_has_others_wait() -> None:
    eight = Cluster((Island(name="i", hosts=4, devices_per_host=2),))
    made = World(eight, seed=7, policy=InTurn, config=Config(preempt_keep=S))
    one, other, wide = (Client(made, name, devices) for name, devices in (("b", 2), ("c", 4), ("d", 4)))
    for each in (one, other):
        each.ran()
    a = made.client("a")
    a.elastic("e", (1, 2, 4), SliceSpec("like", 1, exclusive=True))
    made.run_for(5 * S)
    waits = wide.calls()
    made.run_for(5 * S)
    one.releases()
    made.run_for(5 * S)
    assert [spec.devices for spec in a.sizes["e"]] == [2]
    other.releases()
    assert made.run_until(lambda: waits.ended)
    made.run_for(5 * S)
    assert [spec.devices for spec in a.sizes["e"]] == [2, 4]
    for client in made.clients:
        client.close()
    assert made.run()
    made.at_rest()


def test_the_time_that_one_had_counts_when_it_has_another_size() -> None:
    class Sizing(Watching):
        def decide(self, cluster: ClusterView) -> None:
            super().decide(cluster)
            for use in cluster.running:
                if use.devices == 2 and use.served(cluster.now) > 5 * S:
                    cluster.resize(use, 4)
                cluster.wake(use.since + 6 * S)

        resizes = True

    policy = Sizing()
    made = begun(lambda: policy)
    a = made.client("a")
    a.elastic("e", (2, 4), SliceSpec("like", 1, exclusive=True), moves_on=0)
    made.run_for(10 * S)
    (use,) = policy.uses
    assert use.devices == 4
    assert 9 * S < use.served(made.now) <= 10 * S
    a.close()
    assert made.run()
    made.at_rest()


# --- on a torus ---------------------------------------------------------------------------------------------------


def test_best_fit_takes_the_block_that_leaves_fewest_free_devices_beside_it() -> None:
    made = begun(BestFit, Island(name="i", hosts=4, devices_per_host=2, torus=(8,), wraps=(False,)))
    clients = [Client(made, name, devices) for name, devices in (("a", 2), ("b", 4), ("c", 1))]
    for client in clients:
        client.ran()
    clients[1].releases()
    made.run_for(S)
    assert where(made, Client(made, "d", 1).ran().results[0], 4) == [7]
    assert where(made, Client(made, "e", 4).ran().results[0], 5) == [2, 3, 4, 5]
    drain(made)
