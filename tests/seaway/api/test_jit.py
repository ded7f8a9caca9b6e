"""What is known of a call of `sw.jit`, `sw.pmap` or `sw.synthetic` before anything runs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import seaway as sw
from core.model.program import Sharding
from seaway.api.computation import Computation
from seaway.costs import Cost
from seaway.graph.signature import Signature
from seaway.specs.avals import aval
from sim.hardware.kernels import Collective, Kernel

P: Any = PartitionSpec  # which has no types

lax: Any = jax.lax
pmean = lax.pmean
two = sw.slice(devices=2)
VECTOR = np.arange(4.0, dtype=np.float32)


def signature(computation: Computation[Any], *args: Any, **kwargs: Any) -> Signature:
    return computation.match(args, kwargs)[0]


def test_shapes_and_types_come_from_the_function_itself() -> None:
    f = sw.jit(lambda x, y: {"product": x @ y, "sum": x.sum()}, devices=two, name="f")
    found = signature(f, np.ones((4, 8), np.float32), np.ones((8, 3), np.float32))
    assert found.outputs == (aval((4, 3), "float32"), aval((), "float32"))
    assert found.out_names == ("product", "sum")


def test_types_are_those_of_jax() -> None:
    f = sw.jit(lambda x: x, devices=two, name="f")
    assert signature(f, np.zeros(2)).outputs == (aval((2,), "float32"),), "64-bit types are 32-bit ones"
    assert signature(f, 1.0).outputs == (aval((), "float32"),)
    g = sw.jit(lambda x, y: x * y, devices=two, name="g")
    assert signature(g, jnp.ones(2, jnp.bfloat16), 2.0).outputs == (aval((2,), "bfloat16"),), (
        "a Python number has a weak type"
    )


def test_a_traced_signature_is_cached() -> None:
    traced: list[Any] = []

    @sw.jit(devices=two)
    def f(x: Any) -> Any:
        traced.append(x.shape)
        return x

    assert signature(f, VECTOR) is signature(f, VECTOR + 1)
    assert signature(f, VECTOR) is not signature(f, VECTOR[:2])
    assert traced == [(4,), (2,)]


def test_without_shardings_all_values_are_replicated() -> None:
    found = signature(sw.jit(lambda x: x, devices=two, name="f"), VECTOR)
    assert found.expects == found.out_shardings == (Sharding(),)


def test_shardings_are_trees_over_arguments_and_results() -> None:
    row = P("x")
    f = sw.jit(
        lambda params, batch: (params, batch["a"]), devices=two, name="f",
        in_shardings=(None, {"a": row, "b": None}), out_shardings=(row, None),
    )  # fmt: skip
    found = signature(f, (VECTOR, VECTOR), {"a": VECTOR, "b": VECTOR})
    split, whole = Sharding(((0,),)), Sharding()
    assert found.expects == (whole, whole, split, whole)
    assert found.out_shardings == (split, split, whole)


def test_a_tree_that_does_not_fit_is_refused() -> None:
    f = sw.jit(lambda x, y: x, devices=two, name="f", in_shardings=(P("x"),))
    with pytest.raises(ValueError, match="in_shardings does not fit"):
        signature(f, VECTOR, VECTOR)


def test_static_arguments_are_part_of_the_function() -> None:
    f = sw.jit(lambda x, n: jnp.tile(x, n), devices=two, name="f", static_argnums=1)
    assert signature(f, VECTOR, 2).outputs == (aval((8,), "float32"),)
    assert signature(f, VECTOR, 3).outputs == (aval((12,), "float32"),)
    assert signature(f, VECTOR, 2) is signature(f, VECTOR, 2)
    named = sw.jit(lambda x, n: jnp.tile(x, n), devices=two, name="f", static_argnames="n")
    assert signature(named, VECTOR, n=2).outputs == signature(named, VECTOR, 2).outputs == (aval((8,), "float32"),)


def test_a_static_argument_must_have_a_hash() -> None:
    f = sw.jit(lambda x, n: x, devices=two, name="f", static_argnums=1)
    with pytest.raises(TypeError, match="static argument 1 is not hashable"):
        signature(f, VECTOR, [1])


def test_donated_arguments_are_counted_in_leaves() -> None:
    f = sw.jit(lambda n, state, x: state, devices=two, name="f", static_argnums=0, donate_argnums=1)
    assert signature(f, 3, {"a": VECTOR, "b": VECTOR}, VECTOR).donate == (0, 1)


def test_a_function_that_fails_during_tracing_is_named() -> None:
    f = sw.jit(lambda x, y: x @ y, devices=two, name="f")
    with pytest.raises(TypeError) as caught:
        signature(f, np.ones((2, 3), np.float32), np.ones((2, 3), np.float32))
    assert "while sw.jit 'f' was traced for float32[2,3], float32[2,3]" in str(caught.value.__notes__)


def test_jit_is_a_decorator_too() -> None:
    @sw.jit(devices=two, out_shardings=P("x"))
    def f(x: Any) -> Any:
        """Doubles."""
        return x * 2

    assert (f.name, f.__doc__) == ("f", "Doubles.")
    assert signature(f, VECTOR).out_shardings == (Sharding(((0,),)),)


def test_the_same_code_has_the_same_key() -> None:
    def made(by: float) -> Any:
        return sw.jit(lambda x: x * by, devices=two, name="f")

    keys = [signature(made(by), VECTOR).key for by in (2.0, 2.0, 3.0)]
    assert keys[0] == keys[1] != keys[2]


def test_random_keys_are_arrays() -> None:
    f = sw.jit(lambda key: jax.random.split(key), devices=two, name="f")
    assert signature(f, jax.random.key(0)).outputs == (aval((2,), "key<fry>"),)


# --- pmap ---------------------------------------------------------------------------------------------------


def test_pmap_maps_the_leading_axis_over_the_devices() -> None:
    found = signature(sw.pmap(lambda x: x * 2, devices=two, name="f"), np.ones((2, 3), np.float32))
    assert found.expects == found.out_shardings == (Sharding(((0,), ())),)
    assert found.outputs == (aval((2, 3), "float32"),)


def test_the_mapped_axis_is_as_long_as_the_slice() -> None:
    with pytest.raises(ValueError, match=r"each of the 2 devices .* make it 2"):
        signature(sw.pmap(lambda x: x, devices=two, name="f"), np.ones((3, 3), np.float32))


def test_the_axis_name_of_pmap_is_known_inside() -> None:
    f = sw.pmap(lambda x: x - pmean(x, "i"), "i", devices=two, name="f")
    found = signature(f, np.array([1.0, 3.0], np.float32))
    assert found.evaluate is not None
    assert np.asarray(found.evaluate([np.array([1.0, 3.0], np.float32)])[0]).tolist() == [-1.0, 1.0]
    assert found.collective


@pytest.mark.parametrize(
    "cost", ["1ms", Cost.stated(1000), Cost.from_recorded(1000), Kernel("f", 1000, source="roofline"), lambda x: "1ms"]
)
def test_pmap_with_an_axis_name_always_waits_for_its_peers(cost: Any) -> None:
    f = sw.pmap(lambda x: lax.psum(x, "i"), "i", devices=two, cost=cost, name="f")
    assert signature(f, VECTOR[:2]).collective
    alone = sw.pmap(lambda x: lax.psum(x, "i"), "i", devices=1, cost=cost, name="f")
    assert not signature(alone, VECTOR[:1]).collective, "there is no peer to wait for"


@pytest.mark.parametrize("cost", ["1ms", Cost.stated(1000), Cost.from_recorded(1000)])
def test_a_stated_duration_does_not_mean_that_a_function_has_no_collectives(cost: Any) -> None:
    """The compiler may add them: this function needs an all-reduce."""
    split = two.sharding("x")
    f = sw.jit(lambda x: x.sum(), devices=two, in_shardings=split, cost=cost, name="f")
    assert signature(f, VECTOR).collective
    assert not signature(sw.jit(lambda x: x, devices=two, cost=cost, collective=False, name="f"), VECTOR).collective


@pytest.mark.parametrize("check", [False, True])
def test_collectives_written_in_a_function_are_seen_whatever_its_cost_says(check: bool) -> None:
    """A cost may have been compiled for one device, or for another function."""
    nothing = Kernel("f", 1000, source="tpu-compiler")

    def waits(exchange: Any) -> bool:
        inside: Any = jax.shard_map(exchange, mesh=two.mesh, in_specs=P("x"), out_specs=P("x"), check_vma=check)
        looped = sw.jit(lambda x: lax.fori_loop(0, 2, lambda _, y: inside(y), x), devices=two, cost=nothing, name="f")
        return signature(looped, VECTOR).collective

    assert waits(lambda x: x + lax.psum(x, "x"))
    assert waits(lambda x: x * lax.pmax(x, "x"))
    assert waits(lambda x: lax.ppermute(x, "x", [(0, 1), (1, 0)]))
    assert waits(lambda x: x + lax.all_gather(x, "x").sum())
    assert waits(lambda x: x + lax.psum_scatter(x, "x", tiled=True).sum())
    assert not waits(lambda x: x + 1 + lax.axis_index("x"))


def test_pmap_without_an_axis_name_waits_for_no_peer() -> None:
    assert not signature(sw.pmap(lambda x: x, devices=two, name="f"), VECTOR[:2]).collective


def test_arguments_that_all_copies_share_are_not_mapped() -> None:
    f = sw.pmap(lambda w, x: w * x, devices=two, in_axes=(None, 0), name="f")
    assert signature(f, 2.0, VECTOR[:2]).expects == (Sharding(), Sharding(((0,),)))


def test_pmap_has_static_arguments() -> None:
    f = sw.pmap(lambda x, n: x**n, devices=two, static_broadcasted_argnums=1, name="f")
    found = signature(f, VECTOR[:2], 3)
    assert found.evaluate is not None
    assert np.asarray(found.evaluate([VECTOR[:2]])[0]).tolist() == [0.0, 1.0]


# --- synthetic ----------------------------------------------------------------------------------------------


def test_a_synthetic_computation_has_the_stated_cost() -> None:
    step = sw.synthetic("step", devices=two, duration="330us", allreduce=["4B", "1KiB"], temp="1MiB")
    reduces = (Collective("all-reduce", 4), Collective("all-reduce", 1024))
    assert step.kernel == Kernel("step", 330_000, reduces, temp=1 << 20)


def test_a_synthetic_computation_returns_the_types_of_its_arguments() -> None:
    step = sw.synthetic("step", devices=two, duration="1us")
    found = signature(step, {"a": VECTOR, "b": [VECTOR[:2]]})
    assert found.outputs == (aval((4,), "float32"), aval((2,), "float32"))
    assert found.out_names == ("a", "b.0")
    assert signature(step).outputs == (aval((), "float32"),), "without arguments, a result to wait for"


def test_a_synthetic_computation_returns_the_stated_types() -> None:
    shape = aval((2, 2), "float32").abstract()
    fixed = sw.synthetic("f", devices=two, duration="1us", out=shape)
    assert signature(fixed, VECTOR).outputs == (aval((2, 2), "float32"),)
    first = sw.synthetic("f", devices=two, duration="1us", out=lambda a, b: a)
    assert signature(first, VECTOR, VECTOR[:2]).outputs == (aval((4,), "float32"),)
