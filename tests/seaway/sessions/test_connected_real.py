"""Real devices: JAX functions of one Python program, on hosts that are separate processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import seaway as sw

P: Any = PartitionSpec
psum: Any = jax.lax.psum

PATIENCE = 120.0  # seconds, on a busy machine
A = sw.slice(mesh={"data": 4}, island="i0", name="A")
B = sw.slice(mesh={"data": 2, "model": 2}, island="i1", name="B")
C = sw.slice(devices=2, island="i1", name="C")
TABLE = np.arange(64 * 48, dtype=np.float32).reshape(64, 48)

add_sum = sw.jit(lambda x: x + x.sum(), devices=A, in_shardings=P("data"), out_shardings=P("data"))


@pytest.fixture(scope="module")
def shared() -> Iterator[sw.Session]:
    """Two islands of two hosts of two devices. It outlives the loss of a host."""
    with sw.local(hosts=2, devices_per_host=2, islands=2, memory="64MiB", timeout=f"{PATIENCE}s") as session:
        yield session


@pytest.mark.full
def test_a_session_works_in_a_repl(tmp_path: Path) -> None:
    lines = """
    import seaway as sw
    s = sw.local(hosts=2).open()
    double = sw.jit(lambda x: x * 2., devices=2)
    x = double(3.)
    x
    float(x) + 1
    s.close()
    """
    done = subprocess.run(
        [sys.executable, "-i", "-q"], input=textwrap.dedent(lines), cwd=tmp_path, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert "Array(6., dtype=float32)\n7.0" in done.stdout, done.stderr
    assert "Error" not in done.stderr


# --- computations -------------------------------------------------------------------------------------------------


def test_the_collective_of_pmap_is_over_all_devices_of_all_hosts(shared: sw.Session) -> None:
    step = sw.pmap(lambda x: x + psum(x, "all"), "all", devices=A)
    assert np.asarray(step(np.arange(4, dtype=np.float32))).tolist() == [6, 7, 8, 9]


def test_a_program_may_use_three_slices_of_two_islands(shared: sw.Session) -> None:
    gram = sw.jit(lambda x: x @ x.T, devices=A, in_shardings=P("data"), out_shardings=P("data"))
    total = sw.jit(lambda x: x.sum(0), devices=B, in_shardings=P("model", "data"), out_shardings=P("data"))
    dot = sw.jit(lambda x, y: (x * y).sum(), devices=C, in_shardings=(P("x"), None))

    @sw.program
    def all_of_it(x: Any) -> dict[str, Any]:
        sums = total(gram(x))
        return {"sums": sums, "norm": dot(sums, sums)}

    given = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    made, wanted = all_of_it(given), (given @ given.T).sum(0)
    np.testing.assert_allclose(made["sums"], wanted, rtol=1e-4)
    np.testing.assert_allclose(float(made["norm"]), (wanted * wanted).sum(), rtol=1e-4)


def test_a_training_loop_that_reads_its_loss_gets_the_numbers_of_plain_jax(shared: sw.Session) -> None:
    def loss_of(w: Any, x: Any, y: Any) -> Any:
        return jnp.mean((x @ w - y) ** 2)

    def step_of(w: Any, x: Any, y: Any) -> Any:
        loss, gradient = jax.value_and_grad(loss_of)(w, x, y)
        return w - 0.1 * gradient, loss

    draw = np.random.default_rng(1)
    x, true = draw.normal(size=(64, 4)).astype(np.float32), draw.normal(size=4).astype(np.float32)
    step = sw.jit(step_of, devices=A, in_shardings=(None, P("data"), P("data")), donate_argnums=0)
    alone = jax.jit(step_of)
    w, w_alone, losses = sw.put(np.zeros(4, np.float32), A), np.zeros(4, np.float32), []
    for _ in range(20):
        w, loss = step(w, x, x @ true)
        w_alone, loss_alone = alone(w_alone, x, x @ true)
        losses.append(float(loss))
        np.testing.assert_allclose(losses[-1], loss_alone, rtol=1e-3)
    assert losses[-1] < 0.1 * losses[0]
    np.testing.assert_allclose(w, w_alone, rtol=1e-3)


def test_random_keys_can_be_arguments_and_results(shared: sw.Session) -> None:
    draw = sw.jit(lambda key: jax.random.normal(key, (3,)), devices=B)
    each = sw.jit(jax.vmap(jax.random.uniform), devices=A, in_shardings=P("data"), name="each")
    key, keys = jax.random.key(7), jax.random.split(jax.random.key(7), 4)
    made = sw.jit(jax.random.key, devices=A, name="key")(7)
    for given in (key, made):
        np.testing.assert_allclose(draw(given), jax.random.normal(key, (3,)), rtol=1e-5)
    np.testing.assert_allclose(each(sw.put(keys, A, A.sharding("data"))), jax.vmap(jax.random.uniform)(keys))
    with pytest.raises(TypeError, match="is a random key"):
        np.asarray(made)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "int32", "float16", "bfloat16", "complex64", "float8_e4m3fn"]
)
def test_types_are_preserved(shared: sw.Session, dtype: str) -> None:
    fold = sw.jit(lambda x: x.reshape(2, 4), devices=A, in_shardings=P("data"), out_shardings=P(None, "data"))
    given = np.arange(8).astype(jnp.dtype(dtype))
    found = np.asarray(fold(given))
    assert found.dtype == given.dtype
    np.testing.assert_array_equal(found, given.reshape(2, 4))


def test_python_numbers_and_empty_arrays_work(shared: sw.Session) -> None:
    double = sw.jit(lambda x: x * 2, devices=A)
    assert (double(3).item(), double(2.5).item()) == (6, 5.0)
    assert np.asarray(double(np.zeros((0, 3), np.float32))).shape == (0, 3)


def test_linear_algebra_works_on_the_hosts(shared: sw.Session) -> None:
    invert = sw.jit(jnp.linalg.inv, devices=C, name="invert")
    assert np.asarray(invert(2 * np.eye(3, dtype=np.float32))).diagonal().tolist() == [0.5] * 3


# --- contents -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("home", "spec"),
    [(A, P("data")), (A, P(None, "data")), (B, P("model", "data")), (B, P(("data", "model"))), (B, P()), (C, P("x"))],
)
def test_arrays_are_put_and_read_in_any_sharding(shared: sw.Session, home: sw.Slice, spec: Any) -> None:
    np.testing.assert_array_equal(sw.put(TABLE, home, spec), TABLE)


def test_an_array_can_be_moved_to_another_slice(shared: sw.Session) -> None:
    steps = ((B, P("model", "data")), (C, P(None, "x")), (C, P()), (A, P(None, "data")), (A, P("data")))
    array = sw.put(TABLE, A, P("data"))
    for home, spec in steps:
        array = sw.put(array, home, spec)
        assert array.slice is home
        np.testing.assert_array_equal(array, TABLE)


def test_a_tree_of_arrays_can_be_moved_and_cut_otherwise(shared: sw.Session) -> None:
    """To other devices, on its own, and from both at once; an array may be there twice, or have no elements."""
    tree = {"a": TABLE, "b": [np.float32(3), np.zeros((0, 4), np.int32)], "c": np.arange(8, dtype=np.int64)}
    rows = {"a": P("data"), "b": [P(), P("data")], "c": P("data")}
    here = sw.put(tree, devices=A, sharding=rows)
    again = sw.put(here, devices=A, sharding={"a": P(None, "data"), "b": [P(), P()], "c": P()})
    there = sw.put([here, again["a"], again["a"]], devices=B, sharding=P())
    back = sw.put([there[0], here["c"]], devices=A, sharding=P())
    for found in (here, again, there[0], back[0]):
        jax.tree.map(np.testing.assert_array_equal, sw.get(found), tree)
    np.testing.assert_array_equal(there[2], TABLE)
    np.testing.assert_array_equal(back[1], tree["c"])


def test_put_copies_its_argument_at_the_call(shared: sw.Session) -> None:
    given = np.ones((1 << 20,), np.float32)
    array = sw.put(given, A, P("data"))
    given[:] = 2
    assert np.asarray(add_sum(array))[:2].tolist() == [1 + 2**20] * 2


def test_no_byte_of_a_tensor_passes_through_the_controller(shared: sw.Session) -> None:
    through = shared.driver.server.node.carried  # type: ignore[attr-defined]
    np.testing.assert_array_equal(sw.put(sw.put(TABLE, A, P("data")), B), TABLE)
    assert through == [0, 0]


def test_rows_go_where_the_data_send_them(shared: sw.Session) -> None:
    x = sw.put(np.arange(16, dtype=np.float32).reshape(8, 2), A, P("data"))
    y, source = sw.route(x, np.array([1, 0, 3, 3, -1, 2, 1, 0], np.int32), capacity=2)
    assert np.asarray(source).reshape(4, 2).tolist() == [[1, 7], [0, 6], [5, -1], [2, 3]]
    assert np.asarray(y)[[0, 2, 4, 6], 0].tolist() == [2, 0, 10, 4]


# --- clients and faults ---------------------------------------------------------------------------------------------


def test_an_error_on_the_devices_is_raised_where_its_user_waits(shared: sw.Session) -> None:
    def some(x: Any) -> Any:
        return x, (x > 2).sum()

    few = sw.jit(some, devices=A, irregular=True, max_shape=(4,), name="few")
    made = few(np.arange(8, dtype=np.float32))
    behind = add_sum(made)
    for array in (made, behind):
        with pytest.raises(sw.errors.RunError, match="'few' made 5 rows, but its bound is 4") as caught:
            array.block_until_ready()
        assert (caught.value.code, caught.value.blame.program, caught.value.blame.node) == ("user", "few", "few")
        assert caught.value.blame.host in (0, 1)
    assert np.asarray(add_sum(np.ones(4, np.float32))).tolist() == [5] * 4


def test_only_the_valid_rows_of_an_irregular_result_are_returned(shared: sw.Session) -> None:
    def above(x: Any) -> Any:
        return jnp.sort(x, descending=True), (x > 2).sum()

    large = sw.jit(above, devices=A, irregular=True, max_shape=(4,), name="large")
    for given, made in (([1.0, 7.0, 3.0, 0.0], [7.0, 3.0]), ([0.0] * 4, []), ([9.0] * 4, [9.0] * 4)):
        found = large(np.array(given, np.float32))
        assert np.asarray(found).tolist() == made
        assert found.shape == (4,), "the bound, which is known before the run"


def test_arrays_that_do_not_fit_are_refused_by_name(shared: sw.Session) -> None:
    large = sw.jit(lambda x: jnp.zeros(1 << 26) + x, devices=A, name="large")(1.0)
    with pytest.raises(sw.errors.RunError, match=r"\[no-memory\].*program 'large'"):
        large.block_until_ready()
    with pytest.raises(sw.errors.RunError, match=r"\[no-memory\] it needs 256.0 MiB on each of devices 0-3"):
        sw.put(np.zeros(1 << 26, np.float32), A).block_until_ready()
    assert float(sw.jit(lambda x: x + 1, devices=A)(1.0)) == 2


def test_a_host_that_dies_is_restarted_and_its_loss_is_named(shared: sw.Session) -> None:
    def until_it_is_noticed(given: Any) -> None:
        for _ in range(1000):
            add_sum(given).block_until_ready()
            time.sleep(0.01)

    before = add_sum(np.ones(4, np.float32)).block_until_ready()
    os.kill(shared.driver.agents[1].pid, signal.SIGKILL)  # type: ignore[attr-defined]
    with pytest.raises(sw.errors.RunError, match=r"\[host-lost\] host 1 of island 'i0' was lost"):
        until_it_is_noticed(before)
    until = time.monotonic() + PATIENCE
    while True:
        try:
            assert np.asarray(add_sum(np.ones(4, np.float32))).tolist() == [5] * 4
            break
        except sw.errors.RunError:
            assert time.monotonic() < until


def test_all_runs_are_in_the_trace(shared: sw.Session) -> None:
    traced = sw.jit(lambda x: x * 3, devices=A, name="traced")
    for _ in range(5):
        traced(1.0).block_until_ready()
    gangs = shared.trace.gangs()
    mine = gangs[gangs["step"] == "traced"]
    assert len(mine) == 5
    assert shared.trace.utilization(by="total")["busy_fraction"].iloc[0] > 0
    costs = shared.costs().set_index("computation")
    assert costs.loc["traced", "source"] == "estimate"
