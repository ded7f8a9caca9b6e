"""Every wait of a client is bounded: a put or a wait that does not end by itself is ended by name, and the cluster goes
on."""

from __future__ import annotations

from core import protocol as p
from core.controller.watch import Bounds
from core.model.program import Sharding, SliceSpec, Value
from tests.core.build import Build

from .rig import CLIENT, HOST, Rig, S

VALUE = Value((4,), "float32", 0, Sharding(((0,),)))
BOUNDS = Bounds()


def opened(hosts: int, joined: int = -1) -> Rig:
    rig = Rig(hosts, joined)
    rig.say(CLIENT, p.Open("ann"))
    return rig


def test_a_put_that_never_ends_is_ended_and_so_is_the_epoch_of_hosts_that_do_not_obey() -> None:
    rig = opened(2)
    _, epoch = rig.state
    rig.say(CLIENT, p.Put(1, VALUE, SliceSpec("s", 2)))
    (step,) = [step for step in rig.steps if isinstance(step, p.RecvStep)]
    hard = min(BOUNDS.hard, BOUNDS.contents) * BOUNDS.soft(16 * BOUNDS.byte)
    rig.until(hard - S)
    assert not [step for step in rig.steps if isinstance(step, p.PoisonStep)]
    rig.until(hard)
    (poison,) = [step for step in rig.steps if isinstance(step, p.PoisonStep)]
    assert (poison.transfer, poison.blame.code) == (step.transfer, "timeout")
    assert not rig.puts  # hosts are to report that they have ended it
    rig.until(2 * hard)
    blame = rig.puts[1]
    assert blame is not None
    assert (blame.code, blame.cause) == ("timeout", "hosts 0-1 did not finish in time")
    assert rig.state == ("running", epoch + 1)


def test_hosts_that_end_a_put_when_they_are_told_to_stay_in_their_epoch() -> None:
    rig = opened(2)
    was = rig.state
    rig.say(CLIENT, p.Put(1, VALUE, SliceSpec("s", 2)))
    (step,) = [step for step in rig.steps if isinstance(step, p.RecvStep)]
    rig.until(BOUNDS.hard * BOUNDS.soft(16 * BOUNDS.byte))
    for host in range(2):
        rig.done(host, step, p.Blame("timeout", "as told"))
    assert rig.state == was
    assert not rig.controller.state.in_flight.values()


def test_the_puts_of_a_call_that_wait_for_the_same_hosts_are_one_line_of_the_log() -> None:
    rig = opened(1, joined=0)
    rig.told.clear()
    rig.say(CLIENT, *(p.Put(name, VALUE, SliceSpec("s", 1)) for name in range(1, 1001)))
    assert [line.text for line in rig.told] == [
        "a put of client 'ann' waits: slice 's' waits for hosts 0 of island 'i0' (absent)"
    ]


def test_a_wait_for_hosts_that_never_come_is_ended() -> None:
    rig = opened(1, joined=0)
    build = Build("work", s=1)
    rig.say(CLIENT, p.Register(1, build.program(build.call("make", "s", [build.arg("s", 4)]))))
    rig.say(CLIENT, p.Submit(1, 1, (bytes(16),), (11,)))
    rig.say(CLIENT, p.Put(1, VALUE, SliceSpec("other", 1)))
    rig.until(BOUNDS.absent - 1)
    assert (rig.ended, rig.puts) == ({}, {})
    rig.until(BOUNDS.absent)
    waits = "slice 's' waits for hosts 0 of island 'i0' (absent), for 600 s"
    assert rig.blame(1) == ("timeout", waits)
    put = rig.puts[1]
    assert put is not None
    assert (put.code, put.cause) == ("timeout", waits.replace("'s'", "'other'"))


def test_a_wait_for_devices_that_another_client_holds_is_not_ended() -> None:
    rig = opened(1)
    rig.say(HOST + 50, p.Open("first"))
    rig.say(HOST + 50, p.Put(1, VALUE, SliceSpec("mine", 1, exclusive=True)))
    rig.say(CLIENT, p.Put(2, VALUE, SliceSpec("s", 1)))
    rig.until(3 * BOUNDS.absent)
    assert 2 not in rig.puts
