"""The cost of a whole computation: loops, branches, collectives in all their forms, and what runs beside them."""

from pathlib import Path

import pytest

from seaway.costs.hlo import HloCollective, Rates, Tally, parse, tally

REAL = Path(__file__).with_name("hlo") / "async_v5e.txt"
RATES = Rates(flops=1e12, bandwidth=1e9, clock=1e9)  # a flop is 1 fs, a byte and a cycle are 1 ns
ADD = """%add (l: f32[], r: f32[]) -> f32[] {
  %l = f32[] parameter(0)
  %r = f32[] parameter(1)
  ROOT %s = f32[] add(%l, %r)
}
"""


def tally_of(body: str, called: str = "", devices: int = 8, *, fused: bool = True) -> Tally:
    header = f"HloModule m, is_scheduled=true, num_partitions={devices}"
    text = f"{header}\n{ADD}{called}\nENTRY %main () -> f32[] {{\n{body}}}\n"
    return tally(parse(text), RATES, fused=fused)


def cycles(count: int) -> str:
    return f'backend_config={{"window_config":{{"estimated_cycles":"{count}"}}}}'


# --- time -----------------------------------------------------------------------------------------------

PRODUCT = """%product (p: f32[{n},{n}], q: f32[{n},{n}]) -> f32[{n},{n}] {{
  %p = f32[{n},{n}] parameter(0)
  %q = f32[{n},{n}] parameter(1)
  ROOT %d = f32[{n},{n}] dot(%p, %q), lhs_contracting_dims={{1}}
}}
"""


def test_a_compute_bound_product_costs_the_compilers_cycles() -> None:
    n = 8192  # 1.1e12 flops: a second; 3 matrices of 268 MB: 0.8 s
    found = tally_of(
        f"  %a = f32[{n},{n}] parameter(0)\n"
        f"  ROOT %x = f32[{n},{n}] fusion(%a, %a), kind=kOutput, calls=%product, {cycles(1_300_000_000)}\n",
        PRODUCT.format(n=n),
    )
    assert found.cycles == found.blend == pytest.approx(1.3e9)
    assert found.roofline == pytest.approx(2 * n**3 / 1e12 * 1e9)
    assert found.flops == 2 * n**3


def test_a_memory_bound_operation_costs_its_bytes_whatever_the_compiler_says() -> None:
    found = tally_of(f"  %a = f32[1000] parameter(0)\n  ROOT %x = f32[1000] negate(%a), {cycles(50_000)}\n")
    assert found.cycles == pytest.approx(50_000)
    assert found.blend == found.roofline == pytest.approx(8_000)


def test_the_vector_unit_bounds_operations_that_move_little() -> None:
    body = "  %a = f32[1000]{0:S(1)} parameter(0)\n  ROOT %x = f32[1000]{0:S(1)} exponential(%a)\n"
    text = f"HloModule m\nENTRY %main () -> f32[] {{\n{body}}}\n"
    assert tally(parse(text), RATES).blend == 0
    assert tally(parse(text), RATES._replace(vector=1e9)).blend == 8_000  # an exponential is about 8 plain operations


def test_a_copy_that_starts_early_costs_only_the_time_that_is_waited_for_it() -> None:
    def waiting(work: int) -> float:
        return tally_of(
            "  %a = f32[1000] parameter(0)\n"
            f"  %b = f32[{work}] parameter(1)\n"
            "  %s = (f32[1000]{0:S(1)}, f32[1000], u32[]{:S(2)}) copy-start(%a)\n"
            f"  %n = f32[{work}] negate(%b)\n"
            "  %c = f32[1000]{0:S(1)} copy-done(%s)\n"
            "  ROOT %x = f32[1000]{0:S(1)} negate(%c)\n"
        ).blend

    assert waiting(100) == pytest.approx(4_000)  # 800 ns of work beside a copy of 4 us
    assert waiting(1000) == pytest.approx(8_000)  # the copy is hidden


LOOP = """%body (p: (s32[], f32[1000])) -> (s32[], f32[1000]) {
  %p = (s32[], f32[1000]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %v = f32[1000] get-tuple-element(%p), index=1
  %one = s32[]{:S(2)} constant(1)
  %j = s32[]{:S(2)} add(%one, %one)
  %n = f32[1000] negate(%v)
  %r = f32[1000] all-reduce(%n), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add
  ROOT %t = (s32[], f32[1000]) tuple(%j, %r)
}
%condition (p: (s32[], f32[1000])) -> pred[] {
  %p = (s32[], f32[1000]) parameter(0)
  ROOT %c = pred[] constant(true)
}
"""


