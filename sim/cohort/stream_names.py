"""What the orders of an island have named: plans, runs, and which hosts report on a step.

It is learnt from the stream alone, whether the island's hosts are simulated together or one by one. So an island that
becomes a cohort again knows what its later orders speak of.

Neighbours: `island` asks; `sim.simulation.regrouping` goes on learning while there is no cohort.
"""

from typing import Any

from core.model import Gang, Move, Plan, Spans
from core.protocol import messages as m

from .climbs import Key

MOVES = (m.SendStep, m.RecvStep, m.SpillStep, m.RestoreStep)


class StreamNames:
    def __init__(self) -> None:
        self.plans: dict[int, Plan] = {}
        self.runs: dict[int, Plan] = {}
        # by report: the hosts that make it, for reports that hosts make one by one
        self.taking_part: dict[Key, Spans] = {}
        # by plan and code: in which order they were last asked for
        self.codes: dict[tuple[int, int], int] = {}
        self._asked = 0

    def learn(self, message: m.Ordered) -> None:
        """Takes in plans and runs, before the message's steps. A message that is sent again, to hosts that lack it, may
        name what was forgotten behind it."""
        for plan in message.plans:
            self.plans[plan.id] = plan
        for run in message.runs:
            if run.plan in self.plans:
                self.runs[run.run] = self.plans[run.plan]

    def has_gang(self, name: str) -> bool:
        """Whether a gang of this name may have been ordered, or may be without a new plan."""
        plans = (*self.plans.values(), *self.runs.values())
        return any(isinstance(step, Gang) and step.name == name for plan in plans for step in plan.steps)

    def move(self, step: m.SendStep | m.RecvStep) -> tuple[Plan, Move]:
        """The move of which the step is an end, and its plan."""
        plan = self.runs[step.run]
        move = plan.steps[step.step]
        assert isinstance(move, Move)
        return plan, move

    def step(self, step: Any) -> None:
        """Takes in a step."""
        if isinstance(step, m.GangStep):
            if step.ack:
                self.taking_part[m.Enqueued, step.seq] = step.hosts
        elif isinstance(step, MOVES):
            self.taking_part[m.Done, step.seq] = step.hosts
            if isinstance(step, m.SendStep):
                self.taking_part[m.PieceCounts, step.transfer] = step.hosts
        elif isinstance(step, m.CompileStep):
            for code in step.codes:
                self._asked += 1
                self.codes[step.plan, code] = self._asked
        elif isinstance(step, m.ForgetStep):
            for number in step.runs:
                self.runs.pop(number, None)
            for number in step.plans:
                self.plans.pop(number, None)
            if step.plans:
                self.codes = {key: at for key, at in self.codes.items() if key[0] not in step.plans}
