"""What is shown to those who look again and again: what waits, by kind, with the reason that core has for it."""

from __future__ import annotations

from core import protocol as p
from core.controller import live_view
from core.record.looks import ClientLine, IslandLine, LiveView

from .rig import Rig, S
from .test_stalls import called, waiting


def look(rig: Rig) -> LiveView:
    return live_view(rig.controller)


def test_a_controller_with_nothing_to_do_shows_its_islands_and_clients() -> None:
    rig = waiting(2, joined=2)
    view = look(rig)
    assert view.islands == (IslandLine("i0", "running", 0, ((0, 2),), "Fifo", 0, 0),)
    assert view.clients == (ClientLine(1, "anna", 1, 0, 0, 0),)
    assert (view.queues, view.waits, view.refused, view.stalls_ever) == ((), (), (), 0)


def test_gangs_behind_a_full_window_wait_in_one_line_with_their_number_and_the_reason() -> None:
    rig = called()
    for host in (0, 1):
        rig.compile(host)
    begun = rig.now
    for run in range(2, 40):
        rig.now = begun + run
        rig.submit(run)
    view = look(rig)
    entered = view.islands[0].under_way
    assert entered > 0
    (line,) = view.queues
    assert (line.island, line.client, line.program, line.step) == ("i0", "anna", "train", "step")
    assert (line.why, line.text) == ("window", f"{entered} gangs are ahead on devices 0-1")
    assert (line.devices, line.count, line.since) == (((0, 2),), 39 - entered, begun + entered + 1)
    assert view.clients[0].runs == 39
    for host in (0, 1):
        rig.report(host, *(p.Done(step.seq, ((host, host + 1),)) for step in rig.gangs[:entered]))
    assert sum(each.count for each in look(rig).queues) == max(0, 39 - 2 * entered)


def test_many_runs_that_wait_for_the_same_are_one_line() -> None:
    rig = called()
    begun = rig.now
    for run in range(2, 30):
        rig.now = begun + run
        rig.submit(run)
    (line,) = look(rig).waits
    assert (line.client, line.program, line.count, line.since) == ("anna", "train", 29, begun)
    assert (line.reason, line.hosts, line.stalled) == ("compiling 'step' on hosts 0-1", ((0, 2),), False)
    rig.compile(0)
    assert look(rig).waits[0].reason == "compiling 'step' on hosts 1"


def test_a_wait_that_outlasts_its_bound_is_shown_as_a_stall() -> None:
    rig = called()
    rig.compile(0)
    rig.until(rig.now + 400 * S)
    (line,) = look(rig).waits
    assert (line.stalled, line.hosts, line.reason) == (True, ((1, 2),), "compiling 'step' on hosts 1")
    assert look(rig).stalls_ever == 1


def test_a_gang_that_does_not_end_is_shown_with_the_hosts_that_have_not_ended_it() -> None:
    rig = called()
    for host in (0, 1):
        rig.compile(host)
    begun = rig.now
    rig.until(begun + 10 * S)
    rig.report(0, p.Done(rig.gangs[0].seq, ((0, 1),)))
    (line,) = look(rig).waits
    assert (line.node, line.hosts, line.stalled, line.since) == ("step", ((1, 2),), True, begun)


def test_an_agent_that_was_refused_is_shown_until_it_is_taken() -> None:
    rig = waiting(2, joined=2)
    rig.feed(p.HostRefused(0, "box", "it has 3 devices"))
    (line,) = look(rig).refused
    assert (line.agent, line.reason, line.at) == ("box", "it has 3 devices", rig.now)


def test_its_view_is_of_the_same_waits_as_the_snapshot() -> None:
    rig = called(joined=1)
    view, snapshot = look(rig), rig.controller.snapshot()
    assert [(each.since, each.reason) for each in view.waits] == [(each.since, each.reason) for each in snapshot.waits]
    assert view.waits[0].reason == "slice 's' waits for hosts 1 of island 'i0' (absent)"
