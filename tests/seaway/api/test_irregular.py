"""Sizes that are known only after a computation has run: outputs whose size depends on data, and rows that data send
elsewhere."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import seaway as sw
from tests.seaway.small_sessions import small

P: Any = PartitionSpec  # which has no types

ROWS = P("x")
two, four = sw.slice(devices=2, name="two"), sw.slice(devices=4, name="four")


@sw.jit(devices=two, irregular=True)
def positive(x: Any) -> Any:
    """The entries above zero, in front, and their number."""
    order = jnp.argsort(x <= 0, stable=True)
    return x[order], (x > 0).sum()


total = sw.jit(lambda x: x.sum(), devices=two, name="total")
chain = sw.program(lambda x: (positive(x), total(positive(x))), name="chain")
VECTOR = np.array([-1.0, 2.0, -3.0, 4.0], np.float32)


def sizes_of(count: int = 1, **options: Any) -> list[tuple[int, ...]]:
    """The sizes of irregular gangs in so many runs, as their hosts reported them: of the largest shard."""
    made: list[tuple[int, ...]] = []
    with small(**options) as s:
        ask = s.simulation.sizes

        def asked(plan: Any, gang: Any, seq: int) -> tuple[int, ...]:
            made.append(ask(plan, gang, seq))
            return made[-1]

        s.simulation.sizes = asked
        for _ in range(count):
            sw.block_until_ready(positive(VECTOR))
    return made


def test_an_output_has_the_shape_of_its_bound_and_contents_are_cut_to_their_count() -> None:
    with small(values="compute"):
        assert positive(VECTOR).shape == (4,)
        assert np.asarray(positive(VECTOR)).tolist() == [2.0, 4.0]


def test_contents_decide_the_sizes_if_there_are_any() -> None:
    assert sizes_of(values="compute") == [(2,)]


@pytest.mark.parametrize(
    ("sizes", "made"),
    [
        (None, [4, 4, 4]),
        (3, [3, 3, 3]),
        (0.5, [2, 2, 2]),
        ([1, 4], [1, 4, 1]),
        ({"positive": 1, "other": 2}, [1, 1, 1]),
        (lambda rng, bound: bound - 1, [3, 3, 3]),
    ],
)
@pytest.mark.filterwarnings("ignore:sizes has 'other'")
def test_sizes_can_be_stated(sizes: Any, made: list[int]) -> None:
    assert [size for (size,) in sizes_of(3, sizes=sizes)] == made


def test_random_sizes_follow_the_seed() -> None:
    def draw(rng: np.random.Generator, bound: int) -> int:
        return int(rng.integers(bound + 1))

    first = sizes_of(20, sizes=draw, seed=1)
    assert first == sizes_of(20, sizes=draw, seed=1)
    assert first != sizes_of(20, sizes=draw, seed=2)
    assert len(set(first)) > 2


def test_a_size_beyond_the_bound_is_refused() -> None:
    with pytest.raises(ValueError, match=r"sizes\['positive'\] gave 5 rows at run 0; its bound is 4"):
        sizes_of(sizes=5)


def test_a_size_for_a_name_that_never_ran_is_reported() -> None:
    with pytest.warns(UserWarning, match=r"sizes has 'postive'.*did you mean 'positive'"):
        sizes_of(sizes={"postive": 2})


def test_readers_of_an_irregular_output_wait_for_its_size() -> None:
    with small() as s:
        sw.block_until_ready(chain(VECTOR))
        gangs = list(s.trace.core.rows("gangs"))
    made = next(gang for gang in gangs if gang["step"] == "positive")
    read = next(gang for gang in gangs if gang["step"] == "total")
    assert read["entered"] > made["ended"]


def test_a_function_without_a_count_is_refused() -> None:
    f = sw.jit(lambda x: x, devices=two, irregular=True, name="f")
    with pytest.raises(TypeError, match=r"returns \(arrays, count\)"):
        f.match((VECTOR,), {})


def test_max_shape_bounds_the_output() -> None:
    f = sw.jit(lambda x: (x, 2), devices=two, irregular=True, max_shape=(8,), name="f")
    assert f.match((VECTOR,), {})[0].outputs[0].shape == (8,)
    wrong = sw.jit(lambda x: (x, 2), devices=two, irregular=True, max_shape=(8, 2), name="f")
    with pytest.raises(ValueError, match="only the first dimension may differ"):
        wrong.match((VECTOR,), {})
    scalar = sw.jit(lambda x: (x, 2), devices=two, irregular=True, max_shape=(), name="f")
    with pytest.raises(ValueError, match="only the first dimension may differ"):
        scalar.match((VECTOR,), {})
    with pytest.raises(ValueError, match="give both or neither"):
        sw.jit(lambda x: x, devices=two, max_shape=(8,), name="f")


# --- sparse exchange ----------------------------------------------------------------------------------------

X = np.arange(16, dtype=np.float32).reshape(8, 2)
DEST = np.array([3, 0, 0, -1, 2, 3, 0, 2], np.int32)


def test_rows_go_where_the_data_say() -> None:
    with small(values="compute"):
        y, source = sw.route(sw.put(X, devices=two, sharding=ROWS), DEST, devices=four, capacity=3)
        assert source.tolist() == [1, 2, 6, -1, -1, -1, 4, 7, -1, 0, 5, -1]
        assert np.asarray(y)[np.asarray(source) >= 0].tolist() == X[[1, 2, 6, 4, 7, 0, 5]].tolist()
        assert (y.slice, y.sharding.spec) == (four, P("x", None))


def test_all_columns_of_a_row_travel_together() -> None:
    tree: dict[str, Any] = {
        "small": np.arange(8, dtype=np.int8),
        "wide": X.astype(np.float64),
        "half": X.astype(jnp.bfloat16),
    }
    with small(values="compute"):
        placed = sw.put(tree, devices=two, sharding=ROWS)
        y, source = sw.route(placed, DEST, devices=four)
        came = np.asarray(source) >= 0
        for name, given in tree.items():
            assert np.array_equal(np.asarray(y[name])[came], given.astype(y[name].dtype)[np.asarray(source)[came]])


def test_rows_can_return_to_their_origin() -> None:
    home = sw.jit(lambda source: jnp.where(source >= 0, source // 4, -1), devices=four, name="home",
                  in_shardings=ROWS, out_shardings=ROWS)  # fmt: skip

    @sw.program
    def there_and_back(x: Any, dest: Any) -> Any:
        x = sw.put(x, devices=two, sharding=ROWS)
        y, source = sw.route(x, dest, devices=four)
        (back, row), _ = sw.route((y, source), home(source), devices=two, capacity=4)
        return back, row

    with small(values="compute"):
        back, row = there_and_back(X, np.maximum(DEST, 0))
        assert np.array_equal(np.asarray(back), X[np.asarray(row)])
        assert sorted(row.tolist()) == list(range(8))


def test_an_exchange_takes_time_on_the_network() -> None:
    rows = np.zeros((4, 1 << 18), np.float32)
    with small() as s:
        y, _ = sw.route(sw.put(rows, devices=two, sharding=ROWS), np.arange(4), devices=four)
        y.block_until_ready()
        moved = [row for row in s.trace.core.rows("transfers") if row["step"] == "route"]
    assert len(moved) == 1
    assert moved[0]["ended"] > moved[0]["entered"]


def test_too_many_rows_for_a_shard_are_an_error() -> None:
    with small(values="compute"):
        y, _ = sw.route(sw.put(X, devices=two, sharding=ROWS), DEST, devices=four, capacity=2)
        with pytest.raises(sw.errors.RunError, match="3 rows go to shard 0, and its capacity is 2; raise `capacity`"):
            np.asarray(y)


def test_a_row_for_a_missing_shard_is_an_error() -> None:
    with small(values="compute"):
        y, _ = sw.route(sw.put(X, devices=two, sharding=ROWS), DEST + 1, devices=four)
        with pytest.raises(sw.errors.RunError, match="dest names shard 4"):
            np.asarray(y)


def test_values_that_cannot_be_routed_are_refused() -> None:
    with small():
        with pytest.raises(sw.errors.NotNow, match=r"lies on no slice yet; sw\.put it"):
            sw.route(X, DEST, devices=four)
        placed = sw.put(X, devices=two)
        with pytest.raises(ValueError, match="one whole number a row"):
            sw.route(placed, DEST[:4], devices=four)
        with pytest.raises(ValueError, match="one whole number a row"):
            sw.route(placed, DEST.astype(np.float32), devices=four)
        with pytest.raises(ValueError, match="at least 1"):
            sw.route(placed, DEST, devices=four, capacity=0)
