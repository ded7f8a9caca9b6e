"""What clients and `status` are told of waits: in words, since when, and no longer than they last."""

from __future__ import annotations

from typing import Any

import msgspec

from core.controller import Controller, Stall
from core.model.program import SliceSpec, Value
from core.model.topology import Cluster
from core.protocol.effects import (
    Event,
    FormWorld,
    HostAccepted,
    HostRefused,
    LogLine,
    MessageReceived,
    Send,
    Wakeup,
    WorldUp,
)
from core.protocol.messages import (
    ClientMessages,
    Compiled,
    CompileStep,
    Done,
    Ended,
    GangStep,
    Join,
    Open,
    Ordered,
    Put,
    PutAccepted,
    Register,
    Reports,
    Seat,
    Seated,
    SpillStep,
    Stalled,
    Submit,
    Waiting,
)
from core.slices.refusals import KEPT, LONGEST, Refusals
from tests.core.build import Build
from tests.core.client.test_client import WHERE, Session

HOST, CLIENT = 100, 1
S = 1_000_000_000


class Rig:
    """Hosts that take their seats at once, and compile and run what they are told to when the test says so."""

    def __init__(self, hosts: int, joined: int, islands: int = 1, memory: int = 1 << 30) -> None:
        island = {"name": "i", "count": islands, "hosts": hosts, "devices_per_host": 1, "memory": memory}
        self.controller = Controller(Cluster.from_table({"island": [island]}))
        self.now = 0
        self.notes: list[Any] = []  # what the client has heard since the test last looked
        self.told: list[LogLine] = []
        self.steps: dict[int, list[Any]] = {}  # by host
        self.seat: Seat | None = None
        for host in range(joined):
            self.say(HOST + host, Join(host, 0))
        self.say(CLIENT, Open("anna"))
        self.heard()

    def say(self, peer: int, *messages: msgspec.Struct) -> None:
        for message in messages:
            self.feed(MessageReceived(peer, message))

    def feed(self, event: Event) -> None:
        work: list[Event] = [event]
        while work:
            for effect in self.controller.handle(work.pop(0), self.now):
                match effect:
                    case FormWorld():
                        work.append(WorldUp(effect.island, effect.epoch))
                    case LogLine():
                        self.told.append(effect)
                    case Send():
                        work += [each for to in effect.peers for each in self._heard(to, effect.message)]
                    case _:
                        pass

    def _heard(self, peer: int, message: msgspec.Struct) -> list[Event]:
        match message:
            case Seat():
                self.seat = message
                return [MessageReceived(peer, Seated(message.host, message.epoch, message.tree, message.last))]
            case Ordered():
                self.steps.setdefault(peer - HOST, []).extend(message.steps)
            case _ if peer == CLIENT:
                self.notes += message.notes if isinstance(message, ClientMessages) else [message]
        return []

    def until(self, now: int) -> None:
        """Let time pass. The controller is woken as it asks to be."""
        while (due := self.controller.next_wakeup()) is not None and due <= now:
            self.now = due
            self.feed(Wakeup())
        self.now = now

    def form(self) -> None:
        self.until(20 * S)
        self.heard()

    def heard(self) -> list[Any]:
        found, self.notes = self.notes, []
        return found

    def report(self, host: int, *reports: Any) -> None:
        assert self.seat is not None
        self.say(HOST + host, Reports(0, self.seat.epoch, self.seat.tree, reports))

    def compile(self, host: int) -> None:
        asked = [step for step in self.steps[host] if isinstance(step, CompileStep)]
        self.report(host, *(Compiled(step.plan, code, ((host, host + 1),)) for step in asked for code in step.codes))

    def gangs(self, host: int) -> list[GangStep]:
        return [step for step in self.steps[host] if isinstance(step, GangStep)]

    @property
    def stalls(self) -> list[Stall]:
        return self.controller.stalls.now()

    @property
    def waits(self) -> list[Stall]:
        return self.controller.stalls.waits()

    def call(self, devices: int, name: str = "step") -> None:
        made = Build("train", s=devices)
        out = made.call(name, "s", [made.arg("s", 4 * devices, split="0")])
        self.say(CLIENT, Register(1, made.program(out)), Submit(1, 1, (bytes(16 * devices),), (11,)))


