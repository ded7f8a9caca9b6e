"""Lowering by example: steps, slots, the order of steps, and which slot takes over whose memory."""

import sys
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import pytest

from core.compile import Lowerings, cut, lower
from core.compile.draft import makes, reads
from core.link.packing import pack_plan
from core.model.errors import Illegal, ProgramError
from core.model.place import Place, line
from core.model.plan import Gang, Move, Plan
from core.model.program import Program, Reshard, Sharding
from core.model.validate import validate
from tests.core.build import Build, at_home, chain, hop, moe, pipeline, places, replicated

replace = msgspec.structs.replace


def lowered(program: Program, where: Sequence[Place] | None = None) -> Plan:
    validate(program)
    where = places(program) if where is None else where
    return lower(program, where, at_home(program, where), ident=1)


def steps_as_text(plan: Plan) -> list[str]:
    """Return a plan as lines of text: each step with what it reads, what it makes, and what it must follow."""
    lines = []
    for index, (step, after) in enumerate(zip(plan.steps, plan.after, strict=True)):
        ends = " -> ".join(" ".join(map(str, slots)) for slots in (reads(step), makes(step)))
        lines.append(f"{index} {step.name}: {ends}" + (f" after {' '.join(map(str, after))}" if after else ""))
    return lines


# --- steps and moves --------------------------------------------------------------------------------------


def test_a_chain_has_one_step_for_each_node() -> None:
    assert steps_as_text(lowered(chain(3))) == [
        "0 step 0: 0 -> 1",
        "1 step 1: 1 -> 2 after 0",
        "2 step 2: 2 -> 3 after 1",
    ]


def test_a_move_stands_right_behind_its_producer() -> None:
    """`slow` runs after `make` on the same devices: the output of `make` is being moved meanwhile."""
    b = Build(s=2, t=2)
    x = b.call("make", "s", [b.arg("s", 4)])
    y = b.call("slow", "s", [x])
    z = b.call("use", "t", [x])
    assert steps_as_text(lowered(b.program(y, z))) == [
        "0 make: 0 -> 1",
        "1 move to use: 1 -> 2 after 0",
        "2 slow: 1 -> 3 after 0",
        "3 use: 2 -> 4 after 1",
    ]


def test_arguments_that_lie_elsewhere_are_moved_first() -> None:
    b = Build(s=2, t=2)
    x = b.call("first", "s", [b.arg("s", 4)])
    y = b.call("second", "t", [b.arg("s", 4), x])
    assert steps_as_text(lowered(b.program(y)))[0] == "0 move to second: 1 -> 2"


def test_a_move_that_is_needed_twice_is_made_once() -> None:
    b = Build(s=2, t=2)
    x = b.call("make", "s", [b.arg("s", 4, 4, split="0.")])
    y = b.call("one", "t", [x])
    z = b.call("two", "t", [x, y])
    w = b.call("columns", "t", [x], wants=[".0"])
    plan = lowered(b.program(y, z, w))
    assert [step.name for step in plan.steps] == ["make", "move to one", "move to columns", "one", "two", "columns"]
    assert plan.slots[1].senders == (1, 2)


def test_moves_to_the_same_place_are_one_move_whatever_the_slice_is_called() -> None:
    b = Build(s=2, t=4, u=(2, 2))
    x = b.call("make", "s", [b.arg("s", 8, 1)])
    y = b.call("one", "t", [x], wants=["0."])
    z = b.call("two", "u", [x], wants=["01,"])
    plan = lowered(b.program(y, z), [line(0, 0, 2), line(0, 2, 4), line(0, 2, 4)])
    assert [step.name for step in plan.steps] == ["make", "move to one", "one", "two"]


def test_another_sharding_at_the_same_place_needs_a_gang_of_its_own() -> None:
    b = Build(s=4)
    x = b.call("rows", "s", [b.arg("s", 8, 8, split="0.")])
    y = b.call("between", "s", [x])
    z = b.call("columns", "s", [x], wants=[".0"], cost=5)
    plan = lowered(b.program(y, z))
    assert [step.name for step in plan.steps] == ["rows", "between", "reshard for columns", "columns"]
    gang = plan.steps[2]
    assert isinstance(gang, Gang)
    assert (gang.node, gang.collective, gang.temp) == (-1, True, 64)
    assert plan.codes[gang.computation].key == "reshard:float32[8, 8]:4[0;]->4[;0]"
    assert plan.slots[gang.outputs[0]].layout.sharding == Sharding(((), (0,)))


