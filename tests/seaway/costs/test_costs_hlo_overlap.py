"""What a schedule hides of collectives: closed forms for graphs, loops and barriers, and the bounds of any schedule."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaway.costs.hlo import HloCollective, Rates, parse, tally
from seaway.costs.hlo.overlap import ROUNDS, OpTask, Work, schedule
from tests.laws import examples

RATES = Rates(flops=1e12, bandwidth=1e18, clock=1e9)  # only products take time
PRODUCT = 2 * 1000**3 / 1e12 * 1e9  # nanoseconds of a product of 1000
MATRIX = "f32[1000,1000]"
ADD = """%add (l: f32[], r: f32[]) -> f32[] {
  %l = f32[] parameter(0)
  %r = f32[] parameter(1)
  ROOT %s = f32[] add(%l, %r)
}
"""
TIMES = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
REDUCE = "replica_groups=[1,8]<=[8], to_apply=%add"


def hidden(body: str, called: str = "", takes: float = PRODUCT / 2) -> list[tuple[int, float]]:
    """(count, nanoseconds) of the collectives in text from before fusion, when each takes that long."""
    header = "HloModule m, num_partitions=8"
    text = f"{header}\n{ADD}{called}\nENTRY %main () -> {MATRIX} {{\n{body}}}\n"

    def links(one: HloCollective) -> float:
        return takes

    found = tally(parse(text), RATES, fused=False, links=links).collectives()
    return [(one.count, one.hidden) for one in found]


@pytest.mark.parametrize(("takes", "hides"), [(PRODUCT / 2, PRODUCT / 2), (3 * PRODUCT, PRODUCT)])
def test_a_collective_hides_behind_what_neither_feeds_it_nor_waits_for_it(takes: float, hides: float) -> None:
    body = (
        f"  %a = {MATRIX} parameter(0)\n  %r = {MATRIX} all-reduce(%a), {REDUCE}\n"
        f"  %d = {MATRIX} dot(%a, %a), {TIMES}\n  ROOT %s = {MATRIX} add(%r, %d)\n"
    )
    assert hidden(body, takes=takes) == [(1, hides)]


def test_nothing_hides_in_a_chain() -> None:
    body = (
        f"  %a = {MATRIX} parameter(0)\n  %d = {MATRIX} dot(%a, %a), {TIMES}\n"
        f"  %r = {MATRIX} all-reduce(%d), {REDUCE}\n  ROOT %e = {MATRIX} dot(%r, %r), {TIMES}\n"
    )
    assert hidden(body) == [(1, 0)]


def loop(rounds: int, body: str) -> tuple[str, str]:
    """An entry and computations whose loop runs `body` on `%i`, `%x` and `%w`, which makes `%y`."""
    state = f"(s32[], {MATRIX}, {MATRIX})"
    called = f"""%body (p: {state}) -> {state} {{
  %p = {state} parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = {MATRIX} get-tuple-element(%p), index=1
  %w = {MATRIX} get-tuple-element(%p), index=2
{body}
  ROOT %t = {state} tuple(%i, %y, %w)
}}
%cond (q: {state}) -> pred[] {{
  %q = {state} parameter(0)
  ROOT %c = pred[] constant(true)
}}
"""
    entry = (
        f"  %a = {MATRIX} parameter(0)\n  %n = s32[] constant(0)\n  %s = {state} tuple(%n, %a, %a)\n"
        f"  %l = {state} while(%s), condition=%cond, body=%body, "
        f'backend_config={{"known_trip_count":{{"n":"{rounds}"}}}}\n'
        f"  ROOT %e = {MATRIX} get-tuple-element(%l), index=1\n"
    )
    return entry, called


GATHERED = f"  %g = {MATRIX} all-reduce(%w), {REDUCE}\n  %y = {MATRIX} dot(%x, %g), {TIMES}"


@pytest.mark.parametrize("rounds", [1, 3, ROUNDS, 100])
def test_what_a_round_gathers_hides_behind_the_round_before(rounds: int) -> None:
    """All rounds but the first of those that are scheduled, whose average stands for all."""
    scheduled = min(rounds, ROUNDS)
    entry, called = loop(rounds, GATHERED)
    assert hidden(entry, called) == [(rounds, round(PRODUCT / 2 * (scheduled - 1) / scheduled))]


def test_what_a_round_makes_of_the_round_before_does_not_hide() -> None:
    entry, called = loop(5, f"  %g = {MATRIX} all-reduce(%x), {REDUCE}\n  %y = {MATRIX} dot(%g, %w), {TIMES}")
    assert hidden(entry, called) == [(5, 0)]


def test_a_barrier_makes_each_element_wait_for_all() -> None:
    pair = f"({MATRIX}, {MATRIX})"
    barred = (
        f"  %b = {pair} tuple(%x, %w)\n  %o = {pair} opt-barrier(%b)\n"
        f"  %v = {MATRIX} get-tuple-element(%o), index=1\n" + GATHERED.replace("%w", "%v")
    )
    assert hidden(*loop(4, GATHERED)) == [(4, round(PRODUCT / 2 * 3 / 4))]
    assert hidden(*loop(4, barred)) == [(4, 0)]


def test_nothing_runs_beside_a_loop() -> None:
    entry, called = loop(4, f"  %y = {MATRIX} dot(%x, %w), {TIMES}")
    beside = f"  %r = {MATRIX} all-reduce(%a), {REDUCE}\n  ROOT %z = {MATRIX} add(%r, %e)\n"
    assert hidden(entry.replace("ROOT %e", "%e") + beside, called) == [(1, 0)]


@st.composite
def graphs(draw: st.DrawFn, edges: bool = True) -> list[OpTask]:
    found = []
    for number in range(draw(st.integers(1, 12))):
        time = float(draw(st.integers(0, 5)))
        kind = draw(st.sampled_from(["compute", "links", "alone"] if edges else ["compute", "links"]))
        works: dict[str, Any] = {
            "compute": Work(time), "links": Work(links=time), "alone": Work(time, alone=True),
        }  # fmt: skip
        after = draw(st.frozensets(st.integers(0, number - 1), max_size=3)) if edges and number else frozenset()
        found.append(OpTask(works[kind], after))
    return found


@given(graphs())
@examples(200)
def test_a_schedule_takes_no_less_than_either_resource_and_hides_no_more_than_it_exchanges(tasks: list[OpTask]) -> None:
    compute, links = (sum(task.work[at] for task in tasks) for at in (0, 1))
    beside = schedule(tasks)
    assert all(0 < time <= tasks[number].work.links for number, time in beside.items())
    assert max(compute, links) <= compute + links - sum(beside.values()) <= compute + links


@given(graphs(edges=False))
@examples(100)
def test_without_dependencies_the_busier_resource_hides_the_other(tasks: list[OpTask]) -> None:
    compute, links = (sum(task.work[at] for task in tasks) for at in (0, 1))
    assert compute + links - sum(schedule(tasks).values()) == max(compute, links)
