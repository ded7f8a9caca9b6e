"""How real devices carry out core's commands: one process, eight CPU devices. `test_pjrt.py` runs these tests in a
child process."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from backend.contents import shard_io
from core.model.place import Grid, Place
from core.model.program import Arg, Out
from core.model.resharding import Shards
from core.protocol import effects as e

from .pjrt_rig import Rig, Work, blob, value
from .pjrt_stage import ARRAY, COLUMNS, MESH, ROWS, WHOLE, adding, layout, rig, shared

__all__ = ["rig", "shared"]  # fixtures

# --- compile, launch, read ---------------------------------------------------------------------------------------


def test_a_gang_computes_the_result_of_its_code(rig: Rig) -> None:
    plan = rig.ready(adding(), Out(0))
    (made,) = rig.run(plan, rig.literal(layout(ROWS), ARRAY))
    assert rig.wait(e.Finished).blame is None
    np.testing.assert_array_equal(rig.array(made, layout(ROWS)), ARRAY + ARRAY.sum())


def test_a_chain_is_enqueued_without_waiting_and_finishes_in_order(rig: Rig) -> None:
    work = Work(MESH, ROWS)
    last: Any = Arg(0)
    step = blob(lambda x: x + jnp.sum(x) * 0 + 1, MESH, [ROWS], [ROWS])
    for number in range(100):
        last = work.call(f"step {number}", None, [last], [ROWS], [ROWS], exported=step)
    plan = rig.ready(work, last)
    assert rig.usage()["outstanding"] == 0
    (made,) = rig.run(plan, rig.literal(layout(ROWS), ARRAY))
    ended = [rig.wait(e.Finished) for _ in range(100)]
    assert [each.seq for each in ended] == sorted(each.seq for each in ended)
    np.testing.assert_array_equal(rig.array(made, layout(ROWS)), ARRAY + 100)


def test_finished_is_reported_when_the_gang_is_over_and_not_before(rig: Rig) -> None:
    def slow(x: Any) -> Any:
        return jax.lax.fori_loop(0, 20, lambda _, y: jnp.tanh(y @ y), x)

    square = value((300, 300))
    work = Work((8,), square)
    work.call("slow", slow, [Arg(0)], [square], [square])
    plan = rig.ready(work, Out(0))
    x = rig.literal(layout(square, mesh=(8,)), np.full((300, 300), 0.001, np.float32))
    seq, (made,) = rig.launch(plan, 0, [x])
    rig.settle()
    with pytest.raises(Exception, match=r"^$"):
        rig.wait(e.Finished, seq=seq, patience=0.005)
    rig.wait(e.Finished, seq=seq)
    assert rig.devices._store.get(made).array.is_ready()  # type: ignore[union-attr]


@pytest.mark.parametrize("mesh", [(8,), (4, 2), (2, 2, 2)])
def test_a_place_may_have_any_devices_in_any_order(rig: Rig, mesh: tuple[int, ...]) -> None:
    place = Place(0, (Grid(0, (2, 4), (1, 2)),))  # 0 2 4 6 1 3 5 7
    like = value((8, 4), ("x", ""))
    work = Work(mesh, like)
    work.call("index", lambda x: x + jnp.arange(8.0)[:, None], [Arg(0)], [like], [like])
    plan = work.plan(place, Out(0), ident=30 + len(mesh))
    assert [said.blame for said in rig.compile(plan, work.blobs)] == [None]
    where = layout(like, place, mesh)
    (made,) = rig.run(plan, rig.literal(where, ARRAY))
    assert rig.wait(e.Finished).blame is None
    np.testing.assert_array_equal(rig.array(made, where), ARRAY + np.arange(8)[:, None])
    assert set(rig.devices.shards(made)) == {(k, 0) for k in range(mesh[0])}


def test_linear_algebra_works_in_code_that_was_traced_elsewhere(rig: Rig) -> None:
    square = value((4, 4), dtype="float64")
    work = Work((8,), square)
    work.call("solve", lambda x: jnp.linalg.solve(x, jnp.eye(4)), [Arg(0)], [square], [square])
    plan = rig.ready(work, Out(0), ident=40)
    array = np.eye(4) * 2 + np.diag(np.ones(3), 1)
    (made,) = rig.run(plan, rig.literal(layout(square, mesh=(8,)), array))
    assert rig.wait(e.Finished).blame is None
    np.testing.assert_allclose(rig.array(made, layout(square, mesh=(8,))), np.linalg.inv(array), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "bool", "int64", "complex128", "key<fry>"])
def test_arrays_of_all_types_can_be_put_and_read(rig: Rig, dtype: str) -> None:
    like = value((8,), ("x",), dtype)
    where = layout(like, mesh=(8,))
    raw = np.arange(8 * shard_io.numpy_dtype(dtype).itemsize, dtype=np.uint8) % (2 if dtype == "bool" else 100)
    array = raw.view(shard_io.numpy_dtype(dtype))
    for number in (rig.literal(where, array), rig.received(where, array)):
        assert rig.array(number, where).tobytes() == array.tobytes()


def test_keys_of_jax_random_are_keys_again_on_the_devices(rig: Rig) -> None:
    keys, drawn = value((), (), "key<fry>"), value((4,))
    work = Work((8,), keys)
    work.call("draw", lambda key: jax.random.normal(key, (4,), jnp.float32), [Arg(0)], [keys], [drawn])
    plan = rig.ready(work, Out(0), ident=41)
    words = np.asarray(jax.random.key_data(jax.random.key(7))).view(np.uint64).reshape(())
    (made,) = rig.run(plan, rig.literal(layout(keys, mesh=(8,)), words))
    assert rig.wait(e.Finished).blame is None
    want = jax.random.normal(jax.random.key(7), (4,), jnp.float32)
    np.testing.assert_array_equal(rig.array(made, layout(drawn, mesh=(8,))), want)


def test_scalars_and_empty_arrays_work(rig: Rig) -> None:
    scalar, empty = value((), ()), value((0, 3), ())
    work = Work((8,), scalar, empty)
    work.call("both", lambda s, z: (s + 1, z), [Arg(0), Arg(1)], [scalar, empty], [scalar, empty])
    plan = rig.ready(work, Out(0), Out(0, 1), ident=42)
    where = [layout(each, mesh=(8,)) for each in (scalar, empty)]
    made = rig.run(plan, rig.literal(where[0], np.float32(2)), rig.literal(where[1], np.zeros((0, 3), np.float32)))
    assert rig.wait(e.Finished).blame is None
    assert rig.array(made[0], where[0]) == 3
    assert rig.array(made[1], where[1]).shape == (0, 3)


def test_a_split_array_without_elements_comes_goes_and_is_a_placeholder(rig: Rig) -> None:
    lies = layout(value((0, 4), ("x", "y")))
    for number in (rig.received(lies, np.zeros((0, 4), np.float32)), rig.literal(lies, np.zeros((0, 4), np.float32))):
        rig.settle()
        assert {part.shape for part in rig.devices.shards(number).values()} == {Shards(lies).size}
    rig.devices._line.ask(rig.devices._store.placeholder, lies)


# --- code that core makes by itself -------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [WHOLE, COLUMNS, value((8, 4), ("xy", "")), value((8, 4), ("", "x"))])
def test_a_resharding_gang_moves_data_and_changes_no_value(rig: Rig, wanted: Any) -> None:
    work = Work(MESH, ROWS)
    work.call("same", lambda x: x * 1, [Arg(0)], [wanted], [wanted])
    plan = rig.ready(work, Out(0), ident=50)
    assert plan.codes[0].key.startswith("reshard:")
    (made,) = rig.run(plan, rig.literal(layout(ROWS), ARRAY))
    assert [rig.wait(e.Finished).blame for _ in plan.steps] == [None, None]
    np.testing.assert_array_equal(rig.array(made, layout(wanted)), ARRAY)
    assert {part.shape for part in rig.devices.shards(made).values()} == {Shards(layout(wanted)).size}


def test_an_irregular_gang_reports_its_size_and_pads_the_rest_with_zeros(rig: Rig) -> None:
    vector = value((8,), ("x",))

    def positive(x: Any) -> Any:
        return x[jnp.argsort(x <= 0, stable=True)], (x > 0).sum()

    for bound, want in ((value((8,), ("x",)), [2, 4, 5, 0, 0, 0, 0, 0]), (value((6,)), [2, 4, 5, 0, 0, 0])):
        work = Work(MESH, vector)
        work.call("positive", positive, [Arg(0)], [vector], [bound], irregular=True)
        plan = rig.ready(work, Out(0), ident=52 + len(want))
        x = np.array([-1, 2, -3, 4, 5, 0, -7, -8], np.float32)
        (made,) = rig.run(plan, rig.literal(layout(vector), x))
        ended = rig.wait(e.Finished)
        assert ended.blame is None
        assert ended.sizes == (2 if len(want) == 8 else 3,)  # rows of the largest shard
        assert rig.array(made, layout(bound)).tolist() == want


def test_the_unused_rest_of_an_irregular_output_is_freed_soon(rig: Rig) -> None:
    """256 rows on 4 devices, of which a few are valid. Each shard keeps a bucket, and readers see it padded."""
    vector, bound = value((256,)), value((256,), ("x",))
    work = Work(MESH, vector)
    work.call("few", lambda x: (x * (x > 0), jnp.int32(5)), [Arg(0)], [vector], [bound], irregular=True)
    work.call("twice", lambda x: 2 * x, [Out(0)], [bound], [bound])
    plan = rig.ready(work, Out(0), Out(1), ident=64)
    x = np.where(np.arange(256) < 5, np.arange(256) + 1, -1).astype(np.float32)
    given = rig.literal(layout(vector), x)
    rig.settle()
    before = rig.usage()["bytes"]
    _, (few,) = rig.launch(plan, 0, [given])
    rows = Shards(layout(bound)).size[0]
    assert rig.wait(e.Finished).sizes == (5,)
    rig.settle()
    assert rig.usage()["bytes"] == before + 8 * 4 < before + rows * 4
    want = np.where(x > 0, x, 0)
    np.testing.assert_array_equal(rig.array(few, layout(bound)), want)
    _, (twice,) = rig.launch(plan, 1, [few])
    rig.wait(e.Finished)
    np.testing.assert_array_equal(rig.array(twice, layout(bound)), 2 * want)
    rig.devices.spill(e.SpillBuffer(901, few, ()))
    assert rig.wait(e.Copied, seq=901).blame is None
    np.testing.assert_array_equal(rig.array(few, layout(bound)), want)
    for buffer in (few, twice, given):
        rig.devices.free(buffer, 1)
    rig.settle()
    usage = rig.usage()
    assert (usage["bytes"], usage["spilled_bytes"]) == (before - 256 * 4, 0)


def test_an_irregular_gang_that_makes_more_than_its_bound_is_blamed(rig: Rig) -> None:
    vector, bound = value((8,)), value((2,))
    work = Work(MESH, vector)
    work.call("all", lambda x: (x, jnp.int32(3)), [Arg(0)], [vector], [bound], irregular=True)
    plan = rig.ready(work, Out(0), ident=63)
    rig.run(plan, rig.literal(layout(vector), np.ones(8, np.float32)))
    blame = rig.wait(e.Finished).blame
    assert (blame.code, "'all' made 3 rows, but its bound is 2" in blame.cause) == ("user", True)


# --- donation and freeing ----------------------------------------------------------------------------------------


def test_a_donated_input_is_gone_and_its_memory_taken_over(rig: Rig) -> None:
    plan = rig.ready(adding(donate=(0,)), Out(0), ident=70)
    x = rig.received(layout(ROWS), ARRAY)
    rig.settle()
    before = rig.usage()["bytes"]
    (made,) = rig.run(plan, x)
    assert rig.wait(e.Finished).blame is None
    with pytest.raises(LookupError, match=f"buffer {x} is not on this host"):
        rig.devices.shards(x)
    assert rig.usage()["bytes"] == before
    np.testing.assert_array_equal(rig.array(made, layout(ROWS)), ARRAY + ARRAY.sum())


def test_an_input_survives_a_launch_that_does_not_donate_it(rig: Rig) -> None:
    plan = rig.ready(adding(donate=(0,)), Out(0), ident=70)
    x = rig.literal(layout(ROWS), ARRAY)
    _, (made,) = rig.launch(plan, 0, [x], donate=False)
    rig.wait(e.Finished)
    np.testing.assert_array_equal(rig.array(x, layout(ROWS)), ARRAY)
    np.testing.assert_array_equal(rig.array(made, layout(ROWS)), ARRAY + ARRAY.sum())


def test_a_donated_chain_runs_at_full_depth_and_every_step_is_reported(rig: Rig) -> None:
    plan = rig.ready(adding(donate=(0,)), Out(0), ident=70)
    buffer = rig.literal(layout(ROWS), np.zeros((8, 4), np.float32))
    for _ in range(60):
        _, (buffer,) = rig.launch(plan, 0, [buffer])
    assert [rig.wait(e.Finished).blame for _ in range(60)] == [None] * 60
    assert not rig.array(buffer, layout(ROWS)).any()


def test_replicas_of_one_host_array_do_not_share_memory_after_a_donation(rig: Rig) -> None:
    """CPU devices may share one numpy array. A gang that takes over its memory must not change its neighbours'
    values."""
    work = Work((8,), WHOLE)
    work.call("count up", lambda x: x + 1, [Arg(0)], [WHOLE], [WHOLE], donate=(0,))
    plan = rig.ready(work, Out(0), ident=72)
    where = layout(WHOLE, mesh=(8,))
    for _ in range(20):
        _, (made,) = rig.launch(plan, 0, [rig.received(where, ARRAY)])
        rig.wait(e.Finished)
        array = rig.devices._store.get(made).array  # type: ignore[union-attr]
        for part in array.addressable_shards:
            np.testing.assert_array_equal(np.asarray(part.data), ARRAY + 1)


def test_a_freed_buffer_is_freed_after_the_launches_that_were_enqueued_before(rig: Rig) -> None:
    plan = rig.ready(adding(), Out(0), ident=73)
    x = rig.literal(layout(ROWS), ARRAY)
    (made,) = rig.run(plan, x)
    rig.devices.free(x, 1)
    rig.wait(e.Finished)
    np.testing.assert_array_equal(rig.array(made, layout(ROWS)), ARRAY + ARRAY.sum())
    rig.settle()  # a thread frees x after the step that read it
    held = rig.usage()
    rig.devices.free(made, 1)
    rig.settle()
    with pytest.raises(LookupError):
        rig.devices.shards(made)
    freed = rig.usage()
    assert (held["buffers"] - freed["buffers"], held["bytes"] - freed["bytes"]) == (1, Shards(layout(ROWS)).size[0] * 8)


def test_a_buffer_goes_to_host_memory_and_comes_back(rig: Rig) -> None:
    x = rig.literal(layout(ROWS), ARRAY)
    rig.settle()
    before = rig.usage()
    rig.devices.spill(e.SpillBuffer(900, x, ()))
    assert rig.wait(e.Copied, seq=900).blame is None
    out = rig.usage()
    assert out["bytes"] < before["bytes"]
    assert out["spilled_bytes"] == before["spilled_bytes"] + ARRAY.nbytes
    np.testing.assert_array_equal(rig.array(x, layout(ROWS)), ARRAY)
    rig.devices.restore(e.RestoreBuffer(901, x, ()))
    assert rig.wait(e.Copied, seq=901).blame is None
    assert rig.usage() == before
    np.testing.assert_array_equal(rig.array(x, layout(ROWS)), ARRAY)
