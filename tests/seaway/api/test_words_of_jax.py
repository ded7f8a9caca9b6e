"""What a user of JAX writes by habit, and which means another process here: an error names what to use."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import seaway as sw

home, other = sw.slice(devices=2), sw.slice(devices=2)
ONES = np.ones(4, np.float32)
double = sw.jit(lambda x: x * 2, devices=home)
P: Any = PartitionSpec
LAX: Any = jax.lax
CONFIG: Any = jax.config


@pytest.fixture(name="x")
def _x() -> Iterator[sw.Array]:
    with sw.simulate("B", hosts=2, values="compute"):
        yield sw.put(ONES, devices=home)


# --- questions about this process -----------------------------------------------------------------------------------

QUESTIONS = {
    "process_index": "jax.lax.axis_index('x') in jax.shard_map over slice.mesh",
    "process_count": "the slice has 2 devices",
    "device_count": "slice.devices",
    "local_device_count": "slice.devices",
}


@pytest.mark.parametrize(("question", "instead"), QUESTIONS.items())
@pytest.mark.parametrize("make", [sw.jit, sw.pmap])
def test_a_question_about_this_process_in_a_computation_is_refused_and_names_what_to_ask(
    question: str, instead: str, make: Any, x: sw.Array
) -> None:
    del x
    asks = make(lambda x: x + getattr(jax, question)(), devices=home, name="asks")
    with pytest.raises(sw.errors.NotNow, match="asks' would tell of this client's process") as raised:
        asks(np.ones((2, 2), np.float32))
    assert f"jax.{question}()" in str(raised.value)
    assert instead in str(raised.value)


def test_outside_of_computations_and_in_other_threads_jax_answers_as_always(x: sw.Array) -> None:
    answers: list[int] = []
    real = jax.process_count

    def traced(y: Any) -> Any:
        thread = threading.Thread(target=lambda: answers.append(jax.process_count()))
        thread.start()
        thread.join()
        return y * 2

    sw.jit(traced, devices=home)(x)
    assert set(answers) == {1}
    assert jax.process_count is real

    def broken(y: Any) -> Any:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        sw.jit(broken, devices=home)(x)
    assert jax.process_count is real


# --- JAX's functions on arrays that are elsewhere ---------------------------------------------------------------------

COMPUTES: list[tuple[str, Callable[[Any], Any]]] = [
    (r"jnp\.sum\(\.\.\.\)", jnp.sum),
    (r"jnp\.sin\(\.\.\.\)", jnp.sin),
    (r"jnp\.add\(\.\.\.\)", lambda x: jnp.add(x, 1)),
    (r"jnp\.stack\(\.\.\.\)", lambda x: jnp.stack([x, x])),
    (r"jax\.device_put\(\.\.\.\)", jax.device_put),
    (r"jax\.device_put\(\.\.\.\)", lambda x: jax.device_put(x, home.sharding("x"))),
    ("a function of JAX", jax.jit(lambda x: x)),
    ("a function of JAX", lambda x: jax.grad(lambda y: y.sum())(x)),
]


@pytest.mark.parametrize(("function", "call"), COMPUTES)
def test_a_function_of_jax_on_an_array_elsewhere_names_sw_jit_sw_put_and_np_asarray(
    function: str, call: Callable[[Any], Any], x: sw.Array
) -> None:
    with pytest.raises(sw.errors.NotNow, match=f"^{function} on float32\\[4\\], which lies on Slice") as raised:
        call(x)
    for word in ("wrap the function in sw.jit(..., devices=x.slice)", "sw.put", "np.asarray(x)"):
        assert word in str(raised.value)


def test_converting_an_array_or_asking_for_its_type_is_fine(x: sw.Array) -> None:
    assert isinstance(jnp.asarray(x), jax.Array)
    np.testing.assert_array_equal(jnp.array(x), ONES)
    assert jax.eval_shape(lambda y: y.sum(), x).shape == ()
    assert jnp.shape(x) == (4,)
    assert jax.tree.map(jnp.ndim, {"x": x}) == {"x": 1}
    np.testing.assert_array_equal(jax.device_get(x), ONES)
    with pytest.raises(TypeError, match=r"`\+` on float32\[4\]"):  # an operator is the array's own
        jnp.ones(4) + x


def test_in_a_program_a_function_of_jax_on_a_traced_value_names_sw_jit(x: sw.Array) -> None:
    @sw.program
    def total(y: Any) -> Any:
        made: Any = double(y)
        return jnp.sum(made)

    with pytest.raises(sw.errors.NotNow, match=r"jnp\.sum\(\.\.\.\) on Traced.*@sw\.program 'total'.*sw\.jit"):
        total(x)


# --- shardings --------------------------------------------------------------------------------------------------------


def test_device_put_to_a_slice_names_sw_put() -> None:
    with pytest.raises(sw.errors.NotNow, match=r"none of the devices of Slice\(x=2\).*use sw\.put\(x, sharding="):
        jax.device_put(ONES, home.sharding("x"))


def test_put_takes_the_slice_from_a_slices_sharding_for_each_leaf(x: sw.Array) -> None:
    del x
    tree = sw.put({"a": ONES, "b": ONES}, sharding={"a": home.sharding("x"), "b": other.sharding()})
    assert tree["a"].slice is home
    assert tree["b"].slice is other
    assert tree["a"].sharding == home.sharding("x") == NamedSharding(home.mesh, P("x"))
    np.testing.assert_array_equal(np.asarray(tree["a"]), ONES)


def test_inside_a_program_put_takes_it_too(x: sw.Array) -> None:
    @sw.program
    def moved(y: Any) -> Any:
        return sw.put(double(y), sharding=other.sharding("x"))

    assert moved(x).slice is other


def test_a_slices_sharding_is_a_named_sharding_in_computations(x: sw.Array) -> None:
    constrained = sw.jit(
        lambda y: LAX.with_sharding_constraint(y + 1, home.sharding("x")),
        devices=home, in_shardings=home.sharding("x"), out_shardings=home.sharding(),
    )  # fmt: skip
    np.testing.assert_array_equal(np.asarray(constrained(x)), ONES + 1)


@pytest.mark.parametrize("sharding", [P("x"), NamedSharding(home.mesh, P("x"))])
def test_a_sharding_that_does_not_say_which_slice_is_refused(sharding: Any, x: sw.Array) -> None:
    del x
    with pytest.raises(TypeError, match=r"does not say on which slice: give slice\.sharding\(\.\.\.\)"):
        sw.put(ONES, sharding=sharding)


# --- NaNs -------------------------------------------------------------------------------------------------------------


def test_a_simulation_that_computes_looks_for_nans_if_jax_is_told_to() -> None:
    log = sw.jit(jnp.log, devices=home, name="log")
    simulated = sw.simulate("B", hosts=2, values="compute")
    with jax.debug_nans(True), simulated, pytest.raises(sw.errors.RunError, match="FloatingPointError"):
        np.asarray(log(np.float32(-1)))


def test_a_real_session_warns_that_hosts_do_not_look_for_nans() -> None:
    with sw.local(hosts=1):
        for option in ("jax_debug_nans", "jax_debug_infs"):
            log = sw.jit(jnp.log, devices=1, name="log")
            CONFIG.update(option, True)
            try:
                with pytest.warns(
                    RuntimeWarning, match=f"^{option} is on here, .* what 'log' makes there is not checked"
                ):
                    x = log(np.float32(-1))
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    log(np.float32(-1))  # it is said once
                del x
            finally:
                CONFIG.update(option, False)
