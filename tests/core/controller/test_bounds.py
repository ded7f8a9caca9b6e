"""Every wait of a client is bounded: a put or a wait that does not end by itself is ended by name, and the cluster goes
on."""

from __future__ import annotations

from core.controller.watch import Bounds
from core.model import ranges
from core.model.program import Sharding, SliceSpec, Value
from core.protocol.effects import Command, FormWorld, LogLine, MessageReceived, Send, Wakeup, WorldUp
from core.protocol.messages import (
    Blame,
    ClientMessages,
    ContentsReady,
    Open,
    PoisonStep,
    Put,
    RecvStep,
    Refused,
    Register,
    Submit,
)
from tests.core.build import Build

from .test_controller import CLIENT, HOST, Rig

S = 1_000_000_000
VALUE = Value((4,), "float32", 0, Sharding(((0,),)))
BOUNDS = Bounds()


class WaitingClient(Rig):
    """A controller with a clock, and what the client has heard of its puts."""

    def __init__(self, hosts: int) -> None:
        self.puts: dict[int, Blame | None] = {}
        super().__init__(hosts)
        self.say(CLIENT, Open("client"))

    def at(self, now: int) -> None:
        while (due := self.controller.next_wakeup()) is not None and due <= now:
            self._do(self.controller.handle(Wakeup(), due), due)

    def _do(self, effects: list[Command], now: int) -> None:
        for effect in effects:
            if isinstance(effect, FormWorld):
                self._do(self.controller.handle(WorldUp(effect.island, effect.epoch), now), now)
            elif isinstance(effect, Send):
                for to in effect.peers:
                    for note in (
                        effect.message.notes if isinstance(effect.message, ClientMessages) else (effect.message,)
                    ):
                        if isinstance(note, ContentsReady):
                            self.puts |= dict.fromkeys(ranges.each(note.buffers), note.blame)
                        elif isinstance(note, Refused):
                            self.puts[note.name] = note.blame
                    for answer in self.hear(to, effect.message):
                        self._do(self.controller.handle(answer, now), now)

    @property
    def state(self) -> tuple[str, int]:
        island = self.controller.state.islands[0]
        return island.phase, island.epoch


def test_a_put_that_never_ends_is_ended_and_so_is_the_epoch_of_hosts_that_do_not_obey() -> None:
    rig = WaitingClient(2)
    _, epoch = rig.state
    rig.say(CLIENT, Put(1, VALUE, SliceSpec("s", 2)))
    (step,) = [step for step in rig.steps if isinstance(step, RecvStep)]
    hard = min(BOUNDS.hard, BOUNDS.contents) * BOUNDS.soft(16 * BOUNDS.byte)
    rig.at(hard - S)
    assert not [step for step in rig.steps if isinstance(step, PoisonStep)]
    rig.at(hard)
    (poison,) = [step for step in rig.steps if isinstance(step, PoisonStep)]
    assert (poison.transfer, poison.blame.code) == (step.transfer, "timeout")
    assert not rig.puts  # hosts are to report that they have ended it
    rig.at(2 * hard)
    blame = rig.puts[1]
    assert blame is not None
    assert (blame.code, blame.cause) == ("timeout", "hosts 0-1 did not finish in time")
    assert rig.state == ("running", epoch + 1)


def test_hosts_that_end_a_put_when_they_are_told_to_stay_in_their_epoch() -> None:
    rig = WaitingClient(2)
    was = rig.state
    rig.say(CLIENT, Put(1, VALUE, SliceSpec("s", 2)))
    (step,) = [step for step in rig.steps if isinstance(step, RecvStep)]
    rig.at(BOUNDS.hard * BOUNDS.soft(16 * BOUNDS.byte))
    for host in range(2):
        rig.done(host, step, Blame("timeout", "as told"))
    assert rig.state == was
    assert not rig.controller.state.in_flight.values()


def test_the_puts_of_a_call_that_wait_for_the_same_hosts_are_one_line_of_the_log() -> None:
    rig = WaitingClient(1)
    rig.controller = type(rig.controller)(rig.controller.cluster)  # its host has not come
    rig.say(CLIENT, Open("ann"))
    puts = [MessageReceived(CLIENT, Put(name, VALUE, SliceSpec("s", 1))) for name in range(1, 1001)]
    told = [effect for put in puts for effect in rig.controller.handle(put, 0) if isinstance(effect, LogLine)]
    assert [line.text for line in told] == [
        "a put of client 'ann' waits: slice 's' waits for hosts 0 of island 'i0' (absent)"
    ]


def test_a_wait_for_hosts_that_never_come_is_ended() -> None:
    rig = WaitingClient(1)
    rig.controller = type(rig.controller)(rig.controller.cluster)  # its host has not come
    rig.say(CLIENT, Open("client"))
    build = Build("work", s=1)
    rig.say(CLIENT, Register(1, build.program(build.call("make", "s", [build.arg("s", 4)]))))
    rig.say(CLIENT, Submit(1, 1, (bytes(16),), (11,)))
    rig.say(CLIENT, Put(1, VALUE, SliceSpec("other", 1)))
    rig.at(BOUNDS.absent - 1)
    assert (rig.ended, rig.puts) == ({}, {})
    rig.at(BOUNDS.absent)
    blame = rig.ended[1]
    assert blame is not None
    waits = "slice 's' waits for hosts 0 of island 'i0' (absent), for 600 s"
    assert (blame.code, blame.cause) == ("timeout", waits)
    put = rig.puts[1]
    assert put is not None
    assert (put.code, put.cause) == ("timeout", waits.replace("'s'", "'other'"))


def test_a_wait_for_devices_that_another_client_holds_is_not_ended() -> None:
    rig = WaitingClient(1)
    rig.say(HOST + 50, Open("first"))
    rig.say(HOST + 50, Put(1, VALUE, SliceSpec("mine", 1, exclusive=True)))
    rig.say(CLIENT, Put(2, VALUE, SliceSpec("s", 1)))
    rig.at(3 * BOUNDS.absent)
    assert 2 not in rig.puts
