"""The real TPU compiler, where it is installed: on a machine without a TPU."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from seaway.costs import Cost, costs, roofline_costs, tpu_costs
from seaway.errors import TooBig

from .test_costs_compiled import ARGS, BATCH, FLOPS, HIDDEN, LAYERS, OPTIONS, WIDTH, P, S, step

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed (pip install 'seaway[tpu]')"
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAWAY_CACHE", str(tmp_path))


def bytes_by_kind(cost: Cost) -> dict[tuple[str, Any], int]:
    """Bytes by kind of collective. Combining collectives changes their number, not their bytes."""
    found: dict[tuple[str, Any], int] = {}
    for one in cost.collectives:
        key = (one.kind, one.groups)
        found[key] = found.get(key, 0) + one.nbytes * one.count
    return found


def test_a_training_step_on_32_cores_of_a_v3() -> None:
    cost = tpu_costs(step, ARGS, topology="v3:4x4", **OPTIONS)
    assert (cost.source, cost.used, cost.devices, cost.target) == ("tpu-compiler", "blend", 32, "v3:4x4")
    assert cost.flops == FLOPS, "loops are counted as often as they run, although the compiler does not say how often"
    rows = BATCH // 8
    assert bytes_by_kind(cost) == {
        ("all-reduce", ((4, 1),)): 2 * LAYERS * rows * WIDTH * 2,
        ("all-reduce", ((8, 4),)): 2 * LAYERS * WIDTH * HIDDEN // 4 * 2 + 4,
    }
    assert {"blend", "cycles", "roofline"} <= set(cost.estimates)
    assert cost.duration == cost.estimates["blend"] <= cost.estimates["cycles"]
    assert cost.memory.argument > 0
    assert cost.memory.peak >= cost.memory.argument
    assert cost.versions["libtpu"] != "not installed"
    assert tpu_costs(step, ARGS, topology="v3:4x4", timeout="10ms", **OPTIONS) == cost, "from the cache"


@pytest.mark.full
def test_both_estimates_agree_on_work_and_on_collectives() -> None:
    real = costs(step, ARGS, topology="v3:4x4", **OPTIONS)
    bound = costs(step, ARGS, prefer="roofline", topology="v3:4x4", **OPTIONS)
    assert (real.source, bound.source) == ("tpu-compiler", "roofline")
    assert real.flops == bound.flops
    assert bytes_by_kind(real) == bytes_by_kind(bound)


@pytest.mark.full
@pytest.mark.parametrize("topology", ["v3:2x2", "v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2", "7x:2x2x1"])
def test_a_large_product_runs_near_the_peak_on_every_generation(topology: str) -> None:
    """So the compiler's cycles and the clock of our table belong together."""
    n = 8192
    cost = tpu_costs(lambda a, b: a @ b, (S((n, n), jnp.bfloat16),) * 2, topology=topology, name=f"product {topology}")
    assert cost.flops == 2 * n**3
    reached = cost.estimates["roofline"] / cost.estimates["cycles"]  # the newest two tile it less well
    assert (0.65 if topology[:2] in ("v6", "7x") else 0.85) < reached <= 1.05, str(cost)
    assert cost.duration == pytest.approx(cost.estimates["cycles"], rel=0.05)


@pytest.mark.full
def test_loops_scale_and_memory_bounds_do_not_depend_on_the_compilers_cycles() -> None:
    def scaled(count: int) -> Cost:
        def fn(x: Any) -> Any:
            return jax.lax.fori_loop(0, count, lambda i, x: x @ x, x)

        return tpu_costs(fn, (S((2048, 2048), jnp.bfloat16),), topology="v3:2x2")

    ten, thirty = scaled(10), scaled(30)
    assert thirty.flops == 3 * ten.flops
    assert thirty.duration == pytest.approx(3 * ten.duration, rel=0.05)


@pytest.mark.full
def test_a_program_for_2048_cores_is_compiled() -> None:
    options = OPTIONS | {"mesh": {"data": 256, "model": 8}}
    args = (ARGS[0], S((BATCH * 32, WIDTH), jnp.bfloat16))
    cost = tpu_costs(step, args, topology="v3:32x32", **options)
    assert cost.devices == 2048
    assert {one.groups for one in cost.collectives} == {((8, 1),), ((256, 8),)}
    assert cost.flops == FLOPS * 32 / 64
    assert roofline_costs(step, args, topology="v3:32x32", **options).flops == cost.flops


@pytest.mark.full
def test_a_program_that_does_not_fit_in_memory_is_an_error() -> None:
    with pytest.raises(TooBig, match="does not fit into the memory of a device of v3:2x2"):
        tpu_costs(lambda x: (x @ x) @ x, (S((65536, 65536), jnp.bfloat16),), topology="v3:2x2")


@pytest.mark.full
def test_the_compiler_prints_nothing_and_looks_for_no_tpu_in_this_process() -> None:
    code = (
        "import jax, jax.numpy as jnp\n"
        "from seaway.costs import tpu_costs\n"
        "tpu_costs(lambda x: x @ x, (jax.ShapeDtypeStruct((64, 64), jnp.float32),), topology='v5e:2x2')\n"
        "print(jax.devices()[0].platform)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stderr == ""
    assert done.stdout.strip() != "tpu"


@pytest.mark.full
def test_a_collective_of_each_kind_is_found_in_the_compiled_program() -> None:
    mesh = jax.sharding.AbstractMesh((4, 8), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)

    lax: Any = jax.lax  # untyped, in part

    def fn(x: Any) -> Any:
        def each(x: Any) -> Any:
            x = lax.psum(x, "y")
            x = lax.ppermute(x, "x", [(i, (i + 1) % 4) for i in range(4)])
            x = lax.all_to_all(x, "x", 0, 0, tiled=True)
            x = lax.all_gather(x, "x", tiled=True)
            return lax.psum_scatter(x, "x", tiled=True)

        return jax.shard_map(each, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=False)(x)

    x = S((1024, 1024), jnp.float32)
    part = 256 * 128 * 4
    for price in (tpu_costs, roofline_costs):
        cost = price(fn, (x,), topology="v3:4x4", mesh=mesh, in_shardings=P("x", "y"))
        assert bytes_by_kind(cost) == {
            ("all-reduce", ((8, 1),)): part,
            ("permute", ((4, 8),)): part,
            ("all-to-all", ((4, 8),)): part,
            ("all-gather", ((4, 8),)): part,
            ("reduce-scatter", ((4, 8),)): 4 * part,
        }
