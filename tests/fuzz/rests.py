"""What was suspended when the controller was started again is suspended when its client is back, with all its arrays.

Neighbours: `play`, which says when the controller is started again, and when somebody asks for something else.
"""

from __future__ import annotations

from typing import NamedTuple

from core.model import Spans, spans
from core.protocol.effects import OperateSlices
from tests.world.script import Script
from tests.world.world import World

from .case import MS
from .judging import Failed

SOON = 500 * MS  # a client that is away for longer may be forgotten


class Rested(NamedTuple):
    since: int
    slices: tuple[str, ...]
    arrays: dict[int, Spans]  # by name, in host memory; and their hosts
    hosts: dict[int, int]  # their incarnations


class Rests:
    def __init__(self, world: World) -> None:
        self._world = world
        self._wanted: dict[Script, Rested] = {}
        self.ended = False  # the operator has taken all back, and does so again for who comes back later

    def restarts(self, living: list[Script]) -> None:
        """Before the controller ends."""
        machine = self._world.machine
        for script in living if not machine.recovery.under_way else ():
            self.forget(script)
            mine = [
                each for (number, _), each in machine.relocation.under_way.items()
                if number == script.actor.number and each.asleep and each.phase in ("spilling", "parked")
                and each.gives_way_to is None
            ]  # fmt: skip
            if mine and not script.relocating and script.machine.state == "open":
                names = tuple(name for each in mine for name in each.names)
                at_rest = [ident for each in mine if each.phase == "parked" for ident in each.mine]
                there = [machine.buffers[ident] for ident in at_rest if ident in machine.buffers]
                arrays = {buffer.name: buffer.hosts for buffer in there if buffer.handle and buffer.state != "poisoned"}
                self._wanted[script] = Rested(self._world.now, names, arrays, self._hosts())

    def _hosts(self) -> dict[int, int]:
        """The incarnations of those that are members."""
        islands = self._world.machine.state.islands
        return {host: each.incarnations[host] for each in islands for host in spans.items(each.members)}

    def forget(self, script: Script) -> None:
        """Something else is asked for."""
        self._wanted.pop(script, None)

    def look(self) -> None:
        """After something has happened."""
        machine = self._world.machine
        if self.ended:
            away = machine.relocation.under_way.values()
            asleep = {each.session.number for each in away if each.asleep and each.gives_way_to is None}
            for number in sorted(asleep | machine.relocation.resting.keys()):
                self._world.controller.feed(OperateSlices(number, "resume"))
            return
        for script in list(self._wanted) if not machine.recovery.under_way else ():
            late = self._world.now - self._wanted[script].since > SOON
            if late or script.relocating or script.machine.state not in ("open", "away"):
                self.forget(script)
            elif script.actor.number in machine.state.sessions:
                self._judge(script, self._wanted.pop(script))

    def _judge(self, script: Script, wanted: Rested) -> None:
        machine = self._world.machine
        session = machine.state.sessions[script.actor.number]
        for name in wanted.slices:
            each = machine.relocation.under_way.get((session.number, name))
            if each is None or not each.asleep:
                raise Failed("not suspended", f"slice {name} of client {script.name} after a restart")
        now = self._hosts()
        for array, hosts in wanted.arrays.items():
            named = session.names.find(array)
            there = all(wanted.hosts.get(host, -1) == now.get(host) for host in spans.items(hosts))
            if named is not None and named.blame is not None and there:
                raise Failed("lost", f"buffer {array} of client {script.name} after a restart: {named.blame}")
