"""How many bytes a message has on the wire, nominally.

Nominal sizes count the items in a message, instead of encoding it: they do not depend on how hosts are grouped,
and are cheap to compute. Plans and literals, which can be long, count with their real size.
"""

from collections.abc import Callable
from typing import Any

from core.link import codec as wire
from core.model import Gang, Plan
from core.protocol import messages as m

MESSAGE, STEP, RUN, REPORT, CALL, NOTE = 32, 24, 32, 24, 32, 16
ONE_STEP = 7  # bytes that say that a computation has one step; these weigh nothing, nor does a gang's byte for that
LONG = frozenset((m.Register, m.Submit, m.View))  # calls whose size follows what they carry
QUIET = frozenset((m.Heartbeat, m.Compiled, m.Arrived))
BEATS, NEWS = frozenset((m.Heartbeat,)), frozenset((m.Waiting, m.Stalled))
TALK = NEWS | {m.Reports, m.ClientMessages}  # messages of which some move nothing


class MessageSizes:
    def __init__(self) -> None:
        self._plans: dict[int, int] = {}  # by identity; `_kept` keeps the plan alive
        self._kept: list[Plan] = []
        # The last call that was weighed, and its bytes: it is so where it is written, and where it is taken.
        self._last_call: tuple[Any, int] = (None, 0)
        self._contents: dict[type, Callable[[Any], int]] = {
            m.Ordered: self._ordered,
            m.Reports: lambda message: REPORT * len(message.reports),
            m.ClientMessages: lambda message: NOTE * len(message.notes),
            m.Calls: self._once,
            m.Register: self._once,
            m.Submit: self._once,
            m.View: self._once,
        }  # looked up several times for each gang

    def of(self, message: Any) -> int:
        contents = self._contents.get(type(message))
        return MESSAGE if contents is None else MESSAGE + contents(message)

    def _ordered(self, message: m.Ordered) -> int:
        nbytes = STEP * len(message.steps)
        for step in message.steps:
            if type(step) is m.ViewStep:
                nbytes += 8 * len(step.sources)
        for run in message.runs:
            nbytes += RUN + 8 * len(run.args)
            for _, literal in run.literals:
                nbytes += len(literal)
        for plan in message.plans:
            nbytes += self._plan(plan)
        return nbytes

    def _once(self, message: Any) -> int:
        last, nbytes = self._last_call
        if message is not last:
            calls = message.calls if type(message) is m.Calls else (message,)
            nbytes = sum([self._call(call) if type(call) in LONG else CALL for call in calls])
            self._last_call = message, nbytes
        return nbytes

    def _call(self, call: m.Call) -> int:
        if type(call) is m.Submit:
            nbytes = CALL
            for arg in call.args:
                nbytes += len(arg) if isinstance(arg, bytes) else 8
            return nbytes
        if isinstance(call, m.View):
            return CALL + 16 * len(call.shards)
        if isinstance(call, m.Register):
            return len(wire.encode(call)) - ONE_STEP * sum([each.steps == 1 for each in call.ir.computations])
        return CALL

    def _plan(self, plan: Plan) -> int:
        found = self._plans.get(id(plan))
        if found is None:
            ones = sum([isinstance(step, Gang) and step.steps == 1 for step in plan.steps])
            found = len(wire.encode(m.Ordered(0, 0, 0, 0, (), 0, (plan,), (), ()))) - ones
            self._plans[id(plan)] = found
            self._kept.append(plan)
        return found


def is_quiet(report: m.Report) -> bool:
    """Whether a report travels in idle moments and costs no CPU: heartbeats, and reports that no gang waits for."""
    return type(report) in QUIET


def moves_nothing(message: Any) -> bool:
    """Whether a message is a heartbeat or news of what still waits: these come for ever and let no process go on."""
    kind = type(message)
    if kind is m.Reports:
        return BEATS.issuperset(map(type, message.reports))
    if kind is m.ClientMessages:
        return NEWS.issuperset(map(type, message.notes))
    return kind in NEWS
