"""A pipeline over four islands: each stage has a slice of its own, and activations of micro-batches go over the DCN.

python examples/pipeline.py
"""

from typing import Any

import jax
import jax.numpy as jnp

import seaway as sw

STAGES, MICROBATCHES = 4, 16


def shape(*sizes: int) -> Any:
    return jax.ShapeDtypeStruct(sizes, jnp.bfloat16)  # type: ignore[no-untyped-call]


ACTIVATION, WEIGHTS = shape(128, 2048), shape(16, 2048, 2048)

slices = [sw.slice(devices=32, island=f"c{stage}", name=f"stage{stage}") for stage in range(STAGES)]
forward = [sw.synthetic(f"F{n}", devices=each, duration="5ms", out=lambda w, x: x) for n, each in enumerate(slices)]
backward = [
    sw.synthetic(f"B{n}", devices=each, duration="10ms", out=lambda w, x, g: (x, w)) for n, each in enumerate(slices)
]
update = [
    sw.synthetic(f"U{n}", devices=each, duration="2ms", allreduce="128MiB", out=lambda w, gs: w, donate_argnums=0)
    for n, each in enumerate(slices)
]


@sw.program(donate_argnums=0)
def train_step(weights: list[Any], batches: list[Any]) -> list[Any]:
    """GPipe: all forwards, then all backwards, then the updates."""
    inputs: dict[tuple[int, int], Any] = {}
    gradients: list[list[Any]] = [[] for _ in range(STAGES)]
    for micro, x in enumerate(batches):
        for stage in range(STAGES):
            inputs[stage, micro] = x
            x = forward[stage](weights[stage], x)
        inputs[STAGES, micro] = x
    for micro in range(MICROBATCHES):
        g = inputs[STAGES, micro]
        for stage in reversed(range(STAGES)):
            g, grad = backward[stage](weights[stage], inputs[stage, micro], g)
            gradients[stage].append(grad)
    return [update[stage](weights[stage], gradients[stage]) for stage in range(STAGES)]


if __name__ == "__main__":
    with sw.simulate("C") as s:
        weights = [sw.put(WEIGHTS, devices=each) for each in slices]
        batches = [sw.put(ACTIVATION, devices=slices[0]) for _ in range(MICROBATCHES)]
        for number in range(3):
            weights = train_step(weights, batches)
            sw.block_until_ready(weights)
            print(f"step {number} at {sw.now() * 1e3:.1f} ms")
        print(s.trace.utilization().round(3).to_string(index=False))
