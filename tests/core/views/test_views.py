"""What a client sees of views, and what they hold, in a world of hosts and devices that check what they are told."""

from __future__ import annotations

from tests.world.test_world import drain
from tests.world.world import World

from .rig import PAIR, ROWS, WHOLE, begun, one


def used(made: World) -> list[int]:
    """Bytes on each device."""
    return [bytes_ for host in made.fabric.hosts.values() for bytes_ in host.used.values()]


def test_views_are_made_of_results_that_do_not_exist_yet_and_are_read_at_once() -> None:
    """All calls are made before anything has run; sources are let go of at once."""
    made, a = begun()
    pairs = a.four()
    view = a.joined(*pairs)
    run = a.run("read", WHOLE, view, ROWS)
    a.a.release(*pairs, view)
    got = a.a.get(run.results[0])
    assert made.run()
    assert run.good
    assert got.right
    drain(made)


def test_sources_stay_until_the_last_view_is_gone() -> None:
    made, a = begun()
    whole = a.whole()
    first, second = a.shard(whole, 0), a.shard(whole, 1)
    assert made.run()
    taken = used(made)
    a.a.release(whole)
    a.a.release(first)
    assert made.run()
    assert used(made) == taken, "the second view still shares it"
    a.a.release(second)
    assert made.run()
    assert not any(used(made))
    drain(made)


def test_a_source_that_a_view_shares_is_not_given_away() -> None:
    """The run to which it is donated gets memory of its own, and what the view shares stays as it is."""
    made, a = begun()
    whole = a.whole()
    view = a.shard(whole, 2)
    taker = a.run("take", WHOLE, whole, ROWS, donate=True)
    got = a.a.get(view)
    assert made.run()
    assert taker.good
    assert got.right
    assert max(used(made)) == 16, "two arrays of 8 bytes a device"
    a.a.release(view)
    assert made.run()
    assert max(used(made)) == 8
    drain(made)


def test_a_view_is_not_given_away_and_once_it_is_gone_its_source_is_again() -> None:
    made, a = begun()
    whole = a.whole()
    view = a.shard(whole, 1)
    taker = a.run("take", one(1), view, PAIR, donate=True)
    assert made.run()
    assert taker.good
    a.a.release(*taker.results)
    assert made.run()
    assert max(used(made)) == 8
    last = a.run("take all", WHOLE, whole, ROWS, donate=True)
    assert made.run()
    assert last.good
    assert max(used(made)) == 8, "the run took over the memory"
    drain(made)


def test_what_a_view_shares_is_not_spilled() -> None:
    """One of two arrays is shared, so the other one goes to host memory for the third, and for what makes it."""
    made, a = begun(memory=28)
    whole = a.whole()
    view = a.shard(whole, 0)
    other = a.run("other", WHOLE, bytes(32), ROWS).results[0]
    assert made.run()
    third = a.run("third", WHOLE, bytes(32), ROWS)
    assert made.run()
    assert third.good
    buffers = made.machine.buffers
    assert {buffer.name: buffer.state for buffer in buffers if buffer.state == "spilled"} == {other.name: "spilled"}
    got = a.a.get(view)
    assert made.run()
    assert got.right
    drain(made)


def test_a_source_in_host_memory_comes_back_for_its_view() -> None:
    made, a = begun(memory=20)
    whole = a.whole()
    assert made.run()
    more = [a.run(f"more {number}", WHOLE, bytes(32), ROWS).results[0] for number in range(2)]
    assert made.run()
    states = {buffer.name: buffer.state for buffer in made.machine.buffers}
    assert states[whole.name] == "spilled"
    got = a.a.get(a.shard(whole, 3))
    assert made.run()
    assert got.right
    a.a.release(*more)
    drain(made)


def test_one_order_says_a_view_to_an_island() -> None:
    made, a = begun(diary=True)
    pairs = a.four()
    assert made.run()
    assert made.diary is not None
    before = len(made.diary)
    view = a.joined(*pairs)
    assert made.run()
    assert view.ready
    said = [line for line in made.diary[before:] if " controller " in line and "order " in line]
    assert len(said) == 1
    assert "[view " in said[0]
    drain(made)


def test_what_a_view_shared_is_given_away_only_when_the_view_has_been_made() -> None:
    """The view is freed, and its source given to a run, before the source has its contents: hosts still make the view,
    because it was ordered."""
    made, a = begun()
    a.run("take", WHOLE, a.whole(), ROWS, donate=True)
    assert made.run()
    for host in (0, 1):
        made.slow(host, 1e6)
    whole = a.whole()
    view = a.shard(whole, 0)
    made.run_until(lambda: not len(made.machine.views))
    a.a.release(view)
    taken = a.run("take", WHOLE, whole, ROWS, donate=True)
    assert made.run()
    assert taken.good
    assert not made.faults
    a.a.release(*taken.results)
    drain(made)
