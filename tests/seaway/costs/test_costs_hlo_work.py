"""What operations in HLO text compute and move, and how often loops run."""

import pytest

from seaway.costs.hlo import parse
from seaway.costs.hlo.loops import trips
from seaway.costs.hlo.work import ModuleWork


def written(*lines: str, called: str = "", root: str = "x") -> str:
    body = "\n".join(f"  {'ROOT ' if line.startswith(f'%{root} ') else ''}{line}" for line in lines)
    return f"HloModule m\n{called}\nENTRY %main () -> f32[] {{\n{body}\n}}\n"


def flops(*lines: str, called: str = "") -> float:
    module = parse(written(*lines, called=called))
    entry = module["main"]
    return ModuleWork(module).flops(entry, entry.ops["x"])


def moved(*lines: str, called: str = "", fused: bool = True) -> int:
    module = parse(written(*lines, called=called))
    entry = module["main"]
    return ModuleWork(module, fused).moved(entry, entry.ops["x"])


# --- flops ----------------------------------------------------------------------------------------------


def test_a_matrix_product_is_two_flops_for_each_pair() -> None:
    a, b = "%a = f32[64,128] parameter(0)", "%b = f32[128,32] parameter(1)"
    dot = "%x = f32[64,32] dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    assert flops(a, b, dot) == 2 * 64 * 128 * 32
    convolution = "%x = f32[64,32] convolution(%a, %b), dim_labels=bf_io->bf"
    assert flops(a, b, convolution) == 2 * 64 * 128 * 32


def test_a_batched_product_counts_each_batch() -> None:
    a, b = "%a = f32[8,64,16] parameter(0)", "%b = f32[8,16,32] parameter(1)"
    dot = "%x = f32[8,64,32] dot(%a, %b), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}"
    assert flops(a, b, dot) == 8 * 2 * 64 * 16 * 32


def test_a_batched_product_as_a_tpu_writes_it_counts_no_padding() -> None:
    # a product for each of 8 batches, written as a convolution whose window meets its own batch only
    a, b = "%a = bf16[8,64,16] parameter(0)", "%b = bf16[8,16,32] parameter(1)"
    window = "window={size=8 stride=7 pad=0_0 lhs_dilate=8}"
    convolution = f"%x = bf16[8,64,32] convolution(%a, %b), {window}, dim_labels=0bf_0io->0bf"
    assert flops(a, b, convolution) == 8 * 2 * 64 * 16 * 32


def test_padding_of_a_convolution_is_not_counted() -> None:
    a, b = "%a = f32[1,4,4,3] parameter(0)", "%b = f32[3,3,3,5] parameter(1)"
    convolution = "%x = f32[1,4,4,5] convolution(%a, %b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
    # along an axis of 4 with a kernel of 3 and padding of 1: 2 + 3 + 3 + 2 pairs
    assert flops(a, b, convolution) == 2 * (10 * 10) * 3 * 5


def test_products_inside_fusions_are_counted() -> None:
    called = """%inner (p: f32[4,8], q: f32[8,2]) -> f32[4,2] {
  %p = f32[4,8] parameter(0)
  %q = f32[8,2] parameter(1)
  %d = f32[4,2] dot(%p, %q), lhs_contracting_dims={1}
  ROOT %n = f32[4,2] negate(%d)
}
"""
    a, b = "%a = f32[4,8] parameter(0)", "%b = f32[8,2] parameter(1)"
    assert flops(a, b, "%x = f32[4,2] fusion(%a, %b), kind=kOutput, calls=%inner", called=called) == 2 * 4 * 8 * 2


# --- bytes ----------------------------------------------------------------------------------------------


def test_an_operation_reads_its_operands_and_writes_its_result() -> None:
    assert moved("%a = f32[100] parameter(0)", "%x = f32[100] add(%a, %a)") == 3 * 400


def test_operands_in_on_chip_memory_move_no_bytes() -> None:
    assert moved("%a = f32[100]{0:S(1)} parameter(0)", "%x = f32[100]{0} negate(%a)") == 400


def test_a_copy_to_the_chip_is_moved_once() -> None:
    start = "%x = (f32[100]{0:S(1)}, f32[100]{0}, u32[]{:S(2)}) copy-start(%a)"
    assert moved("%a = f32[100]{0} parameter(0)", start) == 400


