"""The rows of a plan's steps say what the plan says of them."""

from hypothesis import given

from core.compile import Lowerings
from core.controller.plan_rows import PlanRows
from core.model import Atoms, Layout, Place, Program, device_spans
from tests.core.compile.test_lowering_laws import cases
from tests.laws import examples


@examples(40)
@given(cases())
def test_each_step_lists_the_results_that_it_makes(
    case: tuple[Program, list[Place], list[Layout]],
) -> None:
    program, places, args = case
    plan = Lowerings().lower(program, tuple(places), tuple(args))
    rows = PlanRows(plan, Atoms(), device_spans)
    for at, row in enumerate(rows.steps):
        assert row.results == tuple(slot for slot in plan.results if plan.slots[slot].maker == at)