def test_splitting_a_replicated_value_needs_no_collective() -> None:
    b = Build(s=4)
    b.call("rows", "s", [b.arg("s", 8, 8)], wants=["0."])
    gang = lowered(b.program(b.output(0))).steps[0]
    assert isinstance(gang, Gang)
    assert (gang.name, gang.collective, gang.temp) == ("reshard for rows", False, 0)


def test_two_names_for_one_layout_are_one_layout() -> None:
    """Mesh 2x2 split over both axes, and mesh 4 split over its axis, put the same box on each device."""
    b = Build(s=(2, 2), t=4)
    x = b.call("f", "s", [b.arg("s", 8, 1, split="01,")])
    y = b.call("g", "t", [x], wants=["0."])
    here = line(0, 0, 4)
    assert [step.name for step in lowered(b.program(y), [here, here]).steps] == ["f", "g"]


def test_an_exchange_is_a_sparse_move_with_its_bound() -> None:
    program = moe()
    plan = lowered(program)
    sparse = [step for step in plan.steps if isinstance(step, Move)]
    assert [(step.name, step.sparse, step.node) for step in sparse] == [("to experts", True, 1), ("back", True, 3)]
    assert plan.slots[sparse[0].targets[0]].layout.shape == (16, 8)
    routed = plan.steps[0]
    assert isinstance(routed, Gang)
    assert routed.irregular


def test_an_exchange_that_nothing_reads_is_left_out() -> None:
    b = Build(s=4)
    x = b.call("f", "s", [b.arg("s", 8)])
    once = b.exchange("once", x, b.value("s", 8))
    b.exchange("twice", once, b.value("s", 8))
    assert [step.name for step in lowered(b.program(x)).steps] == ["f"]


def test_a_reshard_to_other_devices_is_a_move_and_needs_no_gang() -> None:
    b = Build(s=2, t=2)
    x = b.arg("s", 4, 4, split="0.")
    there = b.reshard("there", x, "t", ".0")
    back = b.reshard("back", there, "s")
    plan = lowered(b.program(there, back))
    assert steps_as_text(plan) == ["0 there: 0 -> 1", "1 back: 1 -> 2 after 0"]
    assert plan.codes == ()
    assert [plan.slots[slot].layout.sharding for slot in plan.results] == [Sharding(((), (0,))), Sharding()]
    assert [plan.slots[slot].keep for slot in plan.results] == [True, True]


def test_a_reshard_on_the_same_devices_is_a_gang_that_computes_nothing() -> None:
    b = Build(s=4)
    x = b.arg("s", 8, 8, split="0.")
    plan = lowered(b.program(b.reshard("columns", x, "s", ".0"), b.reshard("copy", x, "s", "0.")))
    assert steps_as_text(plan) == ["0 columns: 0 -> 1", "1 copy: 0 -> 2 after 0"]
    assert [code.key for code in plan.codes] == [
        "reshard:float32[8, 8]:4[0;]->4[;0]", "reshard:float32[8, 8]:4[0;]->4[0;]"
    ]  # fmt: skip


def test_arrays_of_one_reshard_that_come_from_the_same_devices_are_one_move() -> None:
    b = Build(s=2, t=2, u=2)
    x, y, z, w = b.arg("s", 4), b.call("make", "s", [b.arg("s", 8)]), b.arg("t", 4), b.arg("u", 4)
    b.reshard("tree", x, "u", "", y, z, w)
    plan = lowered(b.program(*[b.output(number) for number in range(4)]))
    assert steps_as_text(plan) == ["0 tree: 2 -> 4", "1 make: 1 -> 5", "2 tree: 0 5 -> 6 7 after 1", "3 tree: 3 -> 8"]
    assert plan.results == (6, 7, 4, 8)


