"""What becomes of an island whose collective world fails: before it has formed, while it runs, and afterwards."""

from __future__ import annotations

from core.effects import Came, Effect, FormWorld, Send, Tell, WorldFailed, WorldUp
from core.messages import Blame, Done, GangStep, Open, Register, Submit
from core.spans import one

from .build import Build
from .test_controller import CLIENT, HOST, Rig

DEAD = Blame("world", "its coordination process has died")


class World(Rig):
    """`failed` answers with what the controller then does, carried out as in `Rig`."""

    def __init__(self, hosts: int) -> None:
        super().__init__(hosts)
        self.said: list[str] = []

    def failed(self, epoch: int) -> None:
        self._do(self.controller.handle(WorldFailed(0, epoch, DEAD), 0))

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Tell):
                self.said.append(effect.text)
            elif isinstance(effect, FormWorld):
                self._do(self.controller.handle(WorldUp(effect.island, effect.epoch), 0))
            elif isinstance(effect, Send):
                for to in effect.peers:
                    for answer in self.hear(to, effect.message):
                        self._do(self.controller.handle(answer, 0))

    @property
    def state(self) -> tuple[str, int]:
        book = self.controller.books.islands[0]
        return book.phase, book.epoch

    def running(self) -> GangStep:
        """A gang on both hosts, under way."""
        build = Build("work", s=2)
        made = build.call("make", "s", [build.arg("s", 4, split="0")])
        self.say(CLIENT, Open("client"))
        self.say(CLIENT, Register(1, build.program(made)))
        self.say(CLIENT, Submit(1, 1, (bytes(16),), (11,)))
        (gang,) = [step for step in self.steps if isinstance(step, GangStep)]
        return gang


def test_an_idle_island_forms_anew_at_once_when_its_world_has_failed() -> None:
    world = World(2)
    phase, epoch = world.state
    assert phase == "running"
    world.failed(epoch)
    assert world.state == ("running", epoch + 1)
    assert any("has failed" in text and "coordination process" in text for text in world.said)


def test_what_is_under_way_ends_first() -> None:
    world = World(2)
    _, epoch = world.state
    gang = world.running()
    world.failed(epoch)
    assert world.state == ("draining", epoch)
    for host in range(2):
        for answer in world.controller.handle(_done(world, host, gang), 0):
            world._do([answer])
    assert world.state == ("running", epoch + 1)
    assert world.ended == {1: None}


def test_the_world_of_an_epoch_that_is_over_may_fail_and_nobody_minds() -> None:
    world = World(2)
    _, epoch = world.state
    world.failed(epoch)
    world.failed(epoch)
    assert world.state == ("running", epoch + 1)


def _done(world: World, host: int, gang: GangStep) -> Effect:
    return Came(HOST + host, world.reports(Done(gang.seq, one(host))))