# --- code ---------------------------------------------------------------------------------------------------------


def test_a_wait_for_code_says_what_is_compiled_where_and_since_when() -> None:
    rig = Rig(2, joined=2)
    rig.call(2)
    begun = rig.now
    assert not rig.heard(), "a quick compilation is not reported"
    (wait,) = rig.waits
    assert (wait.reason, wait.hosts, wait.since) == ("compiling 'step' on hosts 0-1", ((0, 2),), begun)
    assert (wait.client, wait.program, wait.island) == ("anna", "train", "i0")
    rig.until(begun + S)
    assert rig.heard() == [Waiting(1, "compiling 'step' on hosts 0-1", S)]
    rig.compile(0)
    rig.until(begun + 4 * S)
    assert rig.heard() == [Waiting(1, "compiling 'step' on hosts 1", 3 * S)]
    rig.until(begun + 200 * S)
    assert rig.heard() == [], "each reason once"
    rig.compile(1)
    assert Waiting(1, "") in rig.heard()
    assert not rig.waits
    assert not rig.stalls
    rig.until(begun + 203 * S)
    assert not rig.heard()


def test_code_that_takes_too_long_to_compile_is_a_stall_until_it_is_there() -> None:
    rig = Rig(2, joined=2)
    rig.call(2)
    begun = rig.now
    rig.compile(0)
    rig.until(begun + 400 * S)
    (stall,) = rig.stalls
    assert stall == Stall(begun, "i0", "anna", "train", "", ((1, 2),), "compiling 'step' on hosts 1")
    assert not rig.waits
    assert next(note for note in rig.heard() if isinstance(note, Stalled)).age == 305 * S
    assert rig.told[-1].passing
    assert rig.controller.state.stalls_ever == 1
    rig.compile(1)
    assert not rig.stalls
    assert rig.controller.state.stalls_ever == 1


# --- gangs under way ----------------------------------------------------------------------------------------------


def test_a_gang_that_does_not_end_is_a_stall_until_it_does() -> None:
    rig = Rig(2, joined=2)
    rig.call(2)
    for host in (0, 1):
        rig.compile(host)
    begun = rig.now
    rig.heard()
    assert not rig.stalls
    rig.until(begun + 10 * S)
    (stall,) = rig.stalls
    assert (stall.since, stall.island, stall.program, stall.node) == (begun, "i0", "train", "step")
    assert stall.hosts == ((0, 2),)
    first = rig.gangs(0)[0]
    rig.report(0, Done(first.seq, ((0, 1),)))
    (stall,) = rig.stalls
    assert stall.hosts == ((1, 2),), "of the hosts that have not ended it"
    rig.heard()
    rig.report(1, Done(first.seq, ((1, 2),)))
    assert not rig.stalls
    assert any(isinstance(note, Ended) for note in rig.heard())


# --- slices, and hosts that are refused ---------------------------------------------------------------------------


def test_a_slice_that_cannot_be_bound_is_a_stall_as_long_as_that_lasts() -> None:
    rig = Rig(2, joined=1)
    rig.form()
    begun = rig.now
    rig.call(2)
    reason = "slice 's' waits for hosts 1 of island 'i0' (absent)"
    assert rig.heard() == [Waiting(1, reason)]
    assert [wait.reason for wait in rig.waits] == [reason]
    for later in (6, 34, 36, 80):  # it is reported again and again; it is the same stall
        rig.until(begun + later * S)
        assert [(stall.since, stall.reason) for stall in rig.stalls] == [(begun, reason)]
        assert not rig.waits
    assert rig.controller.state.stalls_ever == 1
    rig.heard()
    rig.say(HOST + 1, Join(1, 0))
    assert not rig.stalls
    assert Waiting(1, "") in rig.heard()


