"""MPMD programs on this process's devices: each stage is called in its turn, and begins when its arguments are there.

A step with very many stages waits for its first ones before it enqueues its last. Neighbours: `local_devices`, which
does what a step says; `session.stage_plans`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..session import ArrayCopy, CompiledFacts, Ref, StagePlan

if TYPE_CHECKING:
    from .local_devices import LocalDevices


class StagedExecutable:
    """`stages`: executables."""

    def __init__(self, plan: StagePlan, stages: Sequence[Any], facts: CompiledFacts) -> None:
        self._plan, self._stages, self._donated = plan, stages, frozenset(facts.donated)

    def run(self, devices: LocalDevices, given: Sequence[Ref], keep: Sequence[int]) -> list[Ref]:
        plan, arrays, donated = self._plan, dict(enumerate(given)), self._donated.difference(keep)
        stay = frozenset(arrays) - donated
        for step in plan.steps:
            arguments = [arrays[number] for number in step.inputs]
            if step.stage is None:
                ends = ([plan.types[number] for number in side] for side in (step.inputs, step.outputs))
                made: Any = devices.copy([ArrayCopy(*each) for each in zip(*ends, arguments, strict=True)], True)
            else:
                stage = self._stages[step.stage]
                spared = [at for at in stage.donated if at not in step.last or step.inputs[at] in stay]
                made = devices.run(stage, arguments, spared, tokens=True)
                made = made if isinstance(made, list) else made.waits()
            arrays.update(zip(step.outputs, made, strict=True))
            for at in step.last:
                del arrays[step.inputs[at]]
        for at in donated:
            devices.delete(given[at])
        return [arrays[number] for number in plan.results]
