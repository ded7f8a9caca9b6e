"""A pipeline's training step as a program, with a node for every stage's pass over every micro-batch."""

from collections.abc import Iterator
from dataclasses import dataclass

from core.model import Arg, Out, Ref, Sharding, SliceSpec, Value
from seaway.api import schedules

from ..pricing.jobs import KEPT, Costed
from .steps import Graph, Pricing, Step, axes_of, on_all


@dataclass(frozen=True)
class Pipeline:
    """With more stages than slices, the schedule is interleaved: stages go round the slices."""

    stages: list[Costed]
    slices: list[SliceSpec]  # with `tensor`, the last axis of each mesh
    microbatches: int
    batch: int  # sequences of a micro-batch
    length: int
    schedule: str = "gpipe"
    light: bool = False  # activations have one number a sequence, as if links took no time
    tensor: int = 1  # devices that share each matrix; activations move split along the sequence over them

    @property
    def tasks(self) -> Iterator[schedules.StageTask]:
        make, chunks = schedules.SCHEDULES[self.schedule], len(self.stages) // len(self.slices)
        return schedules.merged(make(len(self.stages), self.microbatches, *[chunks] * (chunks > 1)))


def pipeline(of: Pipeline, pricing: Pricing) -> Step:
    """The step's program. Nodes are in the order of the schedule."""
    written = _Written(of, pricing)
    for task in of.tasks:
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
        on = self._on(at)
        saved = Value((max(1, stage.part.layers), *x.shape), x.dtype, on, Sharding(((), *x.sharding.dims)))
        inputs = [self.kept[at][1], self.out[at - 1, microbatch] if at else self.read[0]]
        outputs = [x, saved]
        if at == self.last:
            inputs.append(self.read[at])
            outputs.append(Value((), "float32", on))
            if stage.forward.key.endswith(KEPT):
                shape = (self.of.batch, self.of.length, stage.part.model.vocabulary)
                outputs.append(Value(shape, "bfloat16", on, x.sharding))
        done = self.graph.call(stage.forward, on, inputs, outputs, name=f"forward {at} {microbatch}")
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
            self.of.stages[at].backward,
            self._on(at),
            inputs,
            outputs,
            donate=given_up,
            name=f"backward {at} {microbatch}",
        )
        self.gradients[at] = done[0]
        if at:
            self.back[at, microbatch] = done[1]

    def update(self, at: int) -> list[Out]:
        master, _, state, _ = self.kept[at]
        inputs = [master, state, self.gradients[at]]
        values = [self.graph.type(ref) for ref in self.kept[at]]
        job = self.of.stages[at].update
        return self.graph.call(job, self._on(at), inputs, values, donate=(0, 1, 2), name=f"update {at}")

    def _on(self, at: int) -> int:
        return at % len(self.of.slices)

    def _batch(self, at: int) -> Value:
        rows = self.of.microbatches * self.of.batch
        return Value((rows, self.of.length), "int32", self._on(at), Sharding((self._rows(at), ())))

    def _rows(self, at: int) -> tuple[int, ...]:
        """The axes of a slice's mesh along which sequences are spread."""
        axes = axes_of(self.of.slices[self._on(at)])
        return axes[:-1] if self.of.tensor > 1 else axes

    def _activations(self, at: int) -> Value:
        length, width = (1, 1) if self.of.light else (self.of.length, self.of.stages[at].part.model.d_model)
        rows = self._rows(at)
        along = (len(rows),) if self.of.tensor > 1 and not self.of.light else ()
        return Value((self.of.batch, length, width), "bfloat16", self._on(at), Sharding((rows, along, ())))

    def _state(self, at: int) -> list[Value]:
        """Weights, their copy, the optimizer's state (very small), and gradients: whole in each group of `tensor`."""
        each, on = -(-self.of.stages[at].part.parameters // self.of.tensor), self._on(at)
        sizes = ((each, "float32"), (each, "bfloat16"), (each // 1000, "float32"), (each, "float32"))
        return [on_all(self.of.slices[on], size, dtype, on) for size, dtype in sizes]
