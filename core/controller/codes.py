"""Which computations are compiled where: gangs enter an order only when every host of theirs has reported ready.

Neighbours: `runs` asks for a plan and waits; `islands` says when an epoch has made all compiled code void;
hosts answer with `Compiled`. One client's long compile delays no one else, because nothing else waits here.
"""

from __future__ import annotations

from ..model import Gang, Spans, spans
from ..protocol import Blame, Compiled, CompileStep
from .outbox import Outbox
from .records import Shape


class Codes:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._waiting: dict[int, dict[int, Spans]] = {}  # plan -> code -> hosts that have not answered
        self._asked: dict[int, dict[int, int]] = {}  # plan -> island -> epoch in which it was asked
        self._blames: dict[int, Blame] = {}  # plan -> why it cannot be compiled

    def request(self, shape: Shape, island: int, epoch: int) -> None:
        """Ask the plan's hosts on this island to compile; once an epoch."""
        asked = self._asked.setdefault(shape.plan.id, {})
        if asked.get(island) == epoch:
            return
        asked[island] = epoch
        wanted = self._codes_on(shape, island)
        if wanted:
            waiting = self._waiting.setdefault(shape.plan.id, {})
            for code, hosts in wanted.items():
                waiting[code] = spans.union(waiting.get(code, spans.EMPTY), hosts)
            step = CompileStep(shape.plan.id, tuple(wanted), tuple(wanted.values()))
            self._outbox.step(island, step, spans.union(*wanted.values()))

    def _codes_on(self, shape: Shape, island: int) -> dict[int, Spans]:
        wanted: dict[int, Spans] = {}
        for index, step in enumerate(shape.plan.steps):
            if isinstance(step, Gang) and step.place.island == island:
                known = wanted.get(step.computation, spans.EMPTY)
                hosts = shape.hosts[index]
                wanted[step.computation] = hosts if hosts == known else spans.union(known, hosts)
        return wanted

    def reported(self, report: Compiled) -> bool:
        """True: the plan has just become ready, or can never be."""
        waiting = self._waiting.get(report.plan, {})
        left = waiting.get(report.code)
        if left is None:
            return False
        if report.blame is not None:
            self._blames.setdefault(report.plan, report.blame)
        left = spans.minus(left, report.hosts)
        if left:
            waiting[report.code] = left
        else:
            del waiting[report.code]
        return report.blame is not None or self.ready(report.plan)

    def awaits(self, plan: int, code: int) -> Spans:
        """Hosts that have not answered."""
        return self._waiting.get(plan, {}).get(code, spans.EMPTY)

    def ready(self, plan: int) -> bool:
        return plan in self._asked and not self._waiting.get(plan)

    def blame(self, plan: int) -> Blame | None:
        return self._blames.get(plan)

    def missing(self, plan: int) -> Spans:
        """Hosts that have not reported: what a stalled compile is blamed on."""
        return spans.union(*self._waiting.get(plan, {}).values())

    def lacking(self, plan: int) -> dict[int, Spans]:
        """By code, hosts that have not reported."""
        return self._waiting.get(plan, {})

    def hosts_gone(self, gone: Spans) -> list[int]:
        """Nobody waits for the dead. Returns plans that this has made ready."""
        made_ready: list[int] = []
        for plan, waiting in self._waiting.items():
            for code in list(waiting):
                left = spans.minus(waiting[code], gone)
                if left:
                    waiting[code] = left
                else:
                    del waiting[code]
                    if not waiting:
                        made_ready.append(plan)
        return made_ready

    def forget(self, plan: int) -> None:
        self._waiting.pop(plan, None)
        self._asked.pop(plan, None)
        self._blames.pop(plan, None)
