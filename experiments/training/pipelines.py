"""A pipeline's training step as a program, with a node for every stage's pass over every micro-batch."""

from dataclasses import dataclass

from core.model import Arg, Out, Ref, Sharding, SliceSpec, Value
from seaway.api import schedules

from ..pricing.jobs import KEPT, Costed
from .steps import Graph, Pricing, Step, axes_of


@dataclass(frozen=True)
class Pipeline:
    stages: list[Costed]
    slices: list[SliceSpec]
    microbatches: int
    batch: int  # sequences of a micro-batch
    length: int
    schedule: str = "gpipe"
    light: bool = False  # activations have one number a sequence, as if links took no time


def pipeline(of: Pipeline, pricing: Pricing) -> Step:
    """The step's program. Nodes are in the order of the schedule."""
    written = _Written(of, pricing)
    for task in schedules.merged(schedules.SCHEDULES[of.schedule](len(of.stages), of.microbatches)):
        (written.forward if task.kind == "forward" else written.backward)(task.stage, task.microbatch)
    results = [ref for at in range(len(of.stages)) for ref in written.update(at)]
    return written.graph.step([*results, written.loss], of.microbatches * of.batch * of.length)


class _Written:
    """The graph so far, and the values that later nodes will read."""

    def __init__(self, of: Pipeline, pricing: Pricing) -> None:
        self.of, self.last = of, len(of.stages) - 1
        self.graph = Graph(f"pipeline of {len(of.stages)}", of.slices, pricing)
        ends = (0, self.last) if self.last else (0,)
        self.read = {at: self.graph.arg(self._batch(at), kept=True) for at in ends}
        self.kept = [[self.graph.arg(value) for value in self._state(at)] for at in range(len(of.stages))]
        self.gradients: list[Ref] = [own[-1] for own in self.kept]
        self.logits: dict[int, Ref] = {}
        self.out: dict[tuple[int, int], Ref] = {}
        self.saved: dict[tuple[int, int], Ref] = {}
        self.back: dict[tuple[int, int], Ref] = {}
        self.loss: Ref = Arg(0)

    def forward(self, at: int, microbatch: int) -> None:
        """Add a forward pass. The last stage's ends with the loss, and may keep the logits."""
        x, stage = self._activations(at), self.of.stages[at]
        saved = Value((stage.part.layers, *x.shape), x.dtype, at, Sharding(((), *x.sharding.dims)))
        inputs = [self.kept[at][1], self.out[at - 1, microbatch] if at else self.read[0]]
        outputs = [x, saved]
        if at == self.last:
            inputs.append(self.read[at])
            outputs.append(Value((), "float32", at))
            if stage.forward.key.endswith(KEPT):
                shape = (self.of.batch, self.of.length, stage.part.model.vocabulary)
                outputs.append(Value(shape, "bfloat16", at, x.sharding))
        done = self.graph.call(stage.forward, at, inputs, outputs, name=f"forward {at} {microbatch}")
        self.out[at, microbatch], self.saved[at, microbatch] = done[:2]
        if at == self.last:
            self.loss = done[2]
            self.logits |= dict.fromkeys([microbatch], done[3]) if len(done) > 3 else {}

    def backward(self, at: int, microbatch: int) -> None:
        """Add a backward pass, which adds to the stage's gradients."""
        x = self._activations(at)
        outward = self.out[at, microbatch] if at == self.last else self.back.pop((at + 1, microbatch))
        inputs = [self.kept[at][1], self.gradients[at], self.saved.pop((at, microbatch)), outward]
        inputs += [self.read[0]] * (at == 0) + [self.read[self.last]] * (at == self.last)
        given_up: tuple[int, ...] = (1, 2)
        if at == self.last and microbatch in self.logits:
            given_up += (len(inputs),)
            inputs.append(self.logits.pop(microbatch))
        outputs = [self.graph.type(self.gradients[at])] + [x] * (at > 0)
        done = self.graph.call(
            self.of.stages[at].backward, at, inputs, outputs, donate=given_up, name=f"backward {at} {microbatch}"
        )
        self.gradients[at] = done[0]
        if at:
            self.back[at, microbatch] = done[1]

    def update(self, at: int) -> list[Out]:
        master, _, state, _ = self.kept[at]
        inputs = [master, state, self.gradients[at]]
        values = [self.graph.type(ref) for ref in self.kept[at]]
        return self.graph.call(self.of.stages[at].update, at, inputs, values, donate=(0, 1, 2), name=f"update {at}")

    def _batch(self, at: int) -> Value:
        rows = self.of.microbatches * self.of.batch
        return Value((rows, self.of.length), "int32", at, Sharding((axes_of(self.of.slices[at]), ())))

    def _activations(self, at: int) -> Value:
        length, width = (1, 1) if self.of.light else (self.of.length, self.of.stages[at].part.model.d_model)
        lies = Sharding((axes_of(self.of.slices[at]), (), ()))
        return Value((self.of.batch, length, width), "bfloat16", at, lies)

    def _state(self, at: int) -> list[Value]:
        """Weights, their copy, the optimizer's state (very small), and gradients, all of them whole on each core."""
        parameters = self.of.stages[at].part.parameters
        return [
            Value((parameters,), "float32", at),
            Value((parameters,), "bfloat16", at),
            Value((max(1, parameters // 1000),), "float32", at),
            Value((parameters,), "float32", at),
        ]
