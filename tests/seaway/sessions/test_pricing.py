"""The cost of computations in a simulation: as stated, or estimated from the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import seaway as sw
from seaway.costs import Cost
from seaway.costs.estimate import WorkEstimate, work_of
from seaway.specs.avals import aval
from sim.hardware.kernels import Collective, Kernel
from tests.seaway.small_sessions import small

P: Any = PartitionSpec  # which has no types
lax: Any = jax.lax

two = sw.slice(devices=2)
ZERO = np.float32(0)


def device_time(computation: Any, *args: Any, **options: Any) -> int:
    """The nanoseconds that it ran on its devices."""
    with small(**options) as s:
        sw.block_until_ready(computation(*args))
        gang = next(iter(s.trace.core.rows("gangs")))
    return int(gang["ended"] - gang["started"])


def test_a_computation_takes_its_stated_duration() -> None:
    assert device_time(sw.synthetic("f", devices=two, duration="330us"), ZERO) == 330_000
    assert device_time(sw.jit(lambda x: x, devices=two, cost="1.5ms", name="f"), ZERO) == 1_500_000
    assert device_time(sw.jit(lambda x: x, devices=two, cost=Kernel("f", 77_000), name="f"), ZERO) == 77_000


MIXED = """
[[island]]
name = "fast"
kind = "h100"
hosts = 1
[[island]]
name = "slow"
kind = "v5e"
hosts = 1
"""


@pytest.mark.parametrize("costs", ["estimate", "roofline"])
def test_an_estimate_holds_for_the_devices_that_the_slice_gets(costs: str, tmp_path: Path) -> None:
    (file := tmp_path / "mixed.toml").write_text(MIXED, encoding="utf-8")
    with sw.simulate(file, costs=costs, profile="ideal") as session:
        for name in ("first", "second"):  # each has the devices of an island
            alone = sw.slice(devices=8, name=name, exclusive=True)
            product = sw.jit(lambda x: x @ x, devices=alone, name=name)
            product(sw.put(np.zeros((1024, 1024), np.float32), alone)).block_until_ready()
        took = session.trace.gangs().set_index("island")["duration_us"]
        rows = session.costs().query("computation == 'first'").set_index("chip")["duration_ns"]
    flops = 2 * 1024**3
    assert took["fast"] * 1e3 == rows["h100"] == pytest.approx(max(flops / 989.5e3, 3 * 2**22 / 3.35e3), abs=1)
    assert took["slow"] * 1e3 == rows["tpu-v5e"] == pytest.approx(max(flops / 197e3, 3 * 2**22 / 819), abs=1)


def test_the_kind_of_a_file_has_the_name_that_it_has_on_a_real_cluster(tmp_path: Path) -> None:
    (file := tmp_path / "mixed.toml").write_text(MIXED, encoding="utf-8")
    times = {"tpu-v5e": "2ms", "h100": "1ms"}
    with sw.simulate(file, profile="ideal") as session:
        sw.synthetic("f", devices=sw.slice(devices=8, kind="v5e"), duration=times)(ZERO).block_until_ready()
        assert session.trace.gangs()[["island", "duration_us"]].values.tolist() == [["slow", 2000.0]]


def test_a_cost_may_follow_the_shapes() -> None:
    f = sw.jit(lambda x: x, devices=two, cost=lambda x: f"{x.shape[0]}us", name="f")
    assert [device_time(f, np.zeros(n)) for n in (4, 8)] == [4_000, 8_000]


def test_collectives_are_priced_on_the_slice_where_they_run() -> None:
    near = sw.synthetic("f", devices=sw.slice(devices=4), duration="1us", allreduce="1MiB")
    alone = sw.synthetic("f", devices=sw.slice(devices=1), duration="1us", allreduce="1MiB")
    assert device_time(alone, ZERO) == 1_000 < device_time(near, ZERO)


@pytest.mark.parametrize("cost", [Cost.from_recorded(1_000_000), Cost.stated(1_000_000), "1ms"])
def test_all_devices_of_a_computation_with_a_known_duration_start_together(cost: Any) -> None:
    """Half of them have something else to do first, and the duration includes the collectives."""
    half = sw.slice(devices=2, name="half")
    busy = sw.synthetic("busy", devices=half, duration="5ms")
    reduce = sw.pmap(lambda x: lax.psum(x, "i"), "i", devices=4, cost=cost, name="reduce")
    with small() as s:
        sw.block_until_ready([busy(ZERO), reduce(np.zeros(4, np.float32))])
        found = s.trace.intervals()
    ended = found[found.step == "busy"].ended_us.max()
    together = found[found.step == "reduce"]
    assert len(together) == 4
    assert set(together.started_us) == {ended}


def test_policies_are_given_the_time_of_collectives_too() -> None:
    kernel = Kernel("f", 1_000, (Collective("all-reduce", 1 << 20),))
    f = sw.synthetic("f", devices=sw.slice(devices=4), kernel=kernel)
    with small() as s:
        signature = f.match((ZERO,), {})[0]
        assert s.driver.price(signature).cost == device_time(f, ZERO) > 1_000


def test_costs_may_be_given_by_name() -> None:
    f = sw.synthetic("f", devices=two, duration="1us")
    assert device_time(f, ZERO, costs={"f": "9us", "g": "1us"}) == 9_000
    assert device_time(f, ZERO, costs={"g": "9us"}) == 1_000
    assert device_time(f, ZERO, costs=lambda signature: "7us" if signature.name == "f" else None) == 7_000


def test_a_default_time_applies_to_computations_without_a_stated_one() -> None:
    f = sw.jit(lambda x: x, devices=two, name="f")
    assert device_time(f, ZERO, costs="2ms") == 2_000_000
    assert device_time(sw.synthetic("f", devices=two, duration="1us"), ZERO, costs="2ms") == 1_000


def test_without_a_cost_the_work_is_estimated() -> None:
    n = 2048
    matrix = aval((n, n), "float32").abstract()
    f = sw.jit(lambda x, y: x @ y, devices=two, name="f")
    with small() as s:
        chip = s.simulation.setup.chips[0]
        sw.block_until_ready(f(sw.put(matrix, devices=two), sw.put(matrix, devices=two)))
        gang = next(row for row in s.trace.core.rows("gangs") if row["step"] == "f")
        row = s.costs().iloc[0]
    took = gang["ended"] - gang["started"]
    assert took == pytest.approx(2 * n**3 / chip.peak_flops * 1e9, rel=1e-5)
    assert (row["computation"], row["source"], row["flops"]) == ("f", "estimate", 2 * n**3)


def test_a_roofline_finds_the_collectives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAWAY_CACHE", str(tmp_path))
    four = sw.slice(devices=4)
    f = sw.jit(lambda x, y: x @ y, devices=four, name="f", in_shardings=(P(None, "x"), P("x", None)))
    matrix = aval((512, 512), "float32").abstract()
    with small(costs="roofline") as s:
        sw.block_until_ready(f(matrix, matrix))
        row = s.costs().iloc[0]
    assert (row["source"], row["collectives"]) == ("roofline", 1)
    assert row["flops"] == pytest.approx(2 * 512**3 / 4, rel=0.1)


def test_no_computation_is_shorter_than_a_launch() -> None:
    assert device_time(sw.jit(lambda x: x, devices=two, name="f"), ZERO) == 1_000


def work(fn: Any, *args: Any, mesh: tuple[int, ...] = (1,), used: Any = ()) -> WorkEstimate:
    found = work_of(jax.make_jaxpr(fn)(*args), mesh, used)
    assert isinstance(found, WorkEstimate)
    return found


A, B = np.ones((4, 8), np.float32), np.ones((8, 16), np.float32)


def test_matrix_products_are_counted_exactly() -> None:
    assert work(jnp.matmul, A, B).flops == 2 * 4 * 8 * 16
    assert work(lambda a, b: jnp.einsum("bij,bjk->bik", a, b), np.ones((3, 4, 8)), np.ones((3, 8, 2))).flops == (
        2 * 3 * 4 * 8 * 2
    )


def test_a_convolution_is_counted_exactly() -> None:
    image, kernel = np.ones((1, 3, 8, 8), np.float32), np.ones((5, 3, 3, 3), np.float32)
    made = work(lambda x, k: jax.lax.conv(x, k, (1, 1), "SAME"), image, kernel)
    assert made.flops == 2 * (5 * 8 * 8) * (3 * 3 * 3)


F32: Any = np.float32
N = 64
SQUARE, VECTOR = np.ones((N, N), F32), np.ones(N, F32)


def gradient_step(p: Any, x: Any, y: Any) -> Any:
    return p - 0.1 * jax.grad(lambda p: ((x @ p - y) ** 2).sum())(p)


def layers(weights: Any, x: Any) -> Any:
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]


# Bytes by hand, of numbers of four: what a product reads and writes, and arguments and results that no product moves.
MOVED = {
    "matrix times vector": (jnp.matmul, (SQUARE, VECTOR), N * N + 2 * N),
    "product": (jnp.matmul, (SQUARE, SQUARE), 3 * N * N),
    "product of a transpose": (lambda a, b: a.T @ b, (SQUARE, SQUARE), 3 * N * N),
    "product, bias and relu": (lambda a, b, c: jax.nn.relu(a @ b + c), (SQUARE, SQUARE, VECTOR), 3 * N * N + N),
    "sum": (jnp.add, (SQUARE, SQUARE), 3 * N * N),
    "nothing": (lambda a: a, (SQUARE,), 2 * N * N),
    # two products, of three matrices each, read the weights and x; the weights are read once more, and so is y
    "a step of training": (gradient_step, (SQUARE, SQUARE, SQUARE), 8 * N * N),
    "layers in a loop": (layers, (np.ones((8, N, N), F32), SQUARE), 8 * 3 * N * N),
}


@pytest.mark.parametrize("name", MOVED)
def test_what_a_product_moves_is_not_moved_once_more(name: str) -> None:
    function, arguments, numbers = MOVED[name]
    assert work(function, *arguments).hbm_bytes == 4 * numbers


def test_work_inside_nested_functions_counts() -> None:
    inner = jax.jit(jnp.matmul)
    one = work(jnp.matmul, A, B).flops
    assert work(inner, A, B).flops == one
    looped = work(lambda a, b: jax.lax.scan(lambda c, _: (c, a @ b), 0, None, length=10)[1], A, B)
    assert looped.flops == 10 * one
    chosen = work(lambda a, b: jax.lax.cond(a[0, 0] > 0, lambda: a @ b, lambda: jnp.zeros((4, 16))), A, B)
    assert one <= chosen.flops < one + 10
    assert work(jax.checkpoint(jnp.matmul), A, B).flops == one


def test_a_gradient_costs_more_than_its_function() -> None:
    def loss(a: Any, b: Any) -> Any:
        return (a @ b).sum()

    assert work(jax.grad(loss, argnums=(0, 1)), A, B).flops > 2 * work(jnp.matmul, A, B).flops * 0.9


def test_work_is_divided_along_axes_that_split_something() -> None:
    grid = sw.slice(mesh={"data": 4, "model": 2})
    f = sw.jit(jnp.matmul, devices=grid, name="f", in_shardings=(P("data"), None))
    shared = f.match((A, B), {})[0]
    assert shared.work is not None
    assert shared.work().flops == 2 * 4 * 8 * 16 / 4
    alone = sw.jit(jnp.matmul, devices=grid, name="f").match((A, B), {})[0]
    assert alone.work is not None
    assert alone.work().flops == 2 * 4 * 8 * 16
