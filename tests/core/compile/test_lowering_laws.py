"""Laws of every plan, checked by brute force on random programs."""

from collections import Counter
from itertools import count

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from core.compile import cut, lower
from core.model.place import Grid, Place, device_spans, line
from core.model.plan import Gang, Layout, Move, Plan
from core.model.program import Arg, Node, Out, Program, Ref, Reshard, Sharding
from core.model.resharding import canonical, shard_bytes
from core.model.validate import validate
from tests.core.build import Build
from tests.laws import examples

SPOTS = [line(0, 0, 4), line(0, 0, 2), line(0, 2, 2), Place(0, (Grid(0, (2,), (3,)),)), line(1, 4, 4), line(1, 6, 2)]
SPLITS = ["", "0.", ".0"]
Case = tuple[Program, list[Place], list[Layout]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a program over slices that overlap, with arguments in any layouts."""
    spots = draw(st.lists(st.sampled_from(SPOTS), min_size=1, max_size=4))
    names = [f"s{number}" for number in range(len(spots))]
    b = Build("drawn", **{name: spot.size for name, spot in zip(names, spots, strict=True)})
    live = [b.arg(draw(st.sampled_from(names)), 8, 8, donate=draw(st.booleans())) for _ in range(3)]
    for number in range(draw(st.integers(1, 10))):
        where = draw(st.sampled_from(names))
        if draw(st.integers(0, 9)) == 0:
            live.append(b.exchange(f"x{number}", draw(st.sampled_from(live)), b.value(where, 8, 8)))
            continue
        if draw(st.integers(0, 5)) == 0:
            several = draw(st.lists(st.sampled_from(live), min_size=1, max_size=3))
            b.reshard(f"r{number}", several[0], where, draw(st.sampled_from(SPLITS)), *several[1:])
            live += [b.output(index) for index in range(len(several))]
            continue
        inputs = draw(st.lists(st.sampled_from(live), min_size=1, max_size=3))
        splits = draw(st.lists(st.sampled_from(SPLITS), min_size=1, max_size=2))
        outputs = [b.value(where, 8, 8, split=split) for split in splits]
        gone = [
            index
            for index, each in enumerate(inputs)
            if draw(st.integers(0, 3)) == 0
            and inputs.count(each) == 1
            and not (isinstance(each.ref, Arg) and each.ref.index not in b.given_up)
        ]
        b.call(
            f"f{len(inputs)}.{len(outputs)}",
            where,
            inputs,
            outputs,
            node=f"n{number}",
            wants=[draw(st.sampled_from(SPLITS)) for _ in inputs],
            donate=gone,
            irregular=draw(st.integers(0, 9)) == 0,
        )
        live = [each for each in live if each not in [inputs[index] for index in gone]]
        live += [b.output(index) for index in range(len(outputs))]
        if not live:
            live.append(b.arg(where, 8, 8))
    program = b.program(*draw(st.lists(st.sampled_from(live), min_size=1, max_size=3)))
    validate(program)
    lies = [
        Layout((8, 8), "float32", spot, (spot.size,), Sharding(draw(st.sampled_from([(), ((0,), ())]))))
        for spot in draw(st.lists(st.sampled_from(SPOTS), min_size=len(program.args), max_size=len(program.args)))
    ]
    return program, spots, lies


def steps_before(plan: Plan) -> list[set[int]]:
    """Return, for each step, all steps that must have entered before it, by brute force."""
    found: list[set[int]] = []
    for after in plan.after:
        found.append(set(after).union(*(found[earlier] for earlier in after)))
    return found


def ends(step: Gang | Move) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (step.inputs, step.outputs) if isinstance(step, Gang) else (step.sources, step.targets)


def on(step: Gang) -> set[int]:
    return set(step.place.devices())


def is_the_same_twice(case: Case, plan: Plan) -> None:
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(case[0]), type=Program)
    assert msgspec.msgpack.encode(lower(again, *case[1:], ident=1)) == msgspec.msgpack.encode(plan)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=Plan) == plan


def has_a_sound_and_minimal_order(case: Case, plan: Plan) -> None:
    """`after` points back, implies the traced order on each device and all data flow, and has no superfluous edge."""
    before = steps_before(plan)
    traced: dict[int, int] = {}
    for index, step in enumerate(plan.steps):
        assert all(earlier < index for earlier in plan.after[index])
        assert all(plan.slots[slot].maker in before[index] | {-1} for slot in ends(step)[0])
        others = [before[earlier] for earlier in plan.after[index]]
        assert not any(earlier in other for earlier in plan.after[index] for other in others)
        if isinstance(step, Gang):
            for earlier in range(index):
                other = plan.steps[earlier]
                if isinstance(other, Gang) and on(other) & on(step):
                    assert earlier in before[index]
            if step.node >= 0:
                assert all(traced.get(device, -1) < step.node for device in on(step))
                traced.update(dict.fromkeys(on(step), step.node))


def computes_what_its_program_says(case: Case, plan: Plan) -> None:
    program = case[0]
    names: dict[object, int] = {}
    fresh = count()

    def name(*what: object) -> int:
        return names.setdefault(what, next(fresh))

    made: dict[Ref | tuple[int, int], int] = {Arg(index): name("arg", index) for index in range(len(program.args))}

    def find(ref: Ref) -> int:
        return made[ref] if isinstance(ref, Arg) else made[ref.node, ref.output]

    for index, node in enumerate(program.nodes):
        if isinstance(node, Node):
            inputs = tuple(made[ref] for ref in node.inputs)
            key = program.computations[node.computation].key
            for number in range(len(node.outputs)):
                made[Out(index, number)] = name(key, inputs, number)
        elif isinstance(node, Reshard):
            made.update({Out(index, number): made[ref] for number, ref in enumerate(node.inputs)})
        else:
            made[Out(index)] = name("exchange", made[node.input])

    held = {slot: name("arg", slot) for slot in range(len(program.args))}
    for step in plan.steps:
        if isinstance(step, Move):
            sent = [held[slot] for slot in step.sources]
            held.update(
                zip(step.targets, [name("exchange", each) for each in sent] if step.sparse else sent, strict=True)
            )
            continue
        code = plan.codes[step.computation]
        inputs = tuple(held[slot] for slot in step.inputs)
        if step.node < 0 or isinstance(program.nodes[step.node], Reshard):
            outputs = list(inputs)
        else:
            outputs = [name(code.key, inputs, number) for number in range(len(step.outputs))]
        held.update(zip(step.outputs, outputs, strict=True))
        for slot in step.donated:  # a later read would fail
            del held[slot]
    assert [held[slot] for slot in plan.results] == [made[ref] for ref in program.results]


def gives_readers_the_layouts_that_they_want(case: Case, plan: Plan) -> None:
    program, where, _ = case
    for step in plan.steps:
        if isinstance(step, Move):
            ((source,), (target,)) = ({plan.slots[slot].layout.place for slot in end} for end in ends(step))
            assert source != target or step.sparse
            continue
        assert all(plan.slots[slot].layout.place == step.place for slot in (*step.inputs, *step.outputs))
        code = plan.codes[step.computation]
        node = program.nodes[step.node] if step.node >= 0 else None
        if isinstance(node, Node):
            for slot, value in zip(step.inputs, node.expects, strict=True):
                mesh = program.slices[value.slice].mesh_shape
                wanted = Layout(value.shape, value.dtype, where[value.slice], mesh, value.sharding)
                assert canonical(plan.slots[slot].layout) == canonical(wanted)
        model = plan.steps[code.step]
        assert isinstance(model, Gang)
        assert model.place == step.place
        for mine, its in zip((*step.inputs, *step.outputs), (*model.inputs, *model.outputs), strict=True):
            assert canonical(plan.slots[mine].layout) == canonical(plan.slots[its].layout)
    done = [
        (source, canonical(plan.slots[target].layout))
        for step in plan.steps
        if isinstance(step, Move) and isinstance(program.nodes[step.node], Node)
        for source, target in zip(*ends(step), strict=True)
    ]
    assert len(set(done)) == len(done)
    for index, node in enumerate(program.nodes):
        if isinstance(node, Reshard):
            wanted_of_all = Counter(
                Layout(
                    value.shape, value.dtype, where[value.slice], program.slices[value.slice].mesh_shape, value.sharding
                )
                for value in node.outputs
            )
            slots = [slot for step in plan.steps if step.node == index for slot in ends(step)[1]]
            assert Counter(plan.slots[slot].layout for slot in slots) <= wanted_of_all


def keeps_slots_from_maker_to_last_reader(case: Case, plan: Plan) -> None:
    for number, slot in enumerate(plan.slots):
        read_by = [index for index, step in enumerate(plan.steps) if number in ends(step)[0]]
        assert slot.nbytes == shard_bytes(slot.layout)
        assert slot.senders == tuple(index for index in read_by if isinstance(plan.steps[index], Move))
        assert slot.keep == (number in plan.results)
        in_order = not slot.keep and not slot.senders
        assert slot.last == (max([slot.maker, *read_by]) if in_order else -1)
        is_argument = number < len(case[0].args)
        assert (slot.arg == number, slot.maker < 0) == (is_argument, is_argument)
        if slot.maker >= 0:
            assert number in ends(plan.steps[slot.maker])[1]
        if slot.takes >= 0:
            donor, maker = plan.slots[slot.takes], plan.steps[slot.maker]
            assert isinstance(maker, Gang)
            assert slot.takes in maker.donated
            assert (donor.nbytes, donor.layout.place) == (slot.nbytes, slot.layout.place)
    taken = [slot.takes for slot in plan.slots if slot.takes >= 0]
    assert len(set(taken)) == len(taken)
    for index, step in enumerate(plan.steps):
        if isinstance(step, Gang):
            assert all(plan.slots[slot].last == index for slot in step.donated)


def is_cut_into_parts_that_contain_all_that_matters(case: Case, plan: Plan) -> None:
    parts = {island: cut(plan, island) for island in (0, 1)}
    for index, step in enumerate(plan.steps):
        slots = [slot for end in ends(step) for slot in end]
        islands = {plan.slots[slot].layout.place.island for slot in slots}
        if isinstance(step, Gang):
            islands.add(step.place.island)
        for island, part in parts.items():
            if island in islands:
                assert part.steps[index] == step
                assert all(part.slots[slot] == plan.slots[slot] for slot in slots)
                if isinstance(step, Gang):
                    assert part.codes[step.computation] == plan.codes[step.computation]


LAWS = (
    is_the_same_twice, has_a_sound_and_minimal_order, computes_what_its_program_says,
    gives_readers_the_layouts_that_they_want, keeps_slots_from_maker_to_last_reader,
    is_cut_into_parts_that_contain_all_that_matters,
)  # fmt: skip


@given(cases())
@examples(80)
def test_every_plan(case: Case) -> None:
    plan = lower(*case, ident=1)
    for law in LAWS:
        law(case, plan)


def test_the_spans_of_a_place_cover_exactly_its_devices() -> None:
    for spot in [*SPOTS, Place(0, (Grid(5, (2, 3, 2), (12, 1, 6)), Grid(40, (4,), (3,))))]:
        listed = [device for low, high in device_spans(spot) for device in range(low, high)]
        assert listed == sorted(set(spot.devices()))
