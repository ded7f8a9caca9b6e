"""Costs of JAX functions: traced for absent devices, compiled in another process, and what can go wrong."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import seaway as sw
from seaway.costs import compiled, compiling, costs, roofline_costs, tpu_costs
from seaway.costs.lowering import lower
from seaway.costs.topologies import example, find
from seaway.errors import CostError, NoCompiler

P: Any = PartitionSpec
S: Any = jax.ShapeDtypeStruct
LAYERS, WIDTH, HIDDEN, BATCH = 3, 64, 256, 128


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEAWAY_CACHE", str(tmp_path))
    return tmp_path / "costs"


def step(weights: dict[str, Any], x: Any) -> tuple[dict[str, Any], Any]:
    """A training step of a small perceptron, its layers in a loop."""

    def loss(weights: dict[str, Any]) -> Any:
        def layer(h: Any, w: Any) -> tuple[Any, None]:
            return h + jnp.maximum(h @ w[0], 0) @ w[1], None

        h, _ = jax.lax.scan(layer, x, (weights["up"], weights["down"]))
        return (h.astype(jnp.float32) ** 2).mean()

    value, gradient = jax.value_and_grad(loss)(weights)
    return jax.tree.map(lambda w, g: w - g.astype(w.dtype), weights, gradient), value


WEIGHTS = {"up": S((LAYERS, WIDTH, HIDDEN), jnp.bfloat16), "down": S((LAYERS, HIDDEN, WIDTH), jnp.bfloat16)}
SHARDED = {"up": P(None, None, "model"), "down": P(None, "model", None)}
OPTIONS: dict[str, Any] = {
    "mesh": {"data": 8, "model": 4},
    "in_shardings": (SHARDED, P("data")),
    "out_shardings": (SHARDED, P()),
    "donate": 0,
}
ARGS = (WEIGHTS, S((BATCH, WIDTH), jnp.bfloat16))

# forwards two products a layer; backwards four, except for the gradient of the first layer's input, which XLA computes
# nevertheless, because the loop's body is one for all layers
FLOPS = 3 * LAYERS * 2 * 2 * BATCH * WIDTH * HIDDEN / 32


def test_a_roofline_of_a_sharded_training_step() -> None:
    cost = roofline_costs(step, ARGS, topology="v3:4x4", **OPTIONS)
    assert (cost.source, cost.used, cost.name, cost.devices) == ("roofline", "roofline", "step", 32)
    assert cost.flops == FLOPS
    rows = BATCH // 8
    found: Counter[tuple[str, int, Any]] = Counter()
    for one in cost.collectives:
        found[one.kind, one.nbytes, one.groups] += one.count
    assert found == {
        ("all-reduce", rows * WIDTH * 2, ((4, 1),)): 2 * LAYERS,  # activations, over the model axis
        ("all-reduce", WIDTH * HIDDEN // 4 * 2, ((8, 4),)): 2 * LAYERS,  # gradients, over the data axis
        ("all-reduce", 4, ((8, 4),)): 1,  # the loss
    }
    weights = 2 * LAYERS * WIDTH * HIDDEN // 4 * 2
    assert cost.memory.argument == weights + rows * WIDTH * 2
    assert cost.memory.alias == weights, "donated memory is overwritten"
    assert cost.duration >= cost.flops / (0.92 * 61.5e12) * 1e9
    assert any("92% of the peak" in note for note in cost.notes)
    assert cost.steps["full"] <= cost.steps["scheduled"] < cost.steps["none"], "gradients wait for nothing"
    again = roofline_costs(step, ARGS, topology="v3:4x4", timeout="10ms", **OPTIONS)
    assert again == cost, "from the cache, within no time"


@pytest.mark.parametrize(
    ("topology", "data", "most"), [("v4:2x4x4", 4, 12), pytest.param("v4:12x16x16", 384, 2048, marks=pytest.mark.full)]
)
def test_more_devices_than_a_client_of_xla_has(
    topology: str, data: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "MOST", most)  # 12: 32 devices are those of three clients
    args = (S((8 * data, 256), jnp.bfloat16), S((256, 1024), jnp.bfloat16), S((1024, 256), jnp.bfloat16))
    cost = roofline_costs(
        lambda x, up, down: (x @ up) @ down, args, topology=topology, mesh={"data": data, "model": 8},
        in_shardings=(P("data"), P(None, "model"), P("model")), out_shardings=P("data"),
    )  # fmt: skip
    assert (cost.devices, cost.flops) == (8 * data, 2 * 2 * 8 * 256 * 1024 / 8)
    (reduced,) = cost.collectives
    assert (reduced.kind, reduced.nbytes, reduced.groups) == ("all-reduce", 8 * 256 * 2, ((8, 1),))


def test_a_roofline_of_one_device_has_no_collectives() -> None:
    cost = roofline_costs(
        lambda x: x @ x, (S((512, 512), jnp.float32),), topology="v4-64", efficiency=0.5, name="square"
    )
    assert (cost.name, cost.collectives, cost.flops) == ("square", (), 2 * 512**3)
    assert cost.hbm_bytes == 3 * 512 * 512 * 4, "the product reads its argument twice, and writes"
    assert any("50%" in note for note in cost.notes)


def products(x: Any, w: Any) -> tuple[Any, Any]:
    return x @ w, x.T @ x  # the sum of the second over the data axis runs beside the first


WIDE: dict[str, Any] = {
    "topology": "v4-128", "mesh": {"data": 8, "model": 8}, "in_shardings": (P("data"), P(None, "model")),
    "out_shardings": (P("data", "model"), P()),
}  # fmt: skip


@pytest.mark.parametrize(
    "overlap", ["scheduled", pytest.param("none", marks=pytest.mark.full), pytest.param("full", marks=pytest.mark.full)]
)
def test_a_step_is_simulated_with_the_overlap_of_its_cost(overlap: Any) -> None:
    args = S((8 * 512, 1024), jnp.bfloat16), S((1024, 8192), jnp.bfloat16)
    cost = roofline_costs(products, args, overlap=overlap, **WIDE)
    (reduced,) = cost.collectives
    first = 2 * 512 * 1024 * 1024 / (0.92 * 275e12) * 1e9
    alone = cost.steps["none"] - cost.duration
    assert reduced.nbytes == 1024 * 1024 * 2
    assert reduced.hidden == pytest.approx(
        {"none": 0, "scheduled": first, "full": min(alone, cost.duration)}[overlap], abs=1
    )
    assert cost.steps == {
        "none": cost.duration + alone,
        "scheduled": pytest.approx(cost.duration + alone - first, abs=1),
        "full": max(cost.duration, alone),
    }
    assert any("better sw.slice(mesh={'data': 8, 'model': 8})" in note for note in cost.notes)
    laid = sw.slice(mesh={"data": 8, "model": 8})
    for fidelity in ("exact", "cohort"):
        with sw.simulate("v4-128", fidelity=fidelity) as s:
            sw.jit(lambda x: x, devices=laid, cost=cost)(np.zeros(64, np.float32)).block_until_ready()
            gang = s.trace.gangs()
        took = 1000 * float((gang["ended_us"] - gang["started_us"])[0])
        assert took == pytest.approx(cost.steps[overlap], abs=2)


# --- tracing --------------------------------------------------------------------------------------------


def lowered(fn: Any = step, args: Any = ARGS, **options: Any) -> Any:
    return lower(fn, args, platform="tpu", **({**OPTIONS, **options}))


def test_the_digest_of_a_computation_does_not_depend_on_where_it_is_written() -> None:
    def other(weights: Any, x: Any) -> Any:
        return step(weights, x)

    assert lowered().digest == lowered(other).digest
    assert lowered().name == "step"
    digests = {
        lowered().digest,
        lowered(mesh={"data": 4, "model": 8}).digest,
        lowered(donate=()).digest,
        lowered(out_shardings=None).digest,
        lowered(args=(WEIGHTS, S((2 * BATCH, WIDTH), jnp.bfloat16))).digest,
    }
    assert len(digests) == 5


def test_the_mesh_may_come_from_the_arguments() -> None:
    mesh = jax.sharding.AbstractMesh((4,), ("x",))
    x = S((8, 8), jnp.float32, sharding=jax.sharding.NamedSharding(mesh, P("x")))
    found = lower(jnp.sum, (x,), platform="tpu")
    assert [(name, size) for name, size, _ in found.axes] == [("x", 4)]


def test_arguments_may_be_arrays_and_numbers() -> None:
    arrays = lower(lambda x, y: x * y, (np.ones((8, 8), np.float32), 3.0), platform="tpu", mesh={"x": 4})
    shapes = lower(lambda x, y: x * y, (S((8, 8), jnp.float32), 5.0), platform="tpu", mesh={"x": 4})
    assert arrays.digest == shapes.digest, "their contents do not matter"


def test_constraints_inside_a_function_may_name_axes_alone() -> None:
    def fn(x: Any) -> Any:
        constrain: Any = jax.lax.with_sharding_constraint
        return constrain(x @ x.T, P("data", "model")).sum()

    assert lowered(fn, (S((64, 64), jnp.float32),), in_shardings=P("data"), out_shardings=None).devices == 32


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"args": WEIGHTS}, r"args is the tuple of the function's arguments, not a dict: write \(x,\)"),
        ({"mesh": 32}, "write each axis and its size"),
        ({"mesh": {}}, "write each axis and its size"),
        ({"mesh": {"data": 0}}, "write each axis and its size"),
        ({"in_shardings": (SHARDED, P("rows"))}, "names the axis 'rows'; the mesh has data, model"),
        ({"in_shardings": (SHARDED,)}, "in_shardings does not fit"),
        ({"in_shardings": "data"}, "write PartitionSpecs"),
        ({"out_shardings": (SHARDED, P(), P())}, "out_shardings does not fit"),
        ({"donate": 2}, "donate names argument 2; there are 2"),
    ],
)
def test_arguments_that_do_not_fit_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(CostError, match=says):
        lowered(**options)


def test_a_mistake_in_the_users_function_is_raised_unchanged() -> None:
    with pytest.raises(TypeError, match="dot_general"):
        lowered(lambda x: x @ x, (S((3, 4), jnp.float32),), in_shardings=None, out_shardings=None)


# --- topologies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "compiler", "devices"),
    [
        ("v3:32x32", "v3:32x32", 2048),
        ("v4:2x2x4", "v4:2x2x4", 16),
        ("v4:4x4", "v4:4x4x1", 16),
        ("v5e:4x8", "v5e:4x8", 32),
        ("v5litepod:2x2", "v5e:2x2", 4),
        ("7x:2x2x1", "tpu7x:2x2x1", 8),
        ("v5e:1x1", "v5e:1x1", 1),
    ],
)
def test_a_topology_has_all_of_its_devices(name: str, compiler: str, devices: int) -> None:
    found = find(name)
    assert (found.name, found.devices) == (compiler, devices)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("v33:4x4", "nearest: 'v3'"),
        ("v3:4x4x4", "a v3 has 2 axes"),
        ("v3:3x4", "nearest: 'v3:4x4'"),
        ("v3", "no topology 'v3'; write a generation and its chips"),
        ("v5e:0x4", "a v5e has 2 axes"),
    ],
)
def test_an_invalid_topology_is_refused_with_a_valid_example(name: str, says: str) -> None:
    with pytest.raises(CostError, match=says):
        tpu_costs(step, ARGS, topology=name, **OPTIONS)


def test_the_suggested_examples_have_the_requested_number_of_devices() -> None:
    for generation in ("v3", "v4", "v5e", "v5p", "v6e", "7x"):
        for devices in (8, 32, 128, 512, 2048):
            assert find(example(generation, devices)).devices == devices


def test_a_mesh_that_does_not_fill_the_topology_is_refused_with_one_that_does() -> None:
    with pytest.raises(CostError, match="mesh has 32 devices and topology 'v3:8x8' has 128; for 32 take 'v3:4x4'"):
        roofline_costs(step, ARGS, topology="v3:8x8", **OPTIONS)


def test_a_mesh_larger_than_the_cluster_is_refused() -> None:
    with pytest.raises(CostError, match=r"32 devices and an island of 'v3-8' has 8$"):
        roofline_costs(step, ARGS, topology="v3-8", **OPTIONS)
    with pytest.raises(CostError, match="an island of 'v4-32' has 16: its number counts cores, so take 'v4-64'"):
        roofline_costs(step, ARGS, topology="v4-32", **OPTIONS)
    with pytest.raises(CostError, match="overlap is 'scheduled', 'none' or 'full', not 'some'"):
        roofline_costs(step, ARGS, topology="v3:4x4", overlap="some", **OPTIONS)  # type: ignore[arg-type]
    with pytest.raises(CostError, match=r"no cluster 'v99'.*or a TPU topology"):
        roofline_costs(step, ARGS, topology="v99", **OPTIONS)


# --- the other process ----------------------------------------------------------------------------------


def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    script = tmp_path / "child.py"
    script.write_text(code)
    monkeypatch.setattr(compiling, "CHILD", script)


def test_a_compiler_that_dies_is_an_error_with_its_last_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dying = "import os, sys, signal\nprint('last words', file=sys.stderr, flush=True)\nos.kill(os.getpid(), 11)\n"
    child(tmp_path, monkeypatch, dying)
    with pytest.raises(CostError, match=r"(?s)'step' died .signal 11.*last words"):
        roofline_costs(step, ARGS, topology="v3:4x4", **OPTIONS)


def test_a_compiler_that_takes_too_long_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child(tmp_path, monkeypatch, "import time\ntime.sleep(600)\n")
    with pytest.raises(CostError, match=r"took longer than 0\.5 s.*timeout="):
        roofline_costs(step, ARGS, topology="v3:4x4", timeout="500ms", **OPTIONS)


def test_a_compiler_that_refuses_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = (
        "import json, pathlib, sys\n"
        "said = {'kind': 'XlaError', 'stage': 'compilation', 'text': 'RESOURCE_EXHAUSTED: Used 20G of 16G hbm'}\n"
        "(pathlib.Path(sys.argv[1]) / 'error.json').write_text(json.dumps(said))\n"
    )
    child(tmp_path, monkeypatch, refusing)
    monkeypatch.setattr(compiled, "require_compiler", lambda: None)
    with pytest.raises(CostError, match=r"(?s)does not fit into the memory.*donate.*Used 20G of 16G"):
        tpu_costs(step, ARGS, topology="v3:4x4", **OPTIONS)


# --- without the TPU compiler ---------------------------------------------------------------------------


def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def require_compiler() -> None:
        raise NoCompiler("the TPU compiler is not installed: pip install 'seaway[tpu]'")

    monkeypatch.setattr(compiled, "require_compiler", require_compiler)


def test_without_libtpu_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(NoCompiler, match=r"pip install 'seaway\[tpu\]'"):
            tpu_costs(step, ARGS, topology="v3:4x4", **OPTIONS)


def test_costs_uses_the_available_compiler_and_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    absent(monkeypatch)
    cost = costs(lambda x: x @ x, (S((64, 64), jnp.float32),), topology="v5e:2x2")
    assert cost.source == "roofline"
    assert any("pip install" in note for note in cost.notes)
    with pytest.raises(CostError, match="prefer is 'tpu' or 'roofline'"):
        costs(step, ARGS, prefer="guess", topology="v3:4x4", **OPTIONS)  # type: ignore[arg-type]


@pytest.mark.full
def test_the_examples_in_the_documentation_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[3] / "docs" / "costs.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        found: dict[str, Any] = {}
        exec(compile(block, "docs/costs.md", "exec"), found)
        assert "kernel" not in found or found["kernel"].collectives


def test_a_roofline_moves_the_matrix_of_a_product_with_a_vector_once() -> None:
    size = 256
    args = S((size, size), jnp.float32), S((size,), jnp.float32)
    found = roofline_costs(lambda a, b: a @ b, args, topology="v3:4x4")
    assert found.hbm_bytes == 4 * (size * size + 2 * size)


def test_a_roofline_moves_what_products_do_not_move_once() -> None:
    n = 256
    matrix = S((n, n), jnp.float32)

    def update(p: Any, x: Any, y: Any) -> Any:
        return p - 0.1 * jax.grad(lambda p: ((x @ p - y) ** 2).sum())(p)

    def layers(weights: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]

    step = roofline_costs(update, (matrix, matrix, matrix), topology="v3:4x4")
    assert step.hbm_bytes == 4 * 8 * n * n, "two products of three matrices; the weights once more, and y"
    loop = roofline_costs(layers, (S((8, n, n), jnp.float32), matrix), topology="v3:4x4")
    assert loop.hbm_bytes == pytest.approx(4 * 8 * 3 * n * n, rel=0.05)
