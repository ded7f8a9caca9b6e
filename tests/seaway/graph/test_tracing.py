"""`@sw.program` records what Python calls: one node for each computation, whatever the number of shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jax.sharding import PartitionSpec

import seaway as sw
from core.model.program import Arg, Computation, Node, Out, Program
from seaway.graph.graph import Graph

P: Any = PartitionSpec  # which has no types


def lowered(graph: Graph) -> Program:
    """Lower the program as a session would."""
    names: dict[sw.Slice, str] = {}
    return graph.lower(
        lambda each: names.setdefault(each, f"s{len(names)}"),
        lambda signature: Computation(signature.name, signature.key, 1),
    )


here, there = sw.slice(devices=2), sw.slice(devices=4)
double = sw.jit(lambda x: x * 2.0, devices=here, name="double")
plus = sw.jit(lambda x: x + 1.0, devices=there, name="plus", in_shardings=P("x"))
VECTOR = np.arange(4.0)


def test_a_program_has_its_calls_in_order() -> None:
    @sw.program
    def chain(v: Any) -> Any:
        x = double(v)
        return plus(x), double(x)

    program = lowered(chain.trace(VECTOR))
    nodes = [node for node in program.nodes if isinstance(node, Node)]
    assert [node.name for node in nodes] == ["double", "plus", "double"]
    assert [node.inputs for node in nodes] == [(Arg(0),), (Out(0),), (Out(0),)]
    assert [program.slices[node.slice].devices for node in nodes] == [2, 4, 2]
    assert program.results == (Out(1), Out(2))
    assert len(program.computations) == 2, "a computation that is called twice is compiled once"


def test_the_graph_does_not_grow_with_the_number_of_devices() -> None:
    wide = sw.synthetic("wide", devices=2048, duration="1us")
    chain = sw.program(lambda v: wide(wide(v)))
    assert len(lowered(chain.trace(VECTOR)).nodes) == 2


def test_the_expected_input_of_a_node_is_on_its_own_slice() -> None:
    program = lowered(sw.program(lambda v: plus(double(v)), name="two").trace(VECTOR))
    made, wanted = program.nodes
    assert isinstance(made, Node)
    assert isinstance(wanted, Node)
    assert (made.outputs[0].slice, made.outputs[0].sharding.dims) == (0, ())
    assert (wanted.expects[0].slice, wanted.expects[0].sharding.dims) == (1, ((0,),))


def test_any_pytree_can_be_argument_and_result() -> None:
    add = sw.jit(lambda a, b: {"sum": a + b, "both": [a, b]}, devices=here, name="add")

    @sw.program
    def f(batch: dict[str, Any]) -> Any:
        made = add(batch["a"], batch["b"])
        return [made["both"], (made["sum"], None)]

    graph = f.trace({"a": VECTOR, "b": VECTOR})
    assert graph.out_names == ("0.0", "0.1", "1.0")


def test_a_program_is_traced_once_for_arguments_of_the_same_type() -> None:
    traced: list[Any] = []

    @sw.program
    def f(v: Any) -> Any:
        traced.append(v.shape)
        return double(v)

    f.trace(VECTOR)
    f.trace(VECTOR + 1)
    f.trace(np.arange(6.0))
    assert traced == [(4,), (6,)]


def test_a_program_called_in_a_program_becomes_part_of_it() -> None:
    inner = sw.program(lambda v: double(v), name="inner")
    outer = sw.program(lambda v: inner(inner(v)), name="outer")
    assert len(outer.trace(VECTOR).nodes) == 2


def test_constants_become_hidden_arguments() -> None:
    add = sw.jit(lambda a, b: a + b, devices=here, name="add")
    table = np.ones(4, np.float32)
    graph = sw.program(lambda v: add(add(v, table), table), name="f").trace(VECTOR)
    assert [len(graph.args), len(graph.captured)] == [2, 1]


def test_unused_arguments_are_left_out() -> None:
    graph = sw.program(lambda v, w: double(v), name="f").trace(VECTOR, VECTOR)
    assert len(lowered(graph).args) == 1


def test_arguments_can_be_returned_unchanged() -> None:
    graph = sw.program(lambda v, w: (w, double(v)), name="f").trace(VECTOR, VECTOR)
    assert lowered(graph).results == (Out(0),)


# --- Python that a trace cannot follow -----------------------------------------------------------------------


def if_(v: Any) -> Any:
    return double(v) if v else v


def while_(v: Any) -> Any:
    while double(v):
        pass
    return v


@pytest.mark.parametrize(
    "ask", [if_, while_, float, int, bool, complex, np.asarray, list, range, lambda v: v == 1.0, lambda v: v != 1.0]
)
def test_python_that_needs_contents_raises_an_error_that_names_the_choices(ask: Callable[[Any], Any]) -> None:
    def routed(v: Any) -> Any:
        ask(double(v))
        return v

    with pytest.raises(sw.errors.TracedValueError) as caught:
        sw.program(routed).trace(VECTOR)
    text = str(caught.value)
    for choice in ("jax.lax.cond", "np.asarray", "irregular=True", "sw.route", "'routed'"):
        assert choice in text


def test_operators_on_traced_values_are_refused() -> None:
    with pytest.raises(sw.errors.NotNow, match=r"sw\.jit\(lambda x, \.\.\.: x \+"):
        sw.program(lambda v: double(v) + 1).trace(VECTOR)
    with pytest.raises(sw.errors.NotNow, match="indexing"):
        sw.program(lambda v: double(v)[0]).trace(VECTOR)


def test_a_traced_value_may_not_escape() -> None:
    kept: list[Any] = []

    def keep(v: Any) -> Any:
        kept.append(v)
        return double(v)

    sw.program(keep, name="first").trace(VECTOR)
    with pytest.raises(sw.errors.NotNow, match=r"escaped from the trace of 'first', which has ended, into 'second'"):
        sw.program(lambda v: double(kept[0]), name="second").trace(VECTOR)


# --- donation -----------------------------------------------------------------------------------------------

take = sw.jit(lambda x: x + 1, devices=here, name="take", donate_argnums=0)


def test_the_output_of_a_node_may_be_donated_to_the_next() -> None:
    node = lowered(sw.program(lambda v: take(double(v)), name="f").trace(VECTOR)).nodes[1]
    assert isinstance(node, Node)
    assert node.donate == (0,)


def test_a_donated_value_cannot_be_read_again() -> None:
    def twice(v: Any) -> Any:
        x = double(v)
        return take(x), double(x)

    with pytest.raises(sw.errors.NotNow, match=r"is read by 'double' after 'take' took over its memory"):
        sw.program(twice).trace(VECTOR)


def test_an_argument_is_donated_only_if_the_caller_gives_it_up() -> None:
    kept = lowered(sw.program(lambda v: take(v), name="f").trace(VECTOR))
    given = lowered(sw.program(lambda v: take(v), name="f", donate_argnums=0).trace(VECTOR))
    assert [program.donate_args for program in (kept, given)] == [(), (0,)]
    assert [node.donate for node in kept.nodes + given.nodes if isinstance(node, Node)] == [(), (0,)]


def test_a_donated_argument_cannot_be_returned() -> None:
    with pytest.raises(sw.errors.NotNow, match="returns argument leaf 0, which it donates"):
        sw.program(lambda v: v, donate_argnums=0, name="f").trace(VECTOR)
