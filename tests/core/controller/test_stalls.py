"""What clients and `status` are told of waits: in words, since when, and no longer than they last."""

from __future__ import annotations

from core import protocol as p
from core.controller import Stall
from core.model.program import SliceSpec, Value
from core.slices.refusals import KEPT, LONGEST, Refusals
from tests.core.client.test_client import WHERE, Session

from .rig import CLIENT, HOST, Rig, S


def waiting(hosts: int, joined: int, islands: int = 1, memory: int = 1 << 30) -> Rig:
    """A client has opened its session; the island begins without hosts that have not joined."""
    rig = Rig(hosts, joined, islands, memory)
    rig.compiling = True
    rig.say(CLIENT, p.Open("anna"))
    if joined < hosts:
        rig.until(20 * S)
    rig.said()
    return rig


def called(joined: int = 2) -> Rig:
    """Of a program on two hosts."""
    rig = waiting(2, joined)
    rig.register("step", "train")
    rig.submit(1)
    return rig


# --- code ---------------------------------------------------------------------------------------------------------


def test_a_wait_for_code_says_what_is_compiled_where_and_since_when() -> None:
    rig = called()
    begun = rig.now
    assert not rig.said(), "a quick compilation is not reported"
    (wait,) = rig.waits
    assert (wait.reason, wait.hosts, wait.since) == ("compiling 'step' on hosts 0-1", ((0, 2),), begun)
    assert (wait.client, wait.program, wait.island) == ("anna", "train", "i0")
    rig.until(begun + S)
    assert rig.said() == [p.Waiting(1, "compiling 'step' on hosts 0-1", S)]
    rig.compile(0)
    rig.until(begun + 4 * S)
    assert rig.said() == [p.Waiting(1, "compiling 'step' on hosts 1", 3 * S)]
    rig.until(begun + 200 * S)
    assert rig.said() == [], "each reason once"
    rig.compile(1)
    assert p.Waiting(1, "") in rig.said()
    assert not rig.waits
    assert not rig.stalls
    rig.until(begun + 203 * S)
    assert not rig.said()


def test_code_that_takes_too_long_to_compile_is_a_stall_until_it_is_there() -> None:
    rig = called()
    begun = rig.now
    rig.compile(0)
    rig.until(begun + 400 * S)
    (stall,) = rig.stalls
    assert stall == Stall(begun, "i0", "anna", "train", "", ((1, 2),), "compiling 'step' on hosts 1")
    assert not rig.waits
    assert next(note for note in rig.said() if isinstance(note, p.Stalled)).age == 305 * S
    assert rig.told[-1].passing
    assert rig.controller.state.stalls_ever == 1
    rig.compile(1)
    assert not rig.stalls
    assert rig.controller.state.stalls_ever == 1


# --- gangs under way ----------------------------------------------------------------------------------------------


def test_a_gang_that_does_not_end_is_a_stall_until_it_does() -> None:
    rig = called()
    for host in (0, 1):
        rig.compile(host)
    begun = rig.now
    rig.said()
    assert not rig.stalls
    rig.until(begun + 10 * S)
    (stall,) = rig.stalls
    assert (stall.since, stall.island, stall.program, stall.node) == (begun, "i0", "train", "step")
    assert stall.hosts == ((0, 2),)
    first = rig.gangs[0]
    rig.report(0, p.Done(first.seq, ((0, 1),)))
    (stall,) = rig.stalls
    assert stall.hosts == ((1, 2),), "of the hosts that have not ended it"
    rig.said()
    rig.report(1, p.Done(first.seq, ((1, 2),)))
    assert not rig.stalls
    assert any(isinstance(note, p.Ended) for note in rig.said())


# --- slices, and hosts that are refused ---------------------------------------------------------------------------


def test_a_slice_that_cannot_be_bound_is_a_stall_as_long_as_that_lasts() -> None:
    rig = called(joined=1)
    begun = rig.now
    reason = "slice 's' waits for hosts 1 of island 'i0' (absent)"
    assert rig.said() == [p.Waiting(1, reason)]
    assert [wait.reason for wait in rig.waits] == [reason]
    for later in (6, 34, 36, 80):  # it is reported again and again; it is the same stall
        rig.until(begun + later * S)
        assert [(stall.since, stall.reason) for stall in rig.stalls] == [(begun, reason)]
        assert not rig.waits
    assert rig.controller.state.stalls_ever == 1
    rig.said()
    rig.say(HOST + 1, p.Join(1, 0))
    assert not rig.stalls
    assert p.Waiting(1, "") in rig.said()