def test_a_client_that_waits_for_hosts_learns_which_were_refused_and_why() -> None:
    rig = Rig(2, joined=1)
    rig.form()
    rig.call(2)
    rig.say(CLIENT, Put(21, Value((8,), "float32"), SliceSpec("t", 2)))
    of_run, of_put = rig.heard()
    assert of_put == Waiting(-21, of_run.reason.replace("'s'", "'t'"))
    begun = rig.now
    rig.until(begun + 3 * S)
    rig.feed(HostRefused(0, "box", "it has 3 devices"))
    renewed = "waits for hosts 1 of island 'i0' (absent); agent 'box' was refused: it has 3 devices"
    assert rig.heard() == [Waiting(1, f"slice 's' {renewed}", 3 * S), Waiting(-21, f"slice 't' {renewed}")]
    (wait,) = rig.waits
    assert (wait.since, wait.reason) == (begun, f"slice 's' {renewed}")
    rig.feed(HostRefused(0, "box", "it has 3 devices"))
    assert rig.heard() == [], "it is tried again and again, and reported once"
    (refusal,) = rig.controller.resources.refusals.all()
    assert refusal.at == rig.now
    rig.feed(HostAccepted("another"))
    assert rig.heard() == []
    rig.feed(HostAccepted("box"))
    assert rig.heard()[0] == Waiting(1, of_run.reason, 3 * S)
    assert not rig.controller.resources.refusals.all()


def test_refused_hosts_of_another_island_are_not_named() -> None:
    rig = Rig(2, joined=1, islands=2)
    rig.form()
    rig.say(CLIENT, Put(21, Value((8,), "float32"), SliceSpec("t", 2, (), "", "i0")))
    rig.heard()
    rig.feed(HostRefused(1, "box", "it has 3 devices"))
    assert rig.heard() == []
    rig.feed(HostRefused(-1, "crate", "it has 5 devices"))
    (note,) = rig.heard()
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
    rig = Rig(1, joined=1, memory=100)
    value = Value((20,), "float32")
    rig.say(CLIENT, Put(21, value, SliceSpec("t", 1)))
    taking = [note for note in rig.heard() if isinstance(note, PutAccepted)]
    assert len(taking) == 1
    begun = rig.now
    rig.say(CLIENT, Put(22, value, SliceSpec("t", 1)))
    assert not rig.stalls
    rig.until(begun + 6 * S)
    put = [stall for stall in rig.stalls if stall.node == "put"]
    assert [(stall.since, stall.client, stall.island) for stall in put] == [(begun, "anna", "i0")]
    assert [stall.node for stall in rig.stalls if stall not in put] == ["put of buffer 1"]  # never sent
    rig.report(0, Done(taking[0].transfer, ((0, 1),)))
    (spill,) = [step for step in rig.steps[0] if isinstance(step, SpillStep)]  # the first makes room
    rig.report(0, Done(spill.seq, ((0, 1),)))
    assert not [stall for stall in rig.stalls if stall.node == "put"]


# --- what a client knows of waits ---------------------------------------------------------------------------------


def test_the_reason_of_a_runs_wait_is_known_until_the_run_goes_on_or_ends() -> None:
    session, s = Session(), S
    session.program(args=0)
    first, second = session.submit().run, session.submit().run
    put = session.put()
    waits = session.client.longest_wait
    assert waits(0) == ""
    session.note(Waiting(first, "compiling 'f' on hosts 0-1", 12 * s), Waiting(second, "memory", 3 * s))
    assert waits(session.now) == "compiling 'f' on hosts 0-1, 12 s"
    assert waits(session.now + s) == "compiling 'f' on hosts 0-1, 13 s"
    session.note(Waiting(first, ""))
    assert waits(session.now) == "memory, 3 s"
    session.note(Ended(second), Waiting(-put, "slice 's' waits for hosts"))
    assert waits(session.now) == "slice 's' waits for hosts, 0 s"
    session.note(PutAccepted(put, 40, WHERE))
    session.note(Stalled(first, "f", "mul", "pod", ((4, 6),), "it has not ended", 20 * s))
    assert waits(session.now) == "program 'f', node 'mul' on island 'pod': it has not ended: hosts 4-5, 20 s"
    session.note(Waiting(77, "of nobody's run"), Waiting(-77, "of nobody's put"))
    assert len(session.client._state.waits) == 1
    session.note(Ended(first))
    assert waits(session.now) == ""
