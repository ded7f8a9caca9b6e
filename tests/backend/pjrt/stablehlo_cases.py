"""How real devices carry out raw StableHLO: one process, eight CPU devices. `test_pjrt.py` runs these tests in a child
process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from backend.contents import StableHLOCode, stablehlo_code
from backend.pjrt.code.executable_cache import ExecutableCache
from core.model.place import Grid, Place, line
from core.model.plan import Layout, Plan
from core.model.program import Arg
from core.protocol import effects as e

from .pjrt_rig import Rig, Work, value
from .pjrt_stage import ARRAY, COLUMNS, HERE, MESH, ROWS, WHOLE, layout, rig, shared
from .stablehlo_rig import artifact, compile_options, lowered, raw, results

__all__ = ["rig", "shared"]  # fixtures

ONE = line(0, 3, 1)
SPLIT = value((8, 4), ("x", ""))
numbers = iter(range(1000, 9999))


def compiled(rig: Rig, work: Work, place: Place = HERE, *, about: bool = True) -> tuple[Plan, e.CodeReady]:
    plan = work.plan(place, *results(work), ident=next(numbers))
    rig.devices.compile(e.CompileCode(plan.id, 0, (), about), plan, work.blobs)
    return plan, rig.wait(e.CodeReady, plan=plan.id)


def ready(rig: Rig, work: Work, place: Place = HERE) -> Plan:
    plan, said = compiled(rig, work, place)
    assert said.blame is None, said.blame
    return plan


def refused(rig: Rig, work: Work, place: Place = HERE) -> str:
    _, said = compiled(rig, work, place)
    assert said.blame is not None
    return said.blame.cause


def outcome(rig: Rig, plan: Plan, *arguments: int, **options: Any) -> list[Any]:
    """Launch, await the end and read all outputs."""
    seq, made = rig.launch(plan, 0, arguments, **options)
    blame = rig.wait(e.Finished, seq=seq).blame
    assert blame is None, blame
    return [rig.array(each, plan.slots[slot].layout) for each, slot in zip(made, plan.results, strict=True)]


def layouts(plan: Plan, count: int) -> list[Layout]:
    return [plan.slots[slot].layout for slot in range(count)]


def add(x: Any, y: Any) -> Any:
    return x + y


# --- results -------------------------------------------------------------------------------------------------------


def test_a_program_of_one_device_computes_what_jax_computes(rig: Rig) -> None:
    like = value((3, 5))
    fn = lambda x: (jnp.sin(x) @ x.T, x.sum())  # noqa: E731
    takes, makes = [like], [value((3, 3)), value(())]
    plan = ready(rig, raw("one", lowered(fn, (1,), takes), (1,), takes, makes), ONE)
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    found = outcome(rig, plan, rig.literal(layouts(plan, 1)[0], x))
    for ours, theirs in zip(found, jax.jit(fn)(x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_the_times_of_what_ran_keep_no_devices_of_a_world(rig: Rig) -> None:
    """They last longer than a world, and a device keeps its world in memory, with its threads and connections."""
    like = value((3,))
    plan = ready(rig, raw("twice", lowered(lambda x: 2 * x, (1,), [like]), (1,), [like], [like]), ONE)
    outcome(rig, plan, rig.literal(layouts(plan, 1)[0], np.ones(3, np.float32)))
    times = rig.devices._completions._free_since
    assert times
    assert all(isinstance(device, int) for device in times)


def test_a_program_of_all_devices_takes_and_makes_sharded_arrays(rig: Rig) -> None:
    program = lowered(lambda x, w: x @ w.T + x.sum(), MESH, [ROWS, COLUMNS], [value((8, 8), ("x", "y"))])
    plan = ready(rig, raw("matmul", program, MESH, [ROWS, COLUMNS], [value((8, 8), ("x", "y"))]))
    a, b = layouts(plan, 2)
    (found,) = outcome(rig, plan, rig.literal(a, ARRAY), rig.literal(b, ARRAY + 1))
    np.testing.assert_array_equal(found, ARRAY @ (ARRAY + 1).T + ARRAY.sum())


@pytest.mark.parametrize(
    "place", [line(0, 2, 2), Place(0, (Grid(5, (1,), (1,)), Grid(1, (1,), (1,)))), Place(0, (Grid(0, (2, 4), (1, 2)),))]
)
def test_a_place_may_be_any_devices_in_any_order(rig: Rig, place: Place) -> None:
    mesh = (place.size,)
    program = lowered(lambda x: x * 2 + jnp.arange(8.0, dtype=x.dtype)[:, None], mesh, [SPLIT], [SPLIT])
    plan = ready(rig, raw("index", program, mesh, [SPLIT], [SPLIT]), place)
    (found,) = outcome(rig, plan, rig.literal(layouts(plan, 1)[0], ARRAY))
    np.testing.assert_array_equal(found, ARRAY * 2 + np.arange(8)[:, None])


@pytest.mark.parametrize("dtype", ["int4", "uint4", "bfloat16", "float8_e4m3fn", "bool", "complex128", "int64"])
def test_arrays_of_many_types_pass_through(rig: Rig, dtype: str) -> None:
    like = value((8,), ("x",), dtype)
    plan = ready(rig, raw("pass", lowered(lambda x: x[::-1], (8,), [like], [like]), (8,), [like], [like]))
    (lies,) = layouts(plan, 1)
    x = np.arange(8).astype(jnp.dtype(dtype))
    (found,) = outcome(rig, plan, rig.literal(lies, x))
    assert found.tobytes() == x[::-1].tobytes()


def test_both_flavours_read_each_others_arrays(rig: Rig) -> None:
    raw_plan = ready(rig, raw("raw", lowered(add, MESH, [ROWS, ROWS], [ROWS]), MESH, [ROWS, ROWS], [ROWS]))
    work = Work(MESH, ROWS)
    work.call("exported", lambda x: x * 2, [Arg(0)], [ROWS], [ROWS])
    plan = rig.ready(work, results(work)[0], ident=next(numbers))
    x = rig.literal(layout(ROWS), ARRAY)
    _, (doubled,) = rig.launch(plan, 0, [x])
    _, (summed,) = rig.launch(raw_plan, 0, [doubled, x])
    seq, (again,) = rig.launch(plan, 0, [summed])
    assert rig.wait(e.Finished, seq=seq).blame is None
    np.testing.assert_array_equal(rig.array(again, layout(ROWS)), ARRAY * 6)


TOKEN = """
module @jit_f attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<4xf32>) -> (!stablehlo.token, tensor<4xf32>, tensor<4xf32>) {
    %t = stablehlo.create_token : !stablehlo.token
    %y = stablehlo.add %x, %x : tensor<4xf32>
    return %t, %y, %x : !stablehlo.token, tensor<4xf32>, tensor<4xf32>
  }
}"""


def test_results_that_are_tokens_are_left_out(rig: Rig) -> None:
    four = value((4,))
    plan = ready(rig, raw("token", artifact(TOKEN), (1,), [four], [four, four]), ONE)
    x = np.arange(4, dtype=np.float32)
    double, same = outcome(rig, plan, rig.literal(layouts(plan, 1)[0], x))
    np.testing.assert_array_equal(double, x * 2)
    np.testing.assert_array_equal(same, x)


def test_a_program_without_results_ends(rig: Rig) -> None:
    four = value((4,))
    only_token = TOKEN.replace("(!stablehlo.token, tensor<4xf32>, tensor<4xf32>)", "!stablehlo.token")
    only_token = only_token.replace(
        "return %t, %y, %x : !stablehlo.token, tensor<4xf32>, tensor<4xf32>", "return %t : !stablehlo.token"
    )
    plan = ready(rig, raw("effect", artifact(only_token), (1,), [four], []), ONE)
    assert outcome(rig, plan, rig.literal(layouts(plan, 1)[0], np.zeros(4, np.float32))) == []


# --- donation ------------------------------------------------------------------------------------------------------


def donating() -> Work:
    program = lowered(add, MESH, [ROWS, ROWS], [ROWS], donate_argnums=0)
    return raw("adding", program, MESH, [ROWS, ROWS], [ROWS], donate=(0,))


def given_plan(rig: Rig) -> Plan:
    work = donating()
    program = work.plan(HERE, *results(work), ident=next(numbers))
    (gang,) = program.steps
    assert getattr(gang, "donated", ()) == (0,)
    return ready(rig, work)


def test_what_a_launch_gives_is_taken_over(rig: Rig) -> None:
    plan = given_plan(rig)
    x, y = (rig.literal(layout(ROWS), ARRAY + at) for at in range(2))
    rig.settle()
    held = rig.devices._store.get(x)
    assert held is not None
    array = held.array
    (found,) = outcome(rig, plan, x, y)
    np.testing.assert_array_equal(found, ARRAY * 2 + 1)
    assert array.is_deleted()
    assert rig.devices._store.get(x) is None


def test_what_a_launch_does_not_give_is_copied_and_stays(rig: Rig) -> None:
    plan = given_plan(rig)
    x, y = (rig.literal(layout(ROWS), ARRAY + at) for at in range(2))
    for _ in range(2):
        (found,) = outcome(rig, plan, x, y, donate=False)
        np.testing.assert_array_equal(found, ARRAY * 2 + 1)
    np.testing.assert_array_equal(rig.array(x, layout(ROWS)), ARRAY)


def test_one_array_may_be_two_arguments_although_one_of_them_is_taken_over(rig: Rig) -> None:
    plan = given_plan(rig)
    x = rig.literal(layout(ROWS), ARRAY)
    (found,) = outcome(rig, plan, x, x)
    np.testing.assert_array_equal(found, ARRAY * 2)


# --- answers -------------------------------------------------------------------------------------------------------


def probe(program: bytes, mesh: tuple[int, ...], question: str = "") -> Work:
    return raw("probe", program, mesh, [], [], question=question)


def test_a_probe_is_told_what_only_compiling_tells_and_the_program_behind_it_is_not_compiled_again(rig: Rig) -> None:
    program = lowered(lambda x: (x.T, x.sum()), MESH, [ROWS])
    before = rig.usage()["compiled"]
    plan, said = compiled(rig, probe(program, MESH))
    assert said.blame is None
    about = stablehlo_code.compiled_about(said.about)
    assert about.parameter_shardings is not None
    assert about.output_shardings is not None
    assert (len(about.parameter_shardings), len(about.output_shardings)) == (1, 2)
    assert about.output_layouts == ("{1,0}", "{}")
    assert about.output_memory_kinds == ("device", "device")
    assert about.memory_stats["argument_size_in_bytes"] == ARRAY.nbytes // 8
    assert about.fingerprint
    makes = [value((4, 8), ("y", "x")), value(())]
    real = ready(rig, raw("real", program, MESH, [ROWS], makes))
    assert rig.usage()["compiled"] == before + 1
    found, total = outcome(rig, real, rig.literal(layout(ROWS), ARRAY))
    np.testing.assert_array_equal(found, ARRAY.T)
    assert total == ARRAY.sum()
    seq, _ = rig.launch(plan, 0, [])
    blame = rig.wait(e.Finished, seq=seq).blame
    assert "'probe' was compiled without its arguments" in blame.cause


def test_the_program_is_told_as_text_and_what_it_costs(rig: Rig) -> None:
    program = lowered(lambda x: x @ x.T, (1,), [WHOLE])
    before = rig.usage()["compiled"]
    _, said = compiled(rig, probe(program, (1,), "text"), ONE)
    assert stablehlo_code.text_of(said.about).startswith("HloModule jit")
    _, said = compiled(rig, probe(program, (1,), "costs"), ONE)
    assert stablehlo_code.costs_of(said.about)["flops"] >= 2 * 8 * 8 * 4
    assert rig.usage()["compiled"] == before + 1


def test_devices_are_told_without_a_program(rig: Rig) -> None:
    plan, said = compiled(rig, probe(b"", (8,), "platform"))
    about = stablehlo_code.platform_about(said.about)
    assert about.name == "cpu"
    assert [each.kind for each in about.devices] == ["cpu"] * 8
    assert all(each.memories[each.default_memory] == "device" for each in about.devices)
    assert [each.repr for each in about.devices] == [repr(device) for device in jax.devices()]
    assert about.serdes in (3, 6)
    seq, _ = rig.launch(plan, 0, [])
    blame = rig.wait(e.Finished, seq=seq).blame
    assert "asks 'platform' and has no program to run" in blame.cause


def test_nothing_is_told_to_who_does_not_ask(rig: Rig) -> None:
    _, said = compiled(rig, probe(lowered(lambda x: x, (1,), [WHOLE]), (1,)), ONE, about=False)
    assert said.about == b""
    work = Work((8,), WHOLE)
    work.call("exported", lambda x: x, [Arg(0)], [WHOLE], [WHOLE])
    _, said = compiled(rig, work)
    assert said.about == b""


# --- what does not fit ---------------------------------------------------------------------------------------------


def test_a_plan_that_does_not_fit_the_program_is_refused_with_both(rig: Rig) -> None:
    program = lowered(add, MESH, [ROWS, ROWS], [ROWS])
    other, short = value((8, 4), ("x", "y"), "int32"), value((4, 4), ("x", "y"))
    for takes, makes, text in (
        ([ROWS], [ROWS], "computation 'f' has 2 inputs, but the plan has 1"),
        ([ROWS, ROWS], [ROWS, ROWS], "computation 'f' has 1 results, but the plan has 2"),
        ([ROWS, other], [ROWS], r"input 1 of computation 'f' is f32[8, 4], but the plan has int32[8, 4]"),
        ([ROWS, ROWS], [short], r"result 0 of computation 'f' is f32[8, 4], but the plan has float32[4, 4]"),
        ([ROWS, COLUMNS], [ROWS], "input 1 of computation 'f' is split as {devices=[4,2]<=[8]}, but the plan"),
        ([ROWS, ROWS], [WHOLE], "result 0 of computation 'f' is split as {devices=[4,2]<=[8]}, but the plan"),
    ):
        assert text in refused(rig, raw("f", program, MESH, takes, makes))


def test_options_are_filtered_and_must_name_the_whole_place(rig: Rig) -> None:
    program = lowered(add, MESH, [ROWS, ROWS], [ROWS])

    def with_options(options: bytes) -> Work:
        return raw("f", program, MESH, [ROWS, ROWS], [ROWS], options=options)

    ready(rig, with_options(compile_options(8, xla_embed_ir_in_executable="True")))
    for options, text in (
        (b"\xff\xff", "the compile options cannot be read"),
        (compile_options([*range(1, 9)]), "device 8 is not one of this session's: they are 0 to 7"),
        (compile_options([*reversed(range(8))]), "must have all 8 of its slice, in order"),
        (compile_options(4), "must have all 8 of its slice, in order"),
        (compile_options(8, nonsense="x"), "No such compile option: 'nonsense'"),
        (compile_options(8, xla_dump_to="/nowhere/that/exists"), "the compile option 'xla_dump_to' is not passed on"),
    ):
        assert text in refused(rig, with_options(options))


def test_bytes_that_are_no_program_are_refused(rig: Rig) -> None:
    assert "not StableHLO that can be read here" in refused(rig, probe(b"junk", (1,)), ONE)
    broken = Work((1,))
    broken.call("broken", None, [], [], [], exported=StableHLOCode(b"", b"", "weather").encode())
    assert "the code of computation 'broken' cannot be used: it asks 'weather'" in refused(rig, broken, ONE)


def test_code_that_takes_too_much_memory_is_refused(rig: Rig) -> None:
    codes: Any = rig.devices._codes._stablehlo
    codes._memory, known = 100, codes._memory
    try:
        said = refused(rig, raw("huge", lowered(add, (1,), [WHOLE, WHOLE]), (1,), [WHOLE, WHOLE], [WHOLE]), ONE)
    finally:
        codes._memory = known
    assert "out of memory: computation 'huge' takes" in said


# --- a cache, and other worlds -------------------------------------------------------------------------------------


def test_an_executable_is_loaded_from_the_cache_and_a_damaged_one_compiled_again(rig: Rig, tmp_path: Path) -> None:
    codes: Any = rig.devices._codes._stablehlo
    codes._cache, before = ExecutableCache(tmp_path), codes._cache
    works = [
        raw(name, lowered(lambda x: x * 11, MESH, [ROWS], [ROWS]), MESH, [ROWS], [ROWS])
        for name in ("first", "second", "third")
    ]
    try:
        for work, damaged, compilations in zip(works, (False, False, True), (1, 0, 1), strict=True):
            codes.void()
            rig.devices._codes._same.clear()
            if damaged:
                (kept,) = (tmp_path / "executables").iterdir()
                kept.write_bytes(kept.read_bytes()[:100])
            known = rig.usage()["compiled"]
            plan = ready(rig, work)
            assert rig.usage()["compiled"] == known + compilations
            (found,) = outcome(rig, plan, rig.literal(layout(ROWS), ARRAY))
            np.testing.assert_array_equal(found, ARRAY * 11)
    finally:
        codes._cache = before


def test_a_world_that_lacks_a_device_of_the_place_cannot_compile(rig: Rig) -> None:
    said = refused(rig, raw("far", lowered(lambda x: x, (1,), [WHOLE]), (1,), [], []), line(0, 8, 1))
    assert "device 8 is not in this host's world any more" in said
