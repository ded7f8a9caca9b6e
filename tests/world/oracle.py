"""Computes the digests that a program should produce: a small interpreter of `Program`, without devices and orders."""

from __future__ import annotations

from collections.abc import Sequence

from core.model.program import Arg, Exchange, Program, Ref, Reshard

from . import contents


def results(program: Program, arguments: Sequence[int]) -> list[int]:
    """Return the digests of a run's results, given those of its arguments."""
    made: list[tuple[int, ...]] = []

    def look(ref: Ref) -> int:
        return arguments[ref.index] if isinstance(ref, Arg) else made[ref.node][ref.output]

    for node in program.nodes:
        if isinstance(node, Exchange):
            made.append((contents.exchanged(look(node.input)),))
        elif isinstance(node, Reshard):
            made.append(tuple(map(look, node.inputs)))
        else:
            key = program.computations[node.computation].key
            inputs = tuple(look(ref) for ref in node.inputs)
            made.append(tuple(contents.computed(key, inputs, n) for n in range(len(node.outputs))))
    return [look(ref) for ref in program.results]
