"""Tests which programs are valid, and that every error names the node."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.compile import lower
from core.model.errors import ProgramError
from core.model.program import Arg, Computation, Exchange, Node, Out, Program, Sharding, SliceSpec, Value
from core.model.validate import MAX_LITERALS, MAX_NODES, validate, validate_literals
from tests.core.build import Build, at_home, chain, fan_out, hop, moe, pipeline, places
from tests.laws import examples

replace = msgspec.structs.replace


def refused(program: Program, *words: str) -> None:
    with pytest.raises(ProgramError) as error:
        validate(program)
    for word in words:
        assert word in str(error.value)


def with_node(program: Program, index: int, **changes: object) -> Program:
    nodes = list(program.nodes)
    nodes[index] = replace(nodes[index], **changes)
    return replace(program, nodes=tuple(nodes))


def with_value(index: int, **changes: object) -> Program:
    """Return a program of one node, with this value as its argument."""
    program = chain(1)
    return replace(program, args=(replace(program.args[0], **changes),))


@pytest.mark.parametrize(
    "program", [chain(3), chain(3, donate=True), hop(4), fan_out(3), pipeline(2, 3), pipeline(3, 2, "1f1b"), moe()]
)
def test_valid_programs_pass(program: Program) -> None:
    validate(program)
    validate(msgspec.msgpack.decode(msgspec.msgpack.encode(program), type=Program))


# --- references -------------------------------------------------------------------------------------------


def test_references_to_missing_things_are_refused() -> None:
    program = chain(3)
    refused(with_node(program, 1, inputs=(Arg(7),)), "node 'step 1' (1)", "argument 7")
    refused(with_node(program, 1, inputs=(Out(9),)), "node 'step 1' (1)", "node 9")
    refused(with_node(program, 1, inputs=(Out(0, 2),)), "node 'step 1' (1)", "output of node 'step 0' (0) 2")
    refused(with_node(program, 1, computation=5), "node 'step 1' (1)", "computation 5")
    refused(with_node(program, 1, slice=5), "node 'step 1' (1)", "slice 5")
    refused(replace(program, results=(Out(-1),)), "result 0")


def test_a_reference_to_a_later_node_names_both() -> None:
    refused(with_node(chain(3), 1, inputs=(Out(2),)), "node 'step 1' (1)", "'step 2', which comes later")


def test_a_program_may_have_no_results_and_its_nodes_no_outputs() -> None:
    validate(replace(chain(1), results=()))
    validate(replace(with_node(chain(1), 0, outputs=()), results=()))
    validate(replace(chain(1), nodes=(), results=()))


# --- sub-slices -------------------------------------------------------------------------------------------


def with_part(*before: SliceSpec, **changes: object) -> Program:
    """A program whose one slice is a sub-slice."""
    part = SliceSpec("part", 4, of="s", picks=(6, 4, 2, 0))
    return replace(chain(1), slices=(replace(part, **changes), *before))


def behind(whole: SliceSpec, **changes: object) -> Program:
    """The same, with its parent listed before it."""
    program = with_part(**changes)
    program = replace(program, slices=(whole, *program.slices))
    moved = [replace(value, slice=1) for value in program.args]
    (node,) = program.nodes
    assert isinstance(node, Node)
    values = {name: tuple(replace(value, slice=1) for value in getattr(node, name)) for name in ("expects", "outputs")}
    return replace(program, args=tuple(moved), nodes=(replace(node, slice=1, **values),))


def test_a_sub_slice_may_be_used_as_any_slice() -> None:
    validate(with_part())  # the session may have the other one
    validate(behind(SliceSpec("s", 8)))
    validate(behind(SliceSpec("s", 8), mesh=(2, 2)))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(with_part()), type=Program) == with_part()


def test_a_sub_slice_that_makes_no_sense_is_refused() -> None:
    refused(with_part(of=""), "slice 'part' (0)", "does not say of which slice")
    refused(with_part(picks=()), "slice 'part' (0)", "4 devices, but it picks 0 of slice 's'")
    refused(with_part(picks=(1, 2, 3)), "slice 'part' (0)", "4 devices, but it picks 3 of slice 's'")
    refused(with_part(picks=(1, 2, 3, 1)), "slice 'part' (0)", "picks a device of slice 's' twice")
    refused(behind(SliceSpec("s", 6)), "slice 'part' (1)", "device of slice 's' 6 is unknown; there are 6")
    refused(behind(SliceSpec("s", 8), picks=(0, 1, 2, -1)), "slice 'part' (1)", "device of slice 's' -1")
    refused(with_part(SliceSpec("s", 8)), "slice 'part' (0)", "which must be listed before it")
    refused(with_part(of="part"), "slice 'part' (0)", "which must be listed before it")
    refused(
        behind(SliceSpec("s", 8, of="all", picks=tuple(range(8)))), "itself a part of slice 'all': say which devices"
    )
    for own in ({"kind": "v3"}, {"island": "a"}, {"layout": "spread"}, {"exclusive": True}, {"absent": "fail"}):
        refused(with_part(**own), "slice 'part' (0)", "are those of slice 's', of which it is a part")


def test_a_sharding_may_have_a_mesh_of_its_own() -> None:
    validate(with_value(0, sharding=Sharding(((0, 1),), (2, 2))))
    validate(with_value(0, sharding=Sharding(((1,),), (4, 1))))
    validate(with_value(0, sharding=Sharding((), (2, 2))))
    refused(with_value(0, sharding=Sharding(((0,),), (2, 3))), "does not hold exactly the 4 devices of slice 's'")
    refused(with_value(0, sharding=Sharding((), (-2, -2))), "does not hold exactly the 4 devices")
    refused(with_value(0, sharding=Sharding((), (1,) * 8 + (4,))), "a mesh of 9 axes; at most 8")
    refused(with_value(0, sharding=Sharding(((2,),), (2, 2))), "mesh axis 2 is unknown; there are 2")


# --- types ------------------------------------------------------------------------------------------------


def test_shapes_that_do_not_divide_name_the_nearest_that_do() -> None:
    refused(with_value(0, shape=(10,)), "argument 0", "does not divide by 4", "8 and 12")


def test_values_without_meaning_are_refused() -> None:
    refused(with_value(0, dtype="float33"), "dtype 'float33'", "float32")
    refused(with_value(0, shape=(-4,)), "negative")
    refused(with_value(0, shape=(2**40, 2**40), sharding=Sharding()), "elements")
    refused(with_value(0, shape=(1,) * 17, sharding=Sharding()), "17 dimensions")
    refused(with_value(0, sharding=Sharding(((1,),))), "mesh axis 1")
    refused(with_value(0, sharding=Sharding(((0, 0),))), "more axes")
    refused(with_value(0, sharding=Sharding(((0,), ()))), "its sharding 2")
    refused(with_value(0, slice=3), "slice 3")


def test_an_axis_splits_one_dimension_only() -> None:
    b = Build(s=(2, 2))
    b.call("f", "s", [b.arg("s", 4, 4, split="00")])
    refused(b.program(b.output(0)), "argument 0", "axis 0", "twice")


def test_a_node_gets_the_types_it_expects() -> None:
    b = Build(s=4)
    x = b.call("f", "s", [b.arg("s", 8)])
    b.call("g", "s", [x])
    program = b.program(b.output(0))
    for wrong in (b.value("s", 4), b.value("s", 8, dtype="int32")):
        refused(with_node(program, 1, expects=(wrong,)), "node 'g' (1): input 0", "output 0 of node 'f' (0)")
    refused(with_node(program, 1, expects=()), "node 'g' (1)", "expects 0")


def test_values_of_a_node_stay_on_its_slice() -> None:
    b = Build(s=4, t=4)
    b.call("f", "s", [b.arg("s", 8)])
    program = b.program(b.output(0))
    refused(with_node(program, 0, outputs=(b.value("t", 8),)), "node 'f' (0): output 0", "'t'", "'s'")
    refused(with_node(program, 0, expects=(b.value("t", 8),)), "node 'f' (0): input 0", "'t'", "'s'")


def test_an_exchange_carries_rows_of_one_type() -> None:
    b = Build(s=4)
    b.exchange("swap", b.arg("s", 8), b.value("s", 8, dtype="int32"))
    refused(b.program(b.output(0)), "node 'swap' (0)", "float32[8]", "int32[8]")
    b = Build(s=4)
    b.exchange("swap", b.arg("s"), b.value("s", 8))
    refused(b.program(b.output(0)), "node 'swap' (0)", "scalar")


def test_an_irregular_computation_makes_rows() -> None:
    b = Build(s=4)
    b.call("f", "s", [b.arg("s")])
    refused(with_node(b.program(b.output(0)), 0, irregular=True), "node 'f' (0): output 0", "scalar")


# --- slices, computations, sizes --------------------------------------------------------------------------


def test_slices_without_meaning_are_refused() -> None:
    program = chain(1)
    for wrong in (SliceSpec("s", 0), SliceSpec("s", -4), SliceSpec("s", 4, (2, 3)), SliceSpec("s", 4, (4, -1, -1))):
        refused(replace(program, slices=(wrong,)), "slice 's' (0)")
    refused(replace(program, slices=(SliceSpec("s", 1, (1,) * 9),)), "9 axes")
    refused(replace(program, slices=(SliceSpec("s", 4), SliceSpec("s", 8))), "slice 's' (1)", "another slice")
    validate(replace(program, slices=(SliceSpec("s", 4), SliceSpec("s", 4))))


def test_costs_are_not_negative() -> None:
    program = chain(1)
    refused(replace(program, computations=(Computation("f", "k", -1),)), "computation 'f' (0)", "cost -1")
    refused(replace(program, computations=(Computation("f", "k", 1, -1),)), "computation 'f' (0)", "temp -1")


def test_the_cost_of_one_program_is_bounded() -> None:
    program = chain(1)
    refused(replace(program, nodes=program.nodes * (MAX_NODES + 1)), "nodes", str(MAX_NODES))
    refused(replace(program, name="x" * 1000), "1000 characters")
    refused(with_node(program, 0, name="x" * 1000), "1000 characters")


# --- donation ---------------------------------------------------------------------------------------------


def test_a_donated_value_cannot_be_used_again() -> None:
    b = Build(s=4)
    x = b.arg("s", 8, donate=True)
    y = b.call("take", "s", [x], donate=(0,))
    program = b.program(y)
    validate(program)
    refused(replace(program, results=(Arg(0),)), "result 0", "node 'take' (0) has taken over")
    late = Node("late", 0, 0, (Arg(0),), (b.value("s", 8),), (b.value("s", 8),))
    refused(replace(program, nodes=(*program.nodes, late)), "node 'late' (1): input 0", "node 'take' (0)")
    swap = Exchange("swap", Arg(0), b.value("s", 8))
    refused(replace(program, nodes=(*program.nodes, swap)), "node 'swap' (1)", "node 'take' (0)")


def test_only_an_argument_that_the_caller_gives_up_may_be_donated() -> None:
    program = replace(chain(1, donate=True), donate_args=())
    refused(program, "node 'step 0' (0)", "argument 0", "donate_args")


def test_an_input_is_donated_once_and_read_once() -> None:
    b = Build(s=4)
    x = b.arg("s", 8, donate=True)
    b.call("f", "s", [x, x], donate=(1,))
    refused(b.program(b.output(0)), "node 'f' (0)", "as another input too")
    program = chain(1, donate=True)
    refused(with_node(program, 0, donate=(0, 0)), "node 'step 0' (0)", "twice")
    refused(with_node(program, 0, donate=(1,)), "node 'step 0' (0)", "input 1")
    refused(replace(program, donate_args=(3,)), "donate_args", "argument 3")


# --- literals ---------------------------------------------------------------------------------------------


def test_literals_have_the_size_of_their_values() -> None:
    program = chain(1)  # one argument of 16 bytes
    validate_literals(program, (bytes(16),))
    validate_literals(program, (5,))
    for wrong, words in (((), "takes 1"), ((bytes(15),), "16 bytes"), ((1, 2), "takes 1")):
        with pytest.raises(ProgramError, match=words):
            validate_literals(program, wrong)


def test_literals_are_small() -> None:
    with pytest.raises(ProgramError, match=str(MAX_LITERALS)):
        validate_literals(chain(1, size=2048), (bytes(8192),))


# --- laws -------------------------------------------------------------------------------------------------

small = st.integers(-1, 4)
sizes = st.one_of(st.sampled_from([0, 1, 2, 4, 8]), st.integers())
tuples = st.lists(small, max_size=3).map(tuple)
names = st.one_of(st.sampled_from(["a", "b", ""]), st.text(max_size=3))
values = st.builds(
    Value,
    st.lists(sizes, max_size=3).map(tuple),
    st.sampled_from(["float32", "int8", "nonsense"]),
    small,
    st.builds(Sharding, st.lists(tuples, max_size=3).map(tuple)),
)
plain = st.builds(Value, st.sampled_from([(4,), (8, 4)]), st.just("float32"), st.integers(0, 1))
some_values = st.one_of(plain, plain, values)
refs = st.one_of(st.builds(Arg, small), st.builds(Out, small, st.integers(-1, 2)))
nodes = st.builds(
    Node,
    names,
    small,
    small,
    st.lists(refs, max_size=3).map(tuple),
    st.lists(some_values, max_size=3).map(tuple),
    st.lists(some_values, max_size=2).map(tuple),
    tuples,
    st.booleans(),
)
garbage = st.builds(
    Program,
    names,
    st.lists(st.builds(SliceSpec, names, sizes, tuples), max_size=3).map(tuple),
    st.lists(st.builds(Computation, names, names, st.integers()), max_size=3).map(tuple),
    st.lists(some_values, max_size=3).map(tuple),
    st.lists(st.one_of(nodes, st.builds(Exchange, names, refs, some_values)), max_size=4).map(tuple),
    st.lists(refs, max_size=2).map(tuple),
    tuples,
)

GOOD = [chain(3), chain(3, donate=True), hop(4), fan_out(2), pipeline(2, 2), moe()]


@st.composite
def nearly_good(draw: st.DrawFn) -> Program:
    """Draw a valid program, and replace a few values in its encoding by others of the same kind."""
    tree = msgspec.to_builtins(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(1, 3))):
        _spoil(draw, tree)
    try:
        return msgspec.convert(tree, Program)
    except msgspec.ValidationError:
        return GOOD[0]


def _spoil(draw: st.DrawFn, tree: object) -> None:
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))  # type: ignore[arg-type]
        if not keys:
            return
        key = draw(st.sampled_from(keys))
        child = tree[key]  # type: ignore[index]
        if isinstance(child, dict | list | tuple) and child and draw(st.integers(0, 9)):
            child = list(child) if isinstance(child, tuple) else child
            tree[key] = child  # type: ignore[index]
            tree = child
            continue
        if isinstance(child, bool):
            tree[key] = not child  # type: ignore[index]
        elif isinstance(child, int):
            tree[key] = draw(st.one_of(small, st.just(2**63)))  # type: ignore[index]
        elif isinstance(child, list | tuple):
            tree[key] = [*child, *child[:1]] if draw(st.booleans()) else list(child[1:])  # type: ignore[index]
        return


def lowers_or_is_refused(program: Program) -> bool:
    try:
        validate(program)
    except ProgramError:
        return False
    where = places(program)
    lower(program, where, at_home(program, where), ident=0)
    return True


@given(garbage)
@examples(120)
def test_garbage_is_refused_or_lowers(program: Program) -> None:
    lowers_or_is_refused(program)


@given(nearly_good())
@examples(120)
def test_a_spoilt_program_is_refused_or_lowers(program: Program) -> None:
    lowers_or_is_refused(program)
