"""A controller, and hosts that do at once what they are asked, and report only what the test lets them."""

from __future__ import annotations

from typing import Any

from core import protocol as p
from core.controller import Config, Controller, Stall
from core.model import ranges, spans
from core.model.topology import Cluster
from core.protocol.messages import Note
from tests.core.build import Build

DEFAULT = Config()
HOST, CLIENT = 100, 1  # the controller's numbers of connections: that of host h is HOST + h
S = 1_000_000_000


class Rig:
    """Hosts take their seats at once, and compile at once unless `compiling`: then until `compiled` or `compile`.

    `joined`: how many hosts come. All that happens does so at `now`.
    """

    def __init__(
        self, hosts: int, joined: int = -1, islands: int = 1, memory: int = 1 << 30, config: Config = DEFAULT
    ) -> None:
        island = {"name": "i", "count": islands, "hosts": hosts, "devices_per_host": 1, "memory": memory}
        self.controller = Controller(Cluster.from_table({"island": [island]}), config=config)
        self.now = 0
        self.compiling = False
        self.owed: list[tuple[int, int, int]] = []  # host, plan, code: what hosts still compile
        self.seat: p.Seat | None = None  # the last one
        self.heard: list[p.Ordered] = []  # by each host
        self.steps: list[p.Step] = []
        self.told: list[p.LogLine] = []
        self.notes: list[Note] = []  # to clients, since the test last took them
        self.ended: dict[int, p.Blame | None] = {}  # runs
        self.puts: dict[int, p.Blame | None] = {}
        for host in range(hosts if joined < 0 else joined):
            self.say(HOST + host, p.Join(host, 0))

    # --- what happens

    def say(self, peer: int, *messages: Any) -> None:
        for message in messages:
            self.feed(p.MessageReceived(peer, message))

    def feed(self, event: p.Event) -> None:
        work = [event]
        while work:
            for effect in self.controller.handle(work.pop(0), self.now):
                if isinstance(effect, p.FormWorld):
                    work.append(self.formed(effect))
                elif isinstance(effect, p.LogLine):
                    self.told.append(effect)
                elif isinstance(effect, p.Send):
                    work += [answer for to in effect.peers for answer in self.hear(to, effect.message)]

    def until(self, now: int) -> None:
        """Let time pass. The controller is woken as it asks to be."""
        while (due := self.controller.next_wakeup()) is not None and due <= now:
            self.now = due
            self.feed(p.Wakeup())
        self.now = now

    def report(self, host: int, *reports: p.Report) -> None:
        assert self.seat is not None
        self.say(HOST + host, p.Reports(0, self.seat.epoch, self.seat.tree, reports))

    def done(self, host: int, step: p.GangStep | p.SendStep | p.RecvStep, blame: p.Blame | None = None) -> None:
        self.report(host, p.Done(step.seq, spans.one(host), blame))

    def compiled(self, plan: int, blame: p.Blame | None = None) -> None:
        for host, asked, code in [owed for owed in self.owed if owed[1] == plan]:
            self.report(host, p.Compiled(asked, code, spans.one(host), blame))

    def compile(self, host: int) -> None:
        self.report(host, *(p.Compiled(plan, code, spans.one(host)) for one, plan, code in self.owed if one == host))

    # --- what is heard

    def formed(self, world: p.FormWorld) -> p.Event:
        return p.WorldUp(world.island, world.epoch)

    def hear(self, peer: int, message: Any) -> list[p.Event]:
        if isinstance(message, p.Seat):
            self.seat = message
            return [p.MessageReceived(peer, p.Seated(message.host, message.epoch, message.tree, message.last))]
        if isinstance(message, p.Ordered):
            self.heard.append(message)
            self.steps += [step for step in message.steps if step not in self.steps]
            steps = [step for step in message.steps if isinstance(step, p.CompileStep)]
            self.owed += (asked := [(peer - HOST, step.plan, code) for step in steps for code in step.codes])
            assert self.seat is not None
            done = tuple(p.Compiled(plan, code, spans.one(host)) for host, plan, code in asked)
            answer = p.Reports(0, self.seat.epoch, self.seat.tree, done)
            return [p.MessageReceived(peer, answer)] if done and not self.compiling else []
        for note in message.notes if isinstance(message, p.ClientMessages) else (message,):
            self.notes.append(note)
            if isinstance(note, p.Ended):
                assert note.run not in self.ended, "a run ended twice"
                self.ended[note.run] = note.blame
            elif isinstance(note, p.ContentsReady):
                self.puts |= dict.fromkeys(ranges.each(note.buffers), note.blame)
            elif isinstance(note, p.Refused):
                self.puts[note.name] = note.blame
        return []

    def said(self) -> list[Any]:
        """What clients have been told since this was asked last."""
        found, self.notes = self.notes, []
        return found

    # --- what it knows

    @property
    def gangs(self) -> list[p.GangStep]:
        return [step for step in self.steps if isinstance(step, p.GangStep)]

    @property
    def state(self) -> tuple[str, int]:
        island = self.controller.state.islands[0]
        return island.phase, island.epoch

    def blame(self, run: int) -> tuple[str, str]:
        """The code and the cause with which a run has ended."""
        found = self.ended[run]
        assert found is not None
        return found.code, found.cause

    @property
    def stalls(self) -> list[Stall]:
        return self.controller.stalls.now()

    @property
    def waits(self) -> list[Stall]:
        return self.controller.stalls.waits()

    # --- what clients do

    def register(self, node: str = "make", program: str = "work") -> None:
        """A program of one gang on two hosts, which is number 1."""
        build = Build(program, s=2)
        self.say(CLIENT, p.Register(1, build.program(build.call(node, "s", [build.arg("s", 8, split="0")]))))

    def submit(self, run: int) -> None:
        """A call of it."""
        self.say(CLIENT, p.Submit(run, 1, (bytes(32),), (100 + run,)))