def test_what_nothing_reads_of_a_reshard_does_not_move() -> None:
    b = Build(s=2, t=2)
    b.reshard("tree", b.arg("s", 4), "t", "", b.arg("s", 8), b.arg("s", 12))
    plan = lowered(b.program(b.output(0), b.output(2)))
    assert steps_as_text(plan) == ["0 tree: 0 2 -> 3 4"]


def test_what_a_gang_reads_of_one_maker_is_one_move() -> None:
    """What was made before has begun to move before."""
    b = Build(s=2, t=2)
    early = b.call("early", "s", [b.arg("s", 4)])
    one = b.call("late", "s", [b.arg("s", 4)], [b.value("s", 4), b.value("s", 8)])
    both = [one, b.output(1)]
    plan = lowered(b.program(b.call("reader", "t", [early, *both]), b.call("other", "t", both)))
    assert [step.name for step in plan.steps] == [
        "early", "move to reader", "late", "move to reader", "reader", "other"
    ]  # fmt: skip


def test_arguments_of_a_gang_move_one_by_one() -> None:
    """They are ready, or fail, each by itself, and another gang may read only one of them."""
    b = Build(s=2, t=2)
    x, y = b.arg("s", 4), b.arg("s", 4)
    both = b.call("both", "t", [x, y])
    plan = lowered(b.program(both, b.call("one", "t", [y])))
    assert steps_as_text(plan) == [
        "0 move to both: 0 -> 2", "1 move to both: 1 -> 3", "2 both: 2 3 -> 4 after 0 1", "3 one: 3 -> 5 after 2"
    ]  # fmt: skip


def test_a_reshard_of_several_on_the_same_devices_is_one_gang() -> None:
    b = Build(s=4)
    b.reshard("columns", b.arg("s", 8, 8, split="0."), "s", ".0", b.arg("s", 4, 4))
    plan = lowered(b.program(b.output(0)))
    assert steps_as_text(plan) == ["0 columns: 0 -> 2"]
    both = lowered(b.program(b.output(0), b.output(1)))
    assert steps_as_text(both) == ["0 columns: 0 1 -> 2 3"]
    assert [code.key for code in both.codes] == ["reshard:float32[8, 8]:4[0;]->4[;0] float32[4, 4]:4[]->4[;0]"]


def test_what_a_reshard_has_brought_is_not_brought_again() -> None:
    b = Build(s=2, t=2)
    x = b.call("make", "s", [b.arg("s", 4)])
    there = b.reshard("there", x, "t")
    plan = lowered(b.program(b.call("one", "t", [there]), b.call("two", "t", [x])))
    assert [step.name for step in plan.steps] == ["make", "there", "one", "two"]


def test_a_reshard_that_nothing_reads_is_left_out() -> None:
    b = Build(s=2, t=2)
    x = b.call("make", "s", [b.arg("s", 4)])
    b.reshard("back", b.reshard("there", x, "t"), "s")
    assert [step.name for step in lowered(b.program(x)).steps] == ["make"]


def test_a_reshard_keeps_the_array() -> None:
    b = Build(s=2)
    b.nodes.append(Reshard("cut", (b.arg("s", 4).ref,), (b.value("s", 2),)))
    with pytest.raises(ProgramError, match=r"node 'cut' \(0\): output 0: float32\[4\] cannot become float32\[2\]"):
        validate(b.program(b.output(0)))


def test_a_result_stays_where_its_maker_put_it() -> None:
    program = hop(3)
    where = places(program)
    plan = lowered(program, where)
    assert plan.slots[plan.results[0]].layout.place == where[0]


def test_pipelines_keep_their_schedule() -> None:
    """GPipe and 1F1B have the same nodes. Each stage runs them in the order in which they were traced."""
    orders = {}
    for schedule in ("gpipe", "1f1b"):
        program = pipeline(2, 3, schedule)
        where = places(program)
        plan = lowered(program, where)
        orders[schedule] = [s.name for s in plan.steps if isinstance(s, Gang) and s.place == where[0]]
    assert orders["gpipe"] == ["F0.0", "F0.1", "F0.2", "B0.0", "B0.1", "B0.2", "U0"]
    assert orders["1f1b"] == ["F0.0", "F0.1", "B0.0", "F0.2", "B0.1", "B0.2", "U0"]


