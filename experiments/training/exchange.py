"""The training step of data-parallel islands as a program: each island's passes, exchange of gradients, and updates.

An island's step is cut into segments of layers. A segment's gradients go to the other islands as soon as its backward
pass is over, while those of earlier segments are computed. Each island then applies its own and the received gradients.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from core.model import Ref, Sharding, SliceSpec, Value

from ..pricing.jobs import Costed
from ..pricing.shapes import Part
from .steps import Graph, Pricing, Step, on_all

DATA, MODEL = (0, 1), 2  # axes of a slice of `setups.whole`


@dataclass(frozen=True)
class Islands:
    segments: Sequence[Costed]
    slices: Sequence[SliceSpec]  # one an island, each a mesh of (data, model)
    batch: int  # sequences of one island
    length: int
    light: bool = False  # gradients have one number a device, as if the network took no time


def islands(of: Islands, pricing: Pricing) -> Step:
    graph = Graph(f"data-parallel over {len(of.slices)}", of.slices, pricing)
    everywhere = range(len(of.slices))
    read = [graph.arg(Value((of.batch, of.length), "int32", at, Sharding((DATA, ()))), kept=True) for at in everywhere]
    kept = [
        [[graph.arg(value) for value in _kept(segment.part, where, at)] for segment in of.segments]
        for at, where in enumerate(of.slices)
    ]
    passed = [_passes(graph, of, at, read[at], [own[1] for own in kept[at]]) for at in everywhere]
    results: list[Ref] = []
    for at in everywhere:
        for number, segment in enumerate(of.segments):
            mine = passed[at][0][number]
            shares = [mine, *(gradients[number] for other, (gradients, _) in enumerate(passed) if other != at)]
            values = [graph.type(ref) for ref in kept[at][number]]
            master, _, state = kept[at][number]
            results += graph.call(
                segment.update, at, [master, state, *shares], values, donate=(0, 1), name=f"update {at} {number}"
            )
    return graph.step([*results, passed[0][1]], of.batch * of.length * len(of.slices))


def _passes(graph: Graph, of: Islands, at: int, read: Ref, weights: Sequence[Ref]) -> tuple[list[Ref], Ref]:
    """One island's forward and backward passes. Returns the gradients of each segment, and the loss."""
    x, saved, gradients = read, [], {}
    wide = Sharding((DATA, (), (MODEL,)))
    for number, segment in enumerate(of.segments):
        out = Value((of.batch, of.length, segment.part.model.d_model), "bfloat16", at, wide)
        layers = Value((segment.part.layers, *out.shape), "bfloat16", at, Sharding(((), *wide.dims)))
        x, kept = graph.call(segment.forward, at, [weights[number], x], [out, layers], name=f"forward {at} {number}")
        saved.append(kept)
    loss = x
    for number, segment in reversed(list(enumerate(of.segments))):
        part, ends = segment.part, [read] * (segment.part.first + segment.part.last)
        made = [_gradients(part, of, at)] + [graph.type(x)] * (not part.first) + [Value((), "float32", at)] * part.last
        inputs = [weights[number], saved.pop(), x, *ends]
        done = graph.call(segment.backward, at, inputs, made, donate=(1, 2), name=f"backward {at} {number}")
        gradients[number] = done.pop(0)
        if part.last:
            loss = done.pop()
        if not part.first:
            x = done.pop()
    return [gradients[number] for number in range(len(of.segments))], loss


def _kept(part: Part, where: SliceSpec, at: int) -> list[Value]:
    """Weights, their copy, and the optimizer's state, which is very small."""
    each = -(-part.parameters // where.devices)
    return [
        on_all(where, each, "float32", at),
        on_all(where, each, "bfloat16", at),
        on_all(where, each // 1000, "float32", at),
    ]


def _gradients(part: Part, of: Islands, at: int) -> Value:
    where = of.slices[at]
    return on_all(where, 1 if of.light else -(-part.parameters // where.devices), "float32", at)
