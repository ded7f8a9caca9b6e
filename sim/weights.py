"""How many bytes a message is taken to have on the wire.

Nominal sizes, so many a thing it says, rather than encoded ones: they do not depend on how hosts are grouped,
and cost nothing to know. Plans and literals, which can be long, count as they are.
"""

from __future__ import annotations

from typing import Any

from core import messages as m
from core import wire
from core.plan import Plan

MESSAGE, STEP, RUN, REPORT, CALL, NOTE = 32, 24, 32, 24, 32, 16


class Weights:
    def __init__(self) -> None:
        self._plans: dict[int, int] = {}  # by identity, while the plan lives
        self._kept: list[Plan] = []

    def of(self, message: Any) -> int:
        match message:
            case m.Ordered(plans=plans, runs=runs, steps=steps):
                nbytes = MESSAGE + STEP * len(steps)
                for run in runs:
                    nbytes += RUN + 8 * len(run.args) + sum(len(literal) for _, literal in run.literals)
                return nbytes + sum(self._plan(plan) for plan in plans)
            case m.Reports(reports=reports):
                return MESSAGE + REPORT * len(reports)
            case m.Notes(notes=notes):
                return MESSAGE + NOTE * len(notes)
            case m.Calls(calls=calls):
                return MESSAGE + sum(map(self._call, calls))
            case m.Register() | m.Submit():
                return MESSAGE + self._call(message)
            case _:
                return MESSAGE

    def _call(self, call: m.Call) -> int:
        if isinstance(call, m.Submit):
            return CALL + sum(len(arg) if isinstance(arg, bytes) else 8 for arg in call.args)
        if isinstance(call, m.Register):
            return len(wire.encode(call))
        return CALL

    def _plan(self, plan: Plan) -> int:
        found = self._plans.get(id(plan))
        if found is None:
            found = self._plans[id(plan)] = len(wire.encode(m.Ordered(0, 0, 0, 0, (), 0, (plan,), (), ())))
            self._kept.append(plan)
        return found


def is_quiet(report: m.Report) -> bool:
    """What travels in idle moments, and costs nobody anything: heartbeats, and what nobody's gang waits for."""
    return isinstance(report, m.Beat | m.Compiled | m.Arrived)


def moves_nothing(message: Any) -> bool:
    """Heartbeats, and news of who still waits: they come for ever, and nobody goes on because of them."""
    if isinstance(message, m.Reports):
        return all(isinstance(report, m.Beat) for report in message.reports)
    notes = message.notes if isinstance(message, m.Notes) else (message,)
    return all(isinstance(note, m.Waiting | m.Stalled) for note in notes)