# --- what hosts compile -----------------------------------------------------------------------------------


def test_a_computation_is_compiled_once_for_each_place() -> None:
    plan = lowered(hop(6, slices=2))
    assert [(code.key, code.step) for code in plan.codes] == [("key-step", 0), ("key-step", 2)]
    for step in plan.steps:
        if isinstance(step, Gang):
            model = plan.steps[plan.codes[step.computation].step]
            assert isinstance(model, Gang)
            assert step.place == model.place


def test_donation_is_part_of_the_compiled_code() -> None:
    b = Build(s=4)
    x = b.call("f", "s", [b.arg("s", 8)])
    y = b.call("f", "s", [x], donate=(0,))
    assert len(lowered(b.program(y)).codes) == 2


def test_a_gang_without_values_has_a_place_too() -> None:
    b = Build(s=4, t=4)
    b.call("f", "s", [b.arg("s", 8)])
    bare = replace(b.program(b.output(0)).nodes[0], inputs=(), expects=(), outputs=())
    program = replace(b.program(b.arg("s", 8)), nodes=(bare, replace(bare, slice=1)))
    assert len(lowered(program).codes) == 2


# --- memory -----------------------------------------------------------------------------------------------


def test_an_output_takes_over_donated_memory() -> None:
    plan = lowered(chain(3, donate=True))
    assert [slot.takes for slot in plan.slots] == [-1, 0, 1, 2]
    assert [step.donated for step in plan.steps if isinstance(step, Gang)] == [(0,), (1,), (2,)]


def test_memory_is_taken_over_once_and_first_by_an_output_of_the_same_type() -> None:
    b = Build(s=4)
    x = b.arg("s", 8, 8, split="0.", donate=True)
    turned, same, other = (b.value("s", 8, 8, split=split) for split in (".0", "0.", ".0"))
    b.call("f", "s", [x], [turned, same, other], donate=(0,))
    plan = lowered(b.program(*(b.output(number) for number in range(3))))
    assert [slot.takes for slot in plan.slots] == [-1, -1, 0, -1]


def test_a_donation_that_no_output_fits_only_frees_memory() -> None:
    b = Build(s=4)
    b.call("sum", "s", [b.arg("s", 8, donate=True)], [b.value("s")], donate=(0,))
    plan = lowered(b.program(b.output(0)))
    assert (plan.slots[0].last, plan.slots[1].takes) == (0, -1)


def test_when_a_donated_input_was_moved_its_copy_is_donated() -> None:
    b = Build(s=2, t=2)
    x = b.call("make", "s", [b.arg("s", 4)])
    y = b.call("far", "t", [x], donate=(0,))
    plan = lowered(b.program(y))
    far = plan.steps[-1]
    assert isinstance(far, Gang)
    assert far.donated == far.inputs == (2,)
    assert plan.slots[3].takes == 2


def test_an_argument_can_be_a_result() -> None:
    b = Build(s=4)
    plan = lowered(b.program(b.arg("s", 8)))
    assert (plan.steps, plan.results, plan.slots[0].keep) == ((), (0,), True)


# --- what the hosts of an island are sent -----------------------------------------------------------------


def test_an_island_is_sent_its_own_steps_under_the_same_indices() -> None:
    program = hop(4)
    plan = lowered(program, places(program, islands=2))
    for island in (0, 1):
        part = cut(plan, island)
        assert (len(part.steps), len(part.slots)) == (len(plan.steps), len(plan.slots))
        assert part.after == ()
        for step, whole in zip(part.steps, plan.steps, strict=True):
            foreign = isinstance(whole, Gang) and whole.place.island != island
            assert (step == whole) != foreign
    bystander = cut(plan, 2)
    assert all(isinstance(step, Gang) and step.place.size == 0 for step in bystander.steps)
    assert all(slot.nbytes == 0 and slot.layout.place.size == 0 for slot in bystander.slots)