def test_the_body_of_a_loop_counts_as_often_as_it_runs() -> None:
    while_ = "while(%t), condition=%condition, body=%body"
    body = (
        "  %z = s32[] constant(0)\n  %a = f32[1000] parameter(0)\n  %t = (s32[], f32[1000]) tuple(%z, %a)\n"
        f"  ROOT %w = (s32[], f32[1000]) {while_}, "
    )
    found = tally_of(body + 'backend_config={"known_trip_count":{"n":"5"}}\n', LOOP)
    assert found.blend == pytest.approx(5 * 8_000)
    assert found.once_roofline == pytest.approx(8_000)
    assert found.collectives() == (HloCollective("all-reduce", 4000, ((4, 1),), 4, count=5),)
    assert found.unknown_loops == ()

    unknown = tally_of(body + "metadata={}\n", LOOP)
    assert unknown.unknown_loops == ("w",)
    assert unknown.blend == pytest.approx(8_000)


def test_the_costliest_of_several_branches_counts() -> None:
    branches = "".join(
        f"%{name} (p: f32[{size}]) -> f32[] {{\n"
        f"  %p = f32[{size}] parameter(0)\n  ROOT %r = f32[{size}] negate(%p)\n}}\n"
        for name, size in (("short", 10), ("long", 1000))
    )
    found = tally_of(
        "  %c = s32[] parameter(0)\n  %a = f32[10] parameter(1)\n  %b = f32[1000] parameter(2)\n"
        "  ROOT %x = f32[] conditional(%c, %a, %b), branch_computations={%short, %long}\n",
        branches,
    )
    assert found.blend == pytest.approx(8_000)


def test_an_unknown_call_is_named() -> None:
    found = tally_of('  %a = f32[10] parameter(0)\n  ROOT %x = f32[10] custom-call(%a), custom_call_target="mine"\n')
    assert found.silent == ("mine",)


# --- collectives ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "exchange"),
    [
        ("f32[100] all-reduce(%a), replica_groups={}, to_apply=%add", HloCollective("all-reduce", 400, (), 8)),
        (
            "f32[400] all-gather(%a), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}",
            HloCollective("all-gather", 400, ((4, 1),), 4),
        ),
        (
            "f32[25] reduce-scatter(%a), replica_groups=[2,4]<=[4,2]T(1,0), to_apply=%add",
            HloCollective("reduce-scatter", 400, ((4, 2),), 4),
        ),
        ("f32[100] all-to-all(%a), replica_groups=[1,8]<=[8]", HloCollective("all-to-all", 400, (), 8)),
        (
            "f32[100] collective-permute(%a), source_target_pairs={{0,2},{2,0},{1,3},{3,1},{4,6},{6,4},{5,7},{7,5}}",
            HloCollective("permute", 400, ((2, 2),), 2),
        ),
        (
            "(f32[100], f32[100]) all-reduce(%a, %a), replica_groups=mesh['a'=4,'b'=2] {'a'}, to_apply=%add",
            HloCollective("all-reduce", 800, ((4, 2),), 4),
        ),
    ],
)
def test_each_kind_of_collective_has_its_bytes_and_groups(line: str, exchange: HloCollective) -> None:
    assert tally_of(f"  %a = f32[100] parameter(0)\n  ROOT %x = {line}\n").collectives() == (exchange,)


def test_groups_of_one_exchange_nothing() -> None:
    found = tally_of(
        "  %a = f32[9] parameter(0)\n  ROOT %x = f32[9] all-reduce(%a), replica_groups=[8,1]<=[8], to_apply=%add\n"
    )
    assert found.collectives() == ()


def test_a_collective_with_start_and_done_counts_once_with_the_work_between() -> None:
    found = tally_of(
        "  %a = f32[1000] parameter(0)\n"
        "  %s = (f32[1000], f32[8000]) all-gather-start(%a), replica_groups={}, dimensions={0}\n"
        "  %w = f32[1000] negate(%a)\n"
        "  ROOT %d = f32[8000] all-gather-done(%s)\n"
    )
    assert found.collectives() == (HloCollective("all-gather", 4000, (), 8, hidden=8_000),)
    assert found.blend == pytest.approx(8_000)


