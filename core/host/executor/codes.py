"""What this host compiles, in the background: asked for by the stream, ready when the compiler says so, void with
its epoch."""

from __future__ import annotations

from ...model import Illegal
from ...protocol import Blame, Cause, CodeReady, CompileCode, Compiled, CompileStep
from .desk import Desk
from .runs import PlanFacts

Key = tuple[int, int]  # (plan, code)


def code_cause(plan: int, code: int) -> Cause:
    return ("code", plan << 20 | code)


class Codes:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._said: dict[Key, Compiled | None] = {}  # None: under way
        self._asked: dict[Key, int] = {}  # and not answered

    def __len__(self) -> int:
        return len(self._said)

    @property
    def busy(self) -> bool:
        return bool(self._asked)

    def compile(self, step: CompileStep, facts: PlanFacts) -> None:
        for number in step.codes:
            if facts.compiles(number):
                key = (step.plan, number)
                self._said[key] = None
                self._asked[key] = self._asked.get(key, 0) + 1
                self._desk.out.append(CompileCode(step.plan, number, (self._desk.order,)))

    def ready(self, event: CodeReady, facts: PlanFacts | None) -> None:
        key = (event.plan, event.code)
        asked = self._asked.pop(key, 0)
        if not asked:
            raise Illegal(f"code {event.code} of plan {event.plan} is ready, and nobody asked")
        if asked > 1:  # asked again meanwhile, for a new epoch: the last answer is the one that counts
            self._asked[key] = asked - 1
            return
        blame = self._desk.here(event.blame, facts.plan.program if facts is not None else "")
        report = self._said[key] = Compiled(event.plan, event.code, self._desk.me, blame)
        self._desk.up(report, (code_cause(event.plan, event.code),))
        if facts is None:
            del self._said[key]  # the plan was forgotten meanwhile

    def forget(self, plan: int) -> None:
        for key in [key for key, said in self._said.items() if key[0] == plan and said is not None]:
            del self._said[key]

    def void(self) -> None:
        """With its epoch; what is under way is for the next."""
        self._said = {key: said for key, said in self._said.items() if said is None}

    def again(self) -> None:
        for said in self._said.values():
            if said is not None:
                self._desk.again(said)

    def state(self) -> dict[Key, Blame | None]:
        """What is compiled, in a form that can be compared."""
        return {key: None if said is None else said.blame for key, said in self._said.items()}