def test_a_client_that_waits_for_hosts_learns_which_were_refused_and_why() -> None:
    rig = called(joined=1)
    rig.say(CLIENT, p.Put(21, Value((8,), "float32"), SliceSpec("t", 2)))
    of_run, of_put = rig.said()
    assert of_put == p.Waiting(-21, of_run.reason.replace("'s'", "'t'"))
    begun = rig.now
    rig.until(begun + 3 * S)
    rig.feed(p.HostRefused(0, "box", "it has 3 devices"))
    renewed = "waits for hosts 1 of island 'i0' (absent); agent 'box' was refused: it has 3 devices"
    assert rig.said() == [p.Waiting(1, f"slice 's' {renewed}", 3 * S), p.Waiting(-21, f"slice 't' {renewed}")]
    (wait,) = rig.waits
    assert (wait.since, wait.reason) == (begun, f"slice 's' {renewed}")
    rig.feed(p.HostRefused(0, "box", "it has 3 devices"))
    assert rig.said() == [], "it is tried again and again, and reported once"
    (refusal,) = rig.controller.resources.refusals.all()
    assert refusal.at == rig.now
    rig.feed(p.HostAccepted("another"))
    assert rig.said() == []
    rig.feed(p.HostAccepted("box"))
    assert rig.said()[0] == p.Waiting(1, of_run.reason, 3 * S)
    assert not rig.controller.resources.refusals.all()


def test_refused_hosts_of_another_island_are_not_named() -> None:
    rig = waiting(2, joined=1, islands=2)
    rig.say(CLIENT, p.Put(21, Value((8,), "float32"), SliceSpec("t", 2, (), "", "i0")))
    rig.said()
    rig.feed(p.HostRefused(1, "box", "it has 3 devices"))
    assert rig.said() == []
    rig.feed(p.HostRefused(-1, "crate", "it has 5 devices"))
    (note,) = rig.said()
    assert "crate" in note.reason
    assert "box" not in note.reason


def test_only_the_last_refusals_are_kept_and_each_is_short() -> None:
    refusals = Refusals()
    for number in range(KEPT + 5):
        assert refusals.refused(f"agent-{number}", -1, "no room", number)
    assert not refusals.refused("agent-5", -1, "no room", 99)
    assert [each.name for each in refusals.all()] == [f"agent-{n}" for n in (*range(6, KEPT + 5), 5)]
    assert refusals.refused("long" * 1000, 0, "x" * 5000, 100)
    assert len(refusals.all()[-1].name) < LONGEST + 10
    assert len(refusals.all()[-1].reason) < LONGEST + 10
    assert len(refusals.all()) == KEPT
    assert refusals.taken("long" * 1000)
    assert not refusals.taken("long" * 1000)


# --- memory -------------------------------------------------------------------------------------------------------


def test_a_put_that_waits_for_memory_is_a_stall_until_there_is_some() -> None:
    rig = waiting(1, joined=1, memory=100)
    value = Value((20,), "float32")
    rig.say(CLIENT, p.Put(21, value, SliceSpec("t", 1)))
    taking = [note for note in rig.said() if isinstance(note, p.PutAccepted)]
    assert len(taking) == 1
    begun = rig.now
    rig.say(CLIENT, p.Put(22, value, SliceSpec("t", 1)))
    assert not rig.stalls
    rig.until(begun + 6 * S)
    put = [stall for stall in rig.stalls if stall.node == "put"]
    assert [(stall.since, stall.client, stall.island) for stall in put] == [(begun, "anna", "i0")]
    assert [stall.node for stall in rig.stalls if stall not in put] == ["put of buffer 1"]  # never sent
    rig.report(0, p.Done(taking[0].transfer, ((0, 1),)))
    (spill,) = [step for step in rig.steps if isinstance(step, p.SpillStep)]  # the first makes room
    rig.report(0, p.Done(spill.seq, ((0, 1),)))
    assert not [stall for stall in rig.stalls if stall.node == "put"]


# --- what a client knows of waits ---------------------------------------------------------------------------------


def test_the_reason_of_a_runs_wait_is_known_until_the_run_goes_on_or_ends() -> None:
    session, s = Session(), S
    session.program(args=0)
    first, second = session.submit().run, session.submit().run
    put = session.put()
    waits = session.client.longest_wait
    assert waits(0) == ""
    session.note(p.Waiting(first, "compiling 'f' on hosts 0-1", 12 * s), p.Waiting(second, "memory", 3 * s))
    assert waits(session.now) == "compiling 'f' on hosts 0-1, 12 s"
    assert waits(session.now + s) == "compiling 'f' on hosts 0-1, 13 s"
    session.note(p.Waiting(first, ""))
    assert waits(session.now) == "memory, 3 s"
    session.note(p.Ended(second), p.Waiting(-put, "slice 's' waits for hosts"))
    assert waits(session.now) == "slice 's' waits for hosts, 0 s"
    session.note(p.PutAccepted(put, 40, WHERE))
    session.note(p.Stalled(first, "f", "mul", "pod", ((4, 6),), "it has not ended", 20 * s))
    assert waits(session.now) == "program 'f', node 'mul' on island 'pod': it has not ended: hosts 4-5, 20 s"
    session.note(p.Waiting(77, "of nobody's run"), p.Waiting(-77, "of nobody's put"))
    assert len(session.client._state.waits) == 1
    session.note(p.Ended(first))
    assert waits(session.now) == ""
