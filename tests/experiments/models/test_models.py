"""The transformers: as large as the paper's, correct, and the same however a training step is cut."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from experiments.pricing.shapes import LM_3B, LM_64B, LM_136B, MODELS, T5, Decoder, Model, Part, stages, whole
from seaway.api import schedules

from . import adafactor, decoder, islands, meshes, parts, pipeline, spmd, t5

SMALL = Decoder("small", 2, 16, 32, heads=2, d_head=8, vocabulary=48)
GATED = Decoder("gated", 2, 16, 32, heads=2, d_head=8, gated=True, vocabulary=48)
SMALL_T5 = T5("small-t5", 2, 16, 32, heads=2, d_head=8, buckets=8, vocabulary=48)
BATCH, LENGTH = 4, 6
STAGE = ("forward", "backward", "update")
SCALE = 1.0 / (BATCH * LENGTH)

PRINTED = {"T5-Large": 770e6, "T5-3B": 3e9, "T5-11B": 11e9, "LM-3B": 3e9, "LM-64B": 64e9, "LM-136B": 136e9}


QUICK: Any = {"xla_backend_optimization_level": 0}  # most of the time here goes into compiling


def weights_of(model: Model, seed: int = 2) -> Any:
    """Weights drawn by numpy, which compiles nothing, in the shapes of the model."""
    generator = np.random.default_rng(seed)

    def draw(path: tuple[Any, ...], a: Any) -> jax.Array:
        return (
            jnp.ones(a.shape) if path[-1].key == "norm" else jnp.asarray(generator.normal(0, 0.25, a.shape), "float32")
        )

    return jax.tree_util.tree_map_with_path(draw, jax.eval_shape(start_of(model)))


def start_of(model: Model) -> Any:
    if isinstance(model, T5):
        return lambda: t5.init(model, jax.random.key(0))
    return lambda: decoder.init(whole(model), jax.random.key(0))


def counted(model: Model) -> int:
    return sum(int(np.prod(a.shape)) for a in jax.tree.leaves(jax.eval_shape(start_of(model))))


def batch(seed: int = 0, size: int = BATCH) -> tuple[jax.Array, jax.Array]:
    drawn = np.random.default_rng(seed).integers(1, 48, (2, size, LENGTH))
    return jnp.asarray(drawn[0], jnp.int32), jnp.asarray(drawn[1], jnp.int32)


def plain_loss(model: Decoder, weights: Any, tokens: jax.Array, targets: jax.Array) -> jax.Array:
    """The loss, written without scans, parts or anything by hand."""
    x = decoder.embed(weights["embedding"], tokens)
    for at in range(model.layers):
        x = decoder.layer(jax.tree.map(lambda a, at=at: a[at], weights["layers"]), x)
    return decoder.loss(weights["head"], x, targets) / targets.size


@partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def plain_gradients(model: Decoder, weights: Any, tokens: jax.Array, targets: jax.Array) -> Any:
    return jax.value_and_grad(lambda w: plain_loss(model, w, tokens, targets))(weights)


@partial(jax.jit, compiler_options=QUICK)
def updated(weights: Any, gradients: Any) -> Any:
    return adafactor.update(weights, adafactor.init(weights), gradients)[0]


def close(found: Any, wanted: Any, tolerance: float = 2e-5) -> None:
    assert str(jax.tree.structure(found)) == str(jax.tree.structure(wanted))
    for got, expected in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        size = float(jnp.abs(expected).max()) + 1e-12
        np.testing.assert_allclose(np.asarray(got) / size, np.asarray(expected) / size, atol=tolerance)


def one_device_mesh(*names: str) -> Mesh:
    devices = np.array(jax.devices("cpu")[:1]).reshape([1] * len(names))
    return Mesh(devices, names, axis_types=(AxisType.Auto,) * len(names))


# --- size


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_counted_like_the_arrays(name: str) -> None:
    assert counted(MODELS[name]) == MODELS[name].parameters


@pytest.mark.parametrize("name", PRINTED)
def test_a_model_has_the_size_that_the_paper_prints(name: str) -> None:
    assert MODELS[name].parameters == pytest.approx(PRINTED[name], rel=0.09)


@pytest.mark.parametrize("model", [LM_3B, LM_64B, LM_136B])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 16])
def test_the_stages_together_have_all_of_a_model(model: Decoder, count: int) -> None:
    cut = stages(model, count)
    assert len(cut) == count
    assert sum(part.layers for part in cut) == model.layers
    assert sum(part.parameters for part in cut) == model.parameters
    assert [part.first for part in cut] == [True] + [False] * (count - 1)
    assert [part.last for part in cut] == [False] * (count - 1) + [True]


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 4 stages, not 5"):
        stages(SMALL, 5)


# --- what they compute


@pytest.mark.full
def test_a_t5_learns_its_examples() -> None:
    computation = spmd.t5_step(SMALL_T5, one_device_mesh("data"), BATCH, LENGTH, LENGTH)
    weights, seen = weights_of(SMALL_T5), batch()
    state = adafactor.init(weights)
    step = computation.jitted().lower(weights, state, *seen).compile(compiler_options=QUICK)
    losses = []
    for _ in range(20):
        weights, state, loss = step(weights, state, *seen)
        losses.append(float(loss))
    assert losses[-1] < 0.8 * losses[0]
    assert losses[0] == pytest.approx(np.log(48), rel=0.5)


# --- Adafactor


def test_adafactor_is_exact_for_gradients_of_rank_one() -> None:
    """If the squares have rank one, rows and columns determine them: the first change is the sign of the gradient."""
    gradient = jnp.outer(jnp.array([1.0, -2.0, 3.0]), jnp.array([4.0, 5.0]))
    weights = {"up": jnp.zeros((3, 2))}
    after, state = adafactor.update(weights, adafactor.init(weights), {"up": gradient})
    close(after["up"], -adafactor.RATE * jnp.sign(gradient))
    assert int(state["step"]) == 1


# --- cut into stages


@cache
def stage_of(part: Part, size: int, kind: str, keeps: bool) -> Any:
    made = pipeline.stage(part, one_device_mesh("data"), size, LENGTH, scale=SCALE, keeps=keeps)
    return jax.jit(getattr(made, kind).function, compiler_options=QUICK)


def pipelined(model: Decoder, count: int, microbatches: int, schedule: str, keeps: bool) -> tuple[Any, float, Any]:
    """One step of a pipeline, each stage on a mesh of one device. Returns gradients, loss, and weights after the
    update."""
    size = BATCH // microbatches
    whole = weights_of(model)
    cut = stages(model, count)
    run = {(kind, s): stage_of(part, size, kind, keeps) for s, part in enumerate(cut) for kind in STAGE}
    starts = np.cumsum([0, *(part.layers for part in cut)])
    master = []
    for part, low in zip(cut, starts[:-1], strict=True):
        piece: dict[str, Any] = {
            "layers": jax.tree.map(lambda a, low=low, n=part.layers: a[low : low + n], whole["layers"])
        }
        piece |= {name: whole[name] for name, has in (("embedding", part.first), ("head", part.last)) if has}
        master.append(piece)
    gradients = [jax.tree.map(jnp.zeros_like, m) for m in master]
    tokens, targets = batch()
    out: dict[tuple[int, int], Any] = {}
    back: dict[tuple[int, int], Any] = {}
    losses = []
    for kind, s, m in schedules.merged(schedules.SCHEDULES[schedule](count, microbatches)):
        mine = slice(m * size, (m + 1) * size)
        if kind == "forward":
            x = tokens[mine] if s == 0 else out[s - 1, m][0]
            out[s, m] = run["forward", s](master[s], x, *[targets[mine]] * cut[s].last)
            losses += [float(out[s, m][2])] if cut[s].last else []
            continue
        ends = {"tokens": tokens[mine], "targets": targets[mine]}
        outward = out[s, m][0] if s == count - 1 else back[s + 1, m]
        read = [ends[name] for name in parts.reads(cut[s])]
        read += out[s, m][3:]  # logits, if they are kept
        gradients[s], *more = run["backward", s](master[s], gradients[s], out[s, m][1], outward, *read)
        back[s, m] = None if cut[s].first else more.pop()
    after = [
        run["update", s](m, adafactor.init(m), g)[0] for s, (m, g) in enumerate(zip(master, gradients, strict=True))
    ]
    return concatenated(gradients), sum(losses), concatenated(after)


def concatenated(pieces: list[Any]) -> Any:
    layers = jax.tree.map(lambda *a: jnp.concatenate(a), *(piece["layers"] for piece in pieces))
    return {"layers": layers, "embedding": pieces[0]["embedding"], "head": pieces[-1]["head"]}


@pytest.mark.parametrize(("schedule", "keeps"), [pytest.param("gpipe", False, marks=pytest.mark.full), ("1f1b", True)])
def test_a_pipeline_computes_what_one_device_does(schedule: str, keeps: bool) -> None:
    """`keeps`: whether the softmax is computed again in the backward pass, or the logits are kept for it."""
    gradients, loss, after = pipelined(GATED, 2, 4, schedule, keeps)
    weights = weights_of(GATED)
    wanted_loss, wanted = plain_gradients(GATED, weights, *batch())
    assert loss == pytest.approx(float(wanted_loss), rel=1e-5)
    close(gradients, wanted)
    close(after, updated(weights, wanted))


@pytest.mark.full
def test_a_whole_step_is_a_gradient_and_an_update() -> None:
    computation = spmd.step(SMALL, one_device_mesh("data", "model"), BATCH, 8)
    weights = weights_of(SMALL)
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 48, (2, BATCH, 8)), jnp.int32)
    loss, wanted = plain_gradients(SMALL, weights, *tokens)
    kept = jax.tree.map(jnp.copy, weights)  # the step reuses its arguments' memory
    state = adafactor.init(weights)
    step = computation.jitted().lower(kept, state, *tokens).compile(compiler_options=QUICK)
    after, _, found = step(kept, state, *tokens)
    close(found, loss, 1e-2)
    close(after, updated(weights, wanted), 2 * adafactor.RATE)


# --- schedules


@pytest.mark.parametrize("schedule", schedules.SCHEDULES)
@pytest.mark.parametrize(("count", "microbatches"), [(1, 3), (4, 16), (5, 2), (16, 64)])
def test_a_schedule_does_everything_once_after_what_it_needs(schedule: str, count: int, microbatches: int) -> None:
    lists = schedules.SCHEDULES[schedule](count, microbatches)
    order = list(schedules.merged(lists))
    place = {task: i for i, task in enumerate(order)}
    assert len(place) == len(order) == 2 * count * microbatches
    for task, at in place.items():
        if task.kind == "forward" and task.stage:
            assert place[task._replace(stage=task.stage - 1)] < at
        if task.kind == "backward":
            assert place[task._replace(kind="forward")] < at
            if task.stage < count - 1:
                assert place[task._replace(stage=task.stage + 1)] < at
    for stage, tasks in enumerate(lists):
        assert [task for task in order if task.stage == stage] == tasks


@pytest.mark.parametrize(("count", "microbatches"), [(4, 16), (16, 64)])
def test_1f1b_keeps_no_more_microbatches_than_there_are_later_stages(count: int, microbatches: int) -> None:
    def most_kept(tasks: list[schedules.StageTask]) -> int:
        held = [0]
        for task in tasks:
            held.append(held[-1] + (1 if task.kind == "forward" else -1))
        return max(held)

    by_stage = schedules.one_forward_one_backward(count, microbatches)
    assert [most_kept(tasks) for tasks in by_stage] == [count - s for s in range(count)]
    assert most_kept(schedules.gpipe(count, microbatches)[0]) == microbatches


def test_a_schedule_that_deadlocks_says_so() -> None:
    backward_first = [[schedules.StageTask("backward", 0, 0), schedules.StageTask("forward", 0, 0)]]
    with pytest.raises(ValueError, match="cannot go on"):
        list(schedules.merged(backward_first))


# --- over meshes of absent devices


def test_a_step_lowers_for_a_mesh_and_states_all_shardings() -> None:
    mesh = meshes.abstract({"data": 4, "model": 2})
    for computation in (spmd.t5_step(SMALL_T5, mesh, 8, 8, 8), spmd.step(SMALL, mesh, 8, 8)):
        text = computation.jitted().trace(*computation.arguments).lower(lowering_platforms=("tpu",)).as_text()
        assert "mhlo.num_partitions = 8" in text
    weights = computation.arguments[0]["layers"]["attention"]["query"]
    assert tuple(weights.sharding.spec) == (None, "data", "model", None)
    rows, columns = computation.arguments[1]["moments"]["layers"]["feed_forward"]["up"]
    assert (tuple(rows.sharding.spec), tuple(columns.sharding.spec)) == ((None, "data"), (None, "model"))


def test_stages_and_segments_lower_for_the_mesh_of_their_slice() -> None:
    first, last = stages(SMALL, 2)
    mesh = meshes.abstract({"data": 4})
    flat = meshes.abstract({"data": 2, "model": 2})
    found = [
        *pipeline.stage(first, mesh, 8, 8, scale=1.0)[:3],
        *pipeline.stage(last, mesh, 8, 8, scale=1.0)[:3],
        *pipeline.stage(last, mesh, 8, 8, scale=1.0, keeps=True)[:2],
        *islands.segment(first, flat, 8, 8, scale=1.0, islands=2)[:3],
        *islands.segment(last, flat, 8, 8, scale=1.0, islands=2)[:3],
    ]
    for computation in found:
        lowered = computation.jitted().trace(*computation.arguments).lower(lowering_platforms=("tpu",))
        assert "mhlo.num_partitions = 4" in lowered.as_text(), computation.name


def test_islands_that_share_a_batch_learn_as_one() -> None:
    """Each island computes gradients of its own half, and both are applied: the result is that of one device with the
    whole batch."""
    mesh, half = one_device_mesh("data", "model"), BATCH // 2
    part = whole(SMALL)
    segment = islands.segment(part, mesh, half, 4, scale=1.0 / (BATCH * 4), islands=2)
    run = {kind: jax.jit(getattr(segment, kind).function, compiler_options=QUICK) for kind in STAGE}
    weights = weights_of(SMALL)
    tokens, targets = (a[:, :4] for a in batch())
    both = []
    for mine in (slice(0, half), slice(half, BATCH)):
        out, saved = run["forward"](weights, tokens[mine])
        both.append(run["backward"](weights, saved, out, tokens[mine], targets[mine])[0])
    after = run["update"](weights, adafactor.init(weights), *both)[0]
    _, gradients = plain_gradients(SMALL, weights, tokens, targets)
    close(jax.tree.map(jnp.add, *both), gradients)
    close(after, updated(weights, gradients))