SLICING = """%inner (p: f32[10,100], i: s32[]) -> f32[1,100] {
  %p = f32[10,100] parameter(0)
  %i = s32[] parameter(1)
  %z = s32[] constant(0)
  ROOT %s = f32[1,100] dynamic-slice(%p, %i, %z), dynamic_slice_sizes={1,100}
}
"""
UPDATING = """%inner (p: f32[10,100], u: f32[1,100], i: s32[]) -> f32[10,100] {
  %p = f32[10,100] parameter(0)
  %u = f32[1,100] parameter(1)
  %i = s32[] parameter(2)
  %z = s32[] constant(0)
  ROOT %s = f32[10,100] dynamic-update-slice(%p, %u, %i, %z)
}
"""


def test_a_fusion_that_slices_reads_only_the_slice() -> None:
    a, i = "%a = f32[10,100] parameter(0)", "%i = s32[] parameter(1)"
    fusion = "%x = f32[1,100] fusion(%a, %i), kind=kLoop, calls=%inner"
    assert moved(a, i, fusion, called=SLICING) == 400 + 4 + 400


def test_a_fusion_that_updates_in_place_writes_only_the_update() -> None:
    a, u, i = "%a = f32[10,100] parameter(0)", "%u = f32[1,100] parameter(1)", "%i = s32[] parameter(2)"
    fusion = "%x = f32[10,100] fusion(%a, %u, %i), kind=kLoop, calls=%inner"
    assert moved(a, u, i, fusion, called=UPDATING) == 0 + 400 + 4 + 400


def test_elementwise_operations_before_fusion_move_no_bytes() -> None:
    a = "%a = f32[100] parameter(0)"
    assert moved(a, "%x = f32[100] add(%a, %a)", fused=False) == 0
    assert moved(a, "%x = f32[] reduce(%a, %a), dimensions={0}", fused=False) == 400 + 400 + 4


# --- loops ----------------------------------------------------------------------------------------------


def loop(start: str, bound: str, step: str, direction: str = "LT", attributes: str = "") -> int | None:
    text = f"""HloModule m
%body (p: (s32[], f32[4], s32[])) -> (s32[], f32[4], s32[]) {{
  %p = (s32[], f32[4], s32[]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %c = s32[] copy(%i)
  %v = f32[4] get-tuple-element(%p), index=1
  %n = s32[] get-tuple-element(%p), index=2
  %k = s32[] constant({step})
  %j = s32[] add(%c, %k)
  ROOT %t = (s32[], f32[4], s32[]) tuple(%j, %v, %n)
}}
%condition (p: (s32[], f32[4], s32[])) -> pred[] {{
  %p = (s32[], f32[4], s32[]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %n = s32[] get-tuple-element(%p), index=2
  ROOT %r = pred[] compare(%i, %n), direction={direction}
}}
ENTRY %main (a: f32[4], q: s32[]) -> f32[4] {{
  %a = f32[4] parameter(0)
  %q = s32[] parameter(1)
  %s = s32[] constant({start})
  %e = s32[] {bound}
  %t = (s32[], f32[4], s32[]) tuple(%s, %a, %e)
  %w = (s32[], f32[4], s32[]) while(%t), condition=%condition, body=%body{attributes}
  ROOT %r = f32[4] get-tuple-element(%w), index=1
}}
"""
    module = parse(text)
    entry = module["main"]
    return trips(module, entry, entry.ops["w"], {})


@pytest.mark.parametrize(
    ("start", "end", "step", "direction", "count"),
    [
        (0, 4, 1, "LT", 4),
        (3, 1000, 1, "LT", 997),
        (0, 10, 3, "LT", 4),
        (0, 10, 1, "LE", 11),
        (7, 0, -1, "GT", 7),
        (0, 6, 2, "NE", 3),
        (5, 5, 1, "LT", 0),
        (0, 1_000_000, 1, "LT", 1_000_000),
        (0, 1_000_001, 7, "LT", 142_858),
    ],
)
def test_a_counting_loop_runs_as_often_as_its_counter_says(
    start: int, end: int, step: int, direction: str, count: int
) -> None:
    assert loop(str(start), f"constant({end})", str(step), direction) == count


def test_the_trip_count_of_the_compiler_is_used() -> None:
    stated = ', backend_config={"known_trip_count":{"n":"17"},"known_init_step":{"init":"0","step":"1"}}'
    assert loop("0", "copy(%q)", "1", attributes=stated) == 17


def test_a_loop_whose_end_is_an_argument_has_an_unknown_count() -> None:
    assert loop("0", "copy(%q)", "1") is None


def test_a_loop_that_never_ends_has_an_unknown_count() -> None:
    assert loop("0", "constant(4)", "0") is None