def test_a_nanosecond_of_work_hides_one_nanosecond_of_collectives() -> None:
    """Collectives share the links: while two are under way, each hides behind half of the work."""
    found = tally_of(
        "  %a = f32[1000] parameter(0)\n"
        "  %b = f32[500] parameter(1)\n"
        "  %s = (f32[1000], f32[8000]) all-gather-start(%a), replica_groups={}, dimensions={0}\n"
        "  %w = f32[1000] negate(%a)\n"
        "  %t = (f32[500], f32[4000]) all-gather-start(%b), replica_groups={}, dimensions={0}\n"
        "  %v = f32[1000] negate(%a)\n"
        "  %d = f32[8000] all-gather-done(%s)\n"
        "  %u = f32[500] negate(%b)\n"
        "  ROOT %e = f32[4000] all-gather-done(%t)\n"
    )
    long, short = found.collectives()
    assert (long.nbytes, long.hidden) == (4000, 8_000 + 8_000 // 2)
    assert (short.nbytes, short.hidden) == (2000, 8_000 // 2 + 4_000)
    assert long.hidden + short.hidden == found.blend


def test_a_collective_that_ends_in_another_computation_counts_too() -> None:
    found = tally_of(
        "  %a = f32[1000] parameter(0)\n"
        "  %s = (f32[1000], f32[8000]) all-gather-start(%a), replica_groups={}, dimensions={0}\n"
        "  ROOT %w = f32[1000] negate(%a)\n"
    )
    assert found.collectives() == (HloCollective("all-gather", 4000, (), 8, hidden=8_000),)


WRAPPED = """%wrapped (p: f32[1000]) -> f32[125] {
  %p = f32[1000] parameter(0)
  ROOT %r = f32[125] reduce-scatter(%p), replica_groups={}, to_apply=%add
}
"""


@pytest.mark.parametrize(("start", "done"), [("async-start", "async-done"), ("call-start", "call-done")])
def test_a_collective_that_starts_in_a_computation_of_its_own_counts_too(start: str, done: str) -> None:
    role = "calls" if start == "async-start" else "to_apply"
    found = tally_of(
        "  %a = f32[1000] parameter(0)\n"
        f"  %s = ((f32[1000]), f32[125], u32[]) {start}(%a), {role}=%wrapped\n"
        "  %w = f32[1000] negate(%a)\n"
        f"  ROOT %d = f32[125] {done}(%s)\n",
        WRAPPED,
    )
    assert found.collectives() == (HloCollective("reduce-scatter", 4000, (), 8, hidden=8_000),)


def test_a_fusion_of_an_all_reduce_and_a_slice_is_a_reduce_scatter() -> None:
    fused = """%scatter (p: f32[1000], i: s32[]) -> f32[125] {
  %p = f32[1000] parameter(0)
  %i = s32[] parameter(1)
  %r = f32[1000] all-reduce(%p), replica_groups={}, to_apply=%add
  ROOT %s = f32[125] dynamic-slice(%r, %i), dynamic_slice_sizes={125}
}
"""
    found = tally_of(
        "  %a = f32[1000] parameter(0)\n  %i = s32[] parameter(1)\n"
        "  ROOT %x = f32[125] fusion(%a, %i), kind=kCustom, calls=%scatter\n",
        fused,
    )
    assert found.collectives() == (HloCollective("reduce-scatter", 4000, (), 8),)


def test_reduce_scatters_are_recognised_before_a_compiler_makes_them() -> None:
    body = (
        "  %a = f32[1000] parameter(0)\n  %i = s32[] parameter(1)\n"
        "  %r = f32[1000] all-reduce(%a), replica_groups={}, to_apply=%add\n"
        "  ROOT %x = f32[125] dynamic-slice(%r, %i), dynamic_slice_sizes={125}\n"
    )
    assert tally_of(body, fused=False).collectives()[0].kind == "reduce-scatter"
    assert tally_of(body).collectives()[0].kind == "all-reduce"


def test_a_real_chain_of_fusions_is_one_all_gather_beside_its_product() -> None:
    """Two products a layer, three layers, 32 chips of a v5e. Each layer gathers both weights, and the second gather
    runs inside the first product, of 37,682 cycles."""
    found = tally(parse(REAL.read_text()), Rates(flops=197e12, bandwidth=819e9, clock=1.5e9))
    weights = 2048 * 8192 // 32 * 2  # bytes of a device's part of either
    assert found.collectives() == (
        HloCollective("all-gather", weights, ((8, 4),), 8, count=3),
        HloCollective("all-gather", weights, ((8, 4),), 8, count=3, hidden=round(37_682 / 1.5)),
        HloCollective("all-reduce", 512 * 2048 * 2, ((4, 1),), 4, count=3),
        HloCollective("all-reduce", 2, ((8, 4),), 8, count=1),
    )
    assert found.flops == 3 * 2 * (2 * 512 * 2048 * 2048)
    assert found.unknown_loops == ()
