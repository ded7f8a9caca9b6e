"""Arrays are futures: they have a shape, a type and a place at once, and contents later."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import seaway as sw
from seaway.specs.avals import aval
from tests.seaway.small_sessions import small

P: Any = PartitionSpec  # which has no types

wait: Any = jax.block_until_ready
two = sw.slice(devices=2, name="two")
step = sw.synthetic("step", devices=two, duration="330us")
double = sw.jit(lambda x: x * 2.0, devices=two, name="double", cost="10us")
VECTOR = np.arange(4.0, dtype=np.float32)


def test_a_call_returns_at_once() -> None:
    with small() as s:
        before = s.driver.now()
        x = step(VECTOR)
        assert s.driver.now() == before + s.simulation.profile.client_call
        assert (x.shape, x.dtype, x.ndim, x.size, len(x), x.nbytes) == ((4,), np.float32, 1, 4, 4, 16)


def test_waiting_takes_simulated_time() -> None:
    with small() as s:
        x = step(VECTOR)
        x.block_until_ready()
        assert s.driver.now() == x.ready_at > 330_000


def test_outputs_feed_the_next_call_without_a_round_trip() -> None:
    with small() as s:
        x: Any = VECTOR
        for _ in range(10):
            x = step(x)
        assert s.driver.now() == 10 * s.simulation.profile.client_call
        x.block_until_ready()
        assert s.driver.now() >= 10 * 330_000


def test_arrays_have_the_attributes_of_jax_arrays() -> None:
    grid = sw.slice(mesh={"data": 2, "model": 2})
    f = sw.jit(lambda x: x, devices=grid, out_shardings=P("data"), name="f")
    with small():
        x = f(np.zeros((4, 2)))
        assert x.sharding == grid.sharding("data", None)
        assert x.slice is grid
        assert x.aval == aval((4, 2), "float32").abstract()
        assert wait({"x": x})["x"] is x
        assert sw.block_until_ready([x])[0] is x


def test_asking_takes_time_so_that_a_polling_loop_ends() -> None:
    with small() as s:
        x = step(VECTOR)
        asked = 0
        while not x.is_ready():
            asked += 1
        assert asked > 100
        assert s.driver.now() >= x.ready_at


def test_an_array_prints_its_type_and_when_it_is_ready() -> None:
    with small():
        x = step(VECTOR)
        ready = x.ready_at / 1e6
        assert repr(x) == f"Array(float32[4] on slice 'two', ready at {ready:.6g} ms)" == str(x)


def test_an_array_with_contents_prints_like_jaxs() -> None:
    with small(values="compute"):
        x = double(VECTOR)
        assert repr(x) == "Array([0., 2., 4., 6.], dtype=float32)"
        assert str(x) == "[0. 2. 4. 6.]"


# --- contents -----------------------------------------------------------------------------------------------


def test_contents_can_be_read_in_every_way_of_python() -> None:
    total = sw.jit(lambda x: x.sum(), devices=two, name="total", cost="1us")
    with small(values="compute"):
        x, loss = double(VECTOR), total(VECTOR)
        assert np.asarray(x).tolist() == x.tolist() == list(x) == [0, 2, 4, 6]
        assert x[1:3].tolist() == [2, 4]
        assert np.asarray(x, np.float64).dtype == np.float64
        assert (float(loss), int(loss), bool(loss), loss.item(), f"{loss:.2f}") == (6.0, 6, True, 6.0, "6.00")


def test_an_array_of_one_element_converts_to_a_number() -> None:
    total = sw.jit(lambda x: x.sum(), devices=two, name="total", cost="1us")
    with small(values="compute"):
        loss = total(VECTOR)
        assert loss > 5
        assert 1 + loss == 7
        assert loss + loss == 12
        assert loss != 5
        assert loss != None  # noqa: E711 - what a careless user writes


def test_contents_that_were_read_are_read_only() -> None:
    with small(values="compute"):
        x = double(VECTOR)
        with pytest.raises(ValueError, match="read-only"):
            np.asarray(x)[0] = 1


def test_reading_takes_the_time_of_the_transfer() -> None:
    big = np.ones((1 << 20,), np.float32)
    with small(values="compute") as s:
        x = double(sw.put(big, devices=two)).block_until_ready()
        before = s.now()
        assert np.asarray(x).sum() == 2 * big.size
        assert s.now() - before > 4e6 / 12.5e9, "4 MB over the client's network card"
        before = s.now()
        np.asarray(x)
        assert s.now() == before, "the second time the contents are here"


def test_get_reads_a_whole_tree() -> None:
    with small(values="compute"):
        found = sw.get({"a": double(VECTOR), "b": [VECTOR, 3]})
        assert found["a"].tolist() == [0, 2, 4, 6]
        assert found["b"][1] == 3


# --- releasing ----------------------------------------------------------------------------------------------


def buffers_kept(s: sw.Session) -> int:
    """The number of buffers that the controller keeps."""
    return len(s.simulation.controller.buffers)


def test_an_array_without_references_is_freed() -> None:
    with small() as s:
        x: Any = VECTOR
        for _ in range(200):
            x = step(x)
        x.block_until_ready()
        s.sleep("10ms")
        assert buffers_kept(s) == 1
        del x
        gc.collect()
        s.trace  # noqa: B018 - it waits, and whoever waits gives back first
        s.sleep("10ms")
        assert buffers_kept(s) == 0


def test_a_deleted_or_donated_array_cannot_be_used() -> None:
    take = sw.synthetic("take", devices=two, duration="1us", donate_argnums=0)
    with small():
        x, y = step(VECTOR), step(VECTOR)
        x.delete()
        take(y)
        assert x.is_deleted()
        assert y.is_deleted()
        with pytest.raises(sw.errors.NotNow, match="was deleted"):
            step(x)
        with pytest.raises(sw.errors.NotNow, match=r"the result of 'step': it was donated to 'take'"):
            step(y)
        assert repr(y).startswith("Array(float32[4] on slice 'two', was donated to 'take'; do not donate it")


def test_an_argument_that_no_node_reads_can_be_donated() -> None:
    f = sw.program(lambda v, w: step(v), donate_argnums=1, name="f")
    with small() as s:
        w = step(VECTOR)
        f(VECTOR, w).block_until_ready()
        assert w.is_deleted()
        s.sleep("10ms")


def test_a_copy_is_the_array_itself_and_cannot_be_pickled() -> None:
    with small(values="compute"):
        x = double(VECTOR)
        assert copy.copy(x) is x
        assert copy.deepcopy({"x": x})["x"] is x
        with pytest.raises(TypeError, match=r"save its contents, np\.asarray\(x\)"):
            pickle.dumps(x)


# --- arguments ----------------------------------------------------------------------------------------------


def test_small_arguments_travel_in_the_call_and_large_ones_are_put() -> None:
    def moved(nbytes: int) -> int:
        with small(fidelity="exact") as s:
            sw.block_until_ready(step(np.zeros(nbytes, np.int8), np.zeros(1000, np.int8)))
            return int(s.simulation.contents.moved)

    assert moved(3096) == 0
    assert moved(3097) >= 3097


def test_put_places_a_tree_on_a_slice() -> None:
    grid = sw.slice(mesh={"data": 2, "model": 2})
    with small(values="compute"):
        tree = sw.put({"w": np.ones((4, 4)), "b": VECTOR}, devices=grid, sharding={"w": P("data"), "b": None})
        assert tree["w"].sharding == grid.sharding("data", None)
        assert tree["b"].tolist() == VECTOR.tolist()


def test_put_moves_an_array_to_another_slice() -> None:
    other = sw.slice(devices=4, name="other")
    with small(values="compute") as s:
        x = sw.put(double(VECTOR), devices=other, sharding=P("x"))
        assert (x.slice, x.tolist()) == (other, [0, 2, 4, 6])
        assert s.now() > 0


def test_shapes_stand_for_contents_that_do_not_exist() -> None:
    huge = aval((1 << 20, 1 << 10), "bfloat16").abstract()
    with small() as s:
        x = sw.put(huge, devices=two, sharding=P("x")).block_until_ready()
        assert x.nbytes == 2 << 30
        assert s.now() > 2 * 2**30 / 12.5e9
        step(aval((4,), "float32").abstract()).block_until_ready()
