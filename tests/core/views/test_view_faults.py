"""What becomes of views when sources, hosts, clients or the controller are lost; and which views are refused."""

from __future__ import annotations

from typing import Any

import pytest

from core.controller import Config
from core.model.program import SliceSpec, Value
from tests.core.build import Build
from tests.world.script import Handle
from tests.world.test_world import drain
from tests.world.timing import S

from .rig import PAIR, ROWS, SPLIT, WHOLE, begun, one


def cause(handle: Handle) -> str:
    assert handle.blame is not None
    return f"{handle.blame.code}: {handle.blame.cause}"


# --- views that are refused ---------------------------------------------------------------------------------


WRONG: dict[str, tuple[Any, str]] = {
    "another device": (
        lambda a: a.a.view(PAIR, one(1), (a.whole(), 0)),
        "refused: view: shard 0 of buffer 1 is not on device 1 of slice 's[1]'; shard 1 is",
    ),
    "not there": (
        lambda a: a.a.view(PAIR, one(3), (a.pair(2), 0)),
        (
            "refused: view: buffer 1 has no shard on device 3 of slice 's[3]'; "
            "has a slice moved since the buffer was made?"
        ),
    ),
    "another shape": (
        lambda a: a.a.view(Value((3,), "float32"), one(0), (a.whole(), 0)),
        "refused: view: shards of buffer 1 are float32[2], and those of the view are float32[3]",
    ),
    "another type": (
        lambda a: a.a.view(Value((2,), "int32"), one(0), (a.whole(), 0)),
        "refused: view: shards of buffer 1 are float32[2], and those of the view are int32[2]",
    ),
    "no such type": (
        lambda a: a.a.view(Value((8,), "float32", 0, SPLIT), SliceSpec("s", 3), *[(a.whole(), 0)] * 3),
        (
            "refused: view: dimension 0 of float32[8] does not divide by 3 (axes (0,) of mesh (3,)); "
            "the nearest sizes that do: 6 and 9"
        ),
    ),
    "another slice": (
        lambda a: a.a.view(PAIR, SliceSpec("t", 1), (a.whole(), 0)),
        "refused: slice 't' is not bound: a view lies on the slice of its sources, or on a part of it",
    ),
    "no such device": (
        lambda a: a.a.view(PAIR, one(4), (a.whole(), 0)),
        "refused: slice 's[4]' picks devices 4 of slice 's', which has devices 0 to 3",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_view_whose_shards_do_not_lie_where_they_should_is_refused(wrong: str) -> None:
    """And what reads it fails for the same reason."""
    made, a = begun()
    call, text = WRONG[wrong]
    if wrong == "not there":
        run = a.run("make", WHOLE, bytes(32), ROWS)
        a.a.release(*run.results)
        text = text.replace("buffer 1", "buffer 2")
    view = call(a)
    assert made.run()
    assert cause(view) == text
    got = a.a.get(view)
    assert made.run()
    assert got.blame == view.blame
    drain(made)


def test_the_result_of_an_irregular_computation_is_not_viewed() -> None:
    made, a = begun()
    b = Build("some", s=4)
    some = b.call("some", "s", [b.arg("s", 8, split="0")], irregular=True)
    source = a.a.submit(b.program(some), bytes(32)).results[0]
    view = a.shard(source, 0)
    assert made.run()
    assert cause(view) == (
        "refused: view: buffer 1 is the result of an irregular computation, and its shards differ in size; "
        "have a computation copy what is to be viewed"
    )
    drain(made)


# --- sources that fail --------------------------------------------------------------------------------------


def test_a_view_of_a_result_that_fails_fails_with_it() -> None:
    made, a = begun()
    a.whole()
    made.fabric.failures[0, "bad"] = "run"
    bad = a.run("bad", one(1), bytes(8), PAIR).results[0]
    view = a.joined(a.pair(0), bad, a.pair(2), a.pair(3))
    reader = a.run("read", WHOLE, view, ROWS)
    assert made.run()
    assert "divided by zero" in cause(view)
    assert reader.blame is not None
    assert "divided by zero" in reader.blame.cause
    drain(made)


def test_a_view_of_a_result_that_is_never_made_fails_with_it() -> None:
    made, a = begun()
    a.whole()
    run = a.run("late", one(1), bytes(8), PAIR)
    view = a.joined(a.pair(0), run.results[0], a.pair(2), a.pair(3))
    a.a.cancel(run)
    assert made.run()
    assert cause(view) == "cancelled: cancelled by its client"
    drain(made)


def test_a_lost_host_takes_views_of_what_it_had_along_by_name() -> None:
    """Also a view on another host, of an array of which only some is lost."""
    made, a = begun(hosts=3)
    whole = a.whole()
    near, far = a.shard(whole, 0), a.shard(whole, 3)
    left = a.joined(*a.four())
    assert made.run()
    made.crash_host(1)
    made.run_until(lambda: made.machine.members(0) == ((0, 1), (2, 3)))
    assert made.run()
    assert {cause(each).partition(":")[0] for each in (near, far, left)} == {"host-lost"}
    drain(made)


def test_a_view_on_a_slice_whose_host_is_lost_fails_by_that_host() -> None:
    """Its source is there still; nobody has asked for anything wrong."""
    made, a = begun(hosts=2)
    pair = a.four()[0]
    assert made.run()
    made.crash_host(1)
    made.run_until(lambda: made.machine.members(0) != ((0, 2),))
    view = a.shard(pair, 0)
    made.run()
    assert cause(view).startswith("host-lost: slice 's[0]' is a part of slice 's', which waits for hosts 1"), cause(
        view
    )
    assert cause(view).endswith("a view lies where its sources are")


def test_after_its_slice_has_moved_an_array_is_viewed_where_it_lies() -> None:
    """Host 0 is lost, and the slice moves to hosts 1 and 2. What was made on its device 2 lies on its device 0 now."""
    made, a = begun(hosts=3)
    pair = a.four()[2]
    assert made.run()
    made.crash_host(0)
    made.run_until(lambda: made.machine.members(0) == ((1, 3),))
    assert made.run()
    there, here = a.shard(pair, 0), a.a.view(PAIR, one(0), (pair, 0))
    wrong = a.a.view(PAIR, one(2), (pair, 0))
    got = a.a.get(here)
    assert made.run()
    assert there.blame is None
    assert got.right
    assert cause(wrong) == (
        "refused: view: buffer 4 has no shard on device 4 of slice 's[2]'; has a slice moved since the buffer was made?"
    )
    drain(made)


# --- a controller that is restarted -------------------------------------------------------------------------


@pytest.mark.parametrize("released", [False, True], ids=["sources kept", "sources released"])
def test_a_restarted_controller_finds_views_and_counts_memory_once(released: bool) -> None:
    """Two arrays fill the devices. So if shared memory were counted twice, there would be no room for a third ..."""
    made, a = begun(memory=32)
    whole = a.whole()
    shards = [a.shard(whole, pick) for pick in range(4)]
    again = a.joined(*shards)
    if released:
        a.a.release(whole, *shards)
    assert made.run()
    made.restart_controller()
    assert made.run()
    assert again.blame is None
    ledger = {resident for _, resident, _, _ in made.machine.ledger.counters()}
    assert ledger == {8}
    got = a.a.get(again)
    taken = a.run("take", WHOLE, again, ROWS, donate=True)
    assert made.run()
    assert got.right
    assert taken.good
    a.a.release(*taken.results)
    assert made.run()
    assert not released or not any(u for host in made.fabric.hosts.values() for u in host.used.values())
    drain(made)
    assert {resident for _, resident, _, _ in made.machine.ledger.counters()} == {0}


def test_a_restarted_controller_frees_views_that_nobody_claims_and_what_they_share() -> None:
    made, a = begun()
    whole = a.whole()
    a.joined(*[a.shard(whole, pick) for pick in range(4)])
    assert made.run()
    made.restart_controller()
    made.crash_client("a")
    made.run_for(120 * S)
    made.at_rest()
    assert not made.faults
    assert not any(used for host in made.fabric.hosts.values() for used in host.used.values())


def test_after_a_restart_no_array_is_freed_before_a_view_that_its_client_no_longer_names() -> None:
    """Hosts still have the view, because a run had it as its argument. Its client names only what it shares."""
    made, a = begun()
    whole = a.whole()
    halves = [a.shard(whole, pick) for pick in range(4)]
    again = a.joined(*halves)
    assert made.run()
    reader = a.run("read", WHOLE, again, ROWS)
    a.a.release(again, *halves)
    made.run_until(lambda: bool(made.fabric.jobs))
    made.restart_controller()
    assert made.run()
    assert reader.blame is not None
    got = a.a.get(whole)
    a.a.release(whole)
    assert made.run()
    assert got.right
    assert not made.machine.watch.waits_for("recovery")
    assert made.machine.watch.waits_for("claims")  # it is not the end of the grace that has freed it
    assert not any(used for host in made.fabric.hosts.values() for used in host.used.values())
    drain(made)


def test_after_a_restart_a_view_of_something_that_is_lost_goes_before_the_rest_of_what_it_shares() -> None:
    """Host 0 still has the view and one source of it; the other source was on host 1, too."""
    made, a = begun(hosts=3)
    whole, pair = a.whole(), a.pair(0)
    left = SliceSpec("left", 2, of="s", picks=(0, 1))
    view = a.a.view(Value((4,), "float32", 0, SPLIT), left, (pair, 0), (whole, 1))
    a.a.release(pair)
    assert made.run()
    made.crash_controller()
    made.crash_host(1)
    made.restart_controller()
    made.return_host(1)
    assert made.run()
    lost = "restart: the controller was restarted, and not all hosts of this buffer still have it"
    assert (cause(view), cause(whole)) == (lost, lost)
    assert not any(used for host in made.fabric.hosts.values() for used in host.used.values())
    drain(made)


def test_a_host_drops_a_view_before_the_lost_array_that_it_shares() -> None:
    """The order that frees the view goes through host 0, and is lost with it."""
    made, a = begun(hosts=3, config=Config(fanout=1))
    whole = a.whole()
    view = a.shard(whole, 3)
    assert made.run()
    a.a.release(view)
    made.run_until(lambda: len(made.machine.buffers) == 1)
    made.crash_host(0)
    made.run_until(lambda: made.machine.members(0) == ((1, 3),))
    assert made.run()
    assert cause(whole).startswith("host-lost")
    drain(made)