def test_work_and_size_do_not_grow_with_the_number_of_devices() -> None:
    """The work is counted in function calls, because times depend on the machine."""
    sizes, calls = [], []
    for devices in (8, 100_000):
        program = replicated(pipeline(4, 20), devices)
        where = places(program)
        calls.append(calls_of(partial(lowered, program, where)))
        sizes.append(len(msgspec.msgpack.encode(pack_plan(cut(lowered(program, where), 0)))))
    assert sizes[1] <= 1.01 * sizes[0]
    assert calls[1] <= 1.01 * calls[0]


def calls_of(action: Callable[[], object]) -> int:
    seen = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal seen
        seen += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return seen


# --- the cache --------------------------------------------------------------------------------------------


def test_the_second_lowering_is_a_cache_look_up() -> None:
    cache, program = Lowerings(), chain(2)
    where = places(program)
    first = cache.lower(program, where, at_home(program, where))
    assert cache.lower(program, where, at_home(program, where)) is first
    elsewhere = [line(0, 100, 4)]
    assert cache.lower(program, elsewhere, at_home(program, elsewhere)).id == 1
    assert cache.lower(program, where, at_home(program, elsewhere)).id == 2


def test_plans_are_forgotten_with_the_programs_they_are_made_from() -> None:
    cache, program, other = Lowerings(), chain(2), chain(3)
    spots = [[line(0, 0, 4)], [line(1, 100, 4)], [line(1, 104, 4)]]
    for spot in spots:
        cache.lower(program, spot, at_home(program, spot))
    cache.lower(other, spots[0], at_home(other, spots[0]))
    cache.forget_place(line(1, 100, 4))
    assert cache.forgotten() == (1,)
    cache.forget_program(program)
    assert cache.forgotten() == (0, 2)
    cache.forget_program(other)
    assert (cache.forgotten(), len(cache)) == ((3,), 0)
    assert cache.lower(program, spots[0], at_home(program, spots[0])).id == 4  # ids are never used again


def test_the_least_recently_used_plan_is_dropped_first() -> None:
    cache, program = Lowerings(capacity=2), chain(1)
    spots = [[line(0, 4 * number, 4)] for number in range(3)]
    for number in (0, 1, 0, 2):
        cache.lower(program, spots[number], at_home(program, spots[number]))
    assert cache.forgotten() == (1,)


# --- what does not fit ------------------------------------------------------------------------------------


def test_arguments_that_do_not_fit_are_refused() -> None:
    program = chain(1)
    where = places(program)
    wrong = replace(at_home(program, where)[0], dtype="int32")
    with pytest.raises(ProgramError, match=r"argument 0 is float32\[4\]; int32\[4\] was given"):
        lower(program, where, [wrong], ident=1)
    with pytest.raises(ProgramError, match="takes 1 arguments; 0"):
        lower(program, where, [], ident=1)
    with pytest.raises(Illegal, match="of 4 devices bound to 5"):
        lower(program, [line(0, 0, 5)], at_home(program, where), ident=1)


# --- costs by kind ----------------------------------------------------------------------------------------------------


def test_a_gang_costs_what_its_computation_costs_on_the_kind_of_its_island() -> None:
    program = chain(1)
    computation = replace(program.computations[0], costs=(("new", 3), ("old", 7)))
    program = replace(program, computations=(computation,))
    validate(program)

    def cost(kinds: list[str]) -> list[int]:
        where = [line(1, 0, program.slices[0].devices)]
        steps = lower(program, where, at_home(program, where), ident=0, kind_of=kinds.__getitem__).steps
        return [step.cost for step in steps if isinstance(step, Gang)]

    assert cost(["new", "old"]) == [7]
    assert cost(["old", "new"]) == [3]
    with pytest.raises(ProgramError, match="has a time on new, old, and its slice is on an island of kind 'cpu'"):
        cost(["new", "cpu"])
    wrong = replace(computation, costs=(("new", -1),))
    with pytest.raises(ProgramError, match="cost -1 is not from 0"):
        validate(replace(program, computations=(wrong,)))


def test_a_computation_of_one_cost_is_encoded_as_before_there_were_kinds() -> None:
    """Simulated messages take the time of their bytes."""
    assert b"costs" not in msgspec.msgpack.encode(chain(1).computations[0])
