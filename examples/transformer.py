"""A small transformer, trained in three ways to the same losses: with plain JAX on one device; data-parallel over
the hosts of one island; as a pipeline of two stages on two islands. Then the same pipeline on simulated TPUs.

python examples/transformer.py                                  (half a minute: XLA compiles for four processes)
python examples/transformer.py --checkpoint FOLDER              saves on the way; the hosts write the files
python examples/transformer.py --checkpoint FOLDER --resume     continues from there, on any number of hosts
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec

import seaway as sw

WORDS, LENGTH, WIDTH, HEADS = 16, 16, 32, 2
BATCH, MICROBATCHES, STEPS = 16, 4, 10
EVERY = 5  # steps between two saves
Tree = Any  # of arrays
Losses = dict[int, Any]  # by step
P: Any = PartitionSpec
rows = P("data")

island = sw.slice(mesh={"data": 4}, island="i0", name="island")
stages = [sw.slice(mesh={"data": 2}, island=f"i{n}", name=f"stage{n}") for n in range(2)]


# --- the model: plain JAX, without devices -----------------------------------------------------------------


def layer(p: Tree, x: jax.Array) -> Any:
    """Attention to earlier positions, then two matrices; each adds its result to its input."""
    q, k, v = (jnp.einsum("btd,dhe->bhte", norm(x), p[name]) for name in ("q", "k", "v"))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(WIDTH / HEADS)
    seen = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    mixed = jax.nn.softmax(jnp.where(seen, scores, -1e9)) @ v
    x = x + jnp.einsum("bhte,hed->btd", mixed, p["out"])
    return x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]


def norm(x: jax.Array) -> jax.Array:
    return x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def first(p: Tree, tokens: jax.Array) -> Any:
    """Stage 0: words become vectors and pass through a layer."""
    return layer(p["layer"], p["words"][tokens] + p["places"])


def last(p: Tree, x: jax.Array, wanted: jax.Array) -> jax.Array:
    """Stage 1: another layer, and the loss of its predictions of the next words."""
    told = jax.nn.log_softmax(norm(layer(p["layer"], x)) @ p["words"])
    return -jnp.mean(jnp.take_along_axis(told, wanted[..., None], axis=-1))


def loss_of(params: Tree, tokens: jax.Array, wanted: jax.Array) -> jax.Array:
    return last(params[1], first(params[0], tokens), wanted)


# --- the optimizer, for the parameters of one stage or of both ---------------------------------------------------

optimizer = optax.adamw(0.01, weight_decay=0.001)


def start(params: Tree) -> Tree:
    return {"params": params, "optimizer": optimizer.init(params)}


def improve(state: Tree, gradient: Tree) -> Tree:
    by, now = optimizer.update(gradient, state["optimizer"], state["params"])
    return {"params": optax.apply_updates(state["params"], by), "optimizer": now}


def step_of(state: Tree, tokens: jax.Array, wanted: jax.Array) -> tuple[Tree, jax.Array]:
    loss, gradient = jax.value_and_grad(loss_of)(state["params"], tokens, wanted)
    return improve(state, gradient), loss


# --- data-parallel on one island: XLA adds the gradients of its devices -------------------------------------------

data_parallel = sw.jit(step_of, devices=island, in_shardings=(None, rows, rows), donate_argnums=0, name="data_parallel")


# --- a pipeline over two islands: sw.pipeline returns the gradients of each stage, on that stage ----------------------

gradients_of = sw.pipeline(
    [sw.stage(first, stages[0], data=rows), sw.stage(last, stages[1], data=rows)], microbatches=MICROBATCHES
)
updates = [sw.jit(improve, devices=stages[n], donate_argnums=0, name=f"update{n}") for n in range(2)]


@sw.program(donate_argnums=0)
def pipelined(states: list[Tree], tokens: Any, wanted: Any) -> Any:
    """One message to the controller for the whole step."""
    loss, gradients = gradients_of([state["params"] for state in states], tokens, wanted)
    return [updates[n](states[n], gradients[n]) for n in range(2)], loss


# --- training -----------------------------------------------------------------------------------------------------


def parameters() -> list[Tree]:
    draw = np.random.default_rng(0)

    def normal(*shape: int, over: int = WIDTH) -> Any:
        return (draw.normal(size=shape) / np.sqrt(over)).astype(np.float32)

    def for_layer() -> Tree:
        heads = {name: normal(WIDTH, HEADS, WIDTH // HEADS) for name in ("q", "k", "v")}
        ends = {"up": normal(WIDTH, 4 * WIDTH), "down": normal(4 * WIDTH, WIDTH, over=4 * WIDTH)}
        return {**heads, **ends, "out": normal(HEADS, WIDTH // HEADS, WIDTH)}

    begin = {"words": normal(WORDS, WIDTH, over=1), "places": normal(LENGTH, WIDTH, over=1)}
    return [{**begin, "layer": for_layer()}, {"layer": for_layer(), "words": normal(WIDTH, WORDS)}]


def batch(number: int) -> tuple[Any, Any]:
    """Rows that count upwards, each by its own step: the next word follows from the two before it."""
    draw = np.random.default_rng(number)
    start, by = draw.integers(0, WORDS, (BATCH, 1)), draw.integers(1, 4, (BATCH, 1))
    text = (start + by * np.arange(LENGTH + 1)) % WORDS
    return text[:, :-1].astype(np.int32), text[:, 1:].astype(np.int32)


def alone() -> Losses:
    """Plain JAX."""
    state, step, losses = start(parameters()), jax.jit(step_of), {}
    for number in range(STEPS):
        state, losses[number] = step(state, *batch(number))
    return losses


def on_one_island(folder: Path | None = None, resume: bool = False) -> Losses:
    state = sw.put(start(parameters()), devices=island)
    return train(data_parallel, state, folder and folder / "one", resume)


def on_two_islands(folder: Path | None = None, resume: bool = False) -> Losses:
    states = [sw.put(start(p), devices=home) for p, home in zip(parameters(), stages, strict=True)]
    return train(pipelined, states, folder and folder / "two", resume)


def train(step: Any, state: Tree, folder: Path | None, resume: bool) -> Losses:
    """All steps are under way when it returns: it waits neither for a loss nor for a save."""
    begin, losses = 0, {}
    last = sw.checkpoint.latest(folder) if folder and resume else None
    if folder and last is not None:
        state, begin = sw.checkpoint.restore(folder, like=state, step=last), last + 1
    for number in range(begin, STEPS):
        state, losses[number] = step(state, *batch(number))
        if folder and number % EVERY == EVERY - 1:
            sw.checkpoint.save(folder, state, step=number, overwrite=True)  # the next step takes `state` over
    return losses


def table(**ways: Losses) -> None:
    names = [name.replace("_", " ") for name in ways]
    numbers = sorted(set.intersection(*map(set, ways.values())))
    read = [[float(losses[number]) for number in numbers] for losses in ways.values()]
    print("step", *(f"{name:>15}" for name in names))
    for number, *losses in zip(numbers, *read, strict=True):
        print(f"{number:4}", *(f"{loss:15.8f}" for loss in losses))
    wanted, *others = read
    print("alike:", all(np.allclose(each, wanted, rtol=1e-3) for each in others))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A small transformer, trained in three ways to the same losses.")
    parser.add_argument("--checkpoint", type=Path, metavar="FOLDER", help=f"save every {EVERY} steps")
    parser.add_argument("--resume", action="store_true", help="continue from the last save")
    parser.add_argument("--hosts", type=int, default=2, help="of each island: 1, 2 or 4 (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call]  # this process needs no accelerator: its hosts have them
    given = options()
    saved = given.checkpoint, given.resume
    with sw.local(hosts=given.hosts, devices_per_host=4 // given.hosts, islands=2):  # real devices
        table(plain_jax=alone(), data_parallel=on_one_island(*saved), pipeline=on_two_islands(*saved))
    with sw.simulate("2xv3-8") as s:  # two islands of eight TPU v3 cores: shapes, and when they are ready
        print(on_two_islands()[STEPS - 1])
        print(s.trace.summary())
