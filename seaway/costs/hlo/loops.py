"""Finds how often a loop runs: the compiler states it, or the loop's own integers are computed step by step.

The CPU compiler writes `known_trip_count`. The TPU compiler does not, but most of its loops count with integers from a
constant to a constant. This module computes only those integers.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

from .shapes import HloShape
from .text import HloComputation, Module, Op

STATED = re.compile(r'"known_trip_count":\{"n":"?(\d+)')
INDEX = re.compile(r"index=(\d+)")
DIRECTION = re.compile(r"direction=(\w+)")
SAME = {"copy", "bitcast", "convert", "reshape", "broadcast", "copy-start", "copy-done", "optimization-barrier"}
STEPS = 4096  # rounds computed one by one; a longer loop must grow by equal steps
BITS = 40  # no loop runs longer than 2**40

COMPARED: dict[str, Callable[[int, int], bool]] = {
    "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge, "EQ": operator.eq, "NE": operator.ne,
}  # fmt: skip
COMPUTED: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "minimum": min, "maximum": max,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor,
}  # fmt: skip

State = dict[tuple[int, ...], int]
Known = Mapping[tuple[int, ...], int]
"""Known values of a computation's parameters: (0, 3) is element 3 of parameter 0, (1,) is parameter 1."""


class Scalars:
    """Evaluates integers of one computation from known values of its parameters."""

    def __init__(self, module: Module, computation: HloComputation, known: Known) -> None:
        self.module = module
        self.computation = computation
        self.known = known
        self.asked: set[tuple[int, ...]] = set()

    def value(self, name: str) -> int | None:
        op = self.computation.ops.get(name)
        if op is None or not isinstance(op.kind, HloShape) or op.kind.elements != 1:
            if op is None or op.opcode not in SAME:
                return None
        values = op.operands
        match op.opcode:
            case "constant":
                return _constant(op.body)
            case "parameter":
                return self._parameter((int(op.body),))
            case "get-tuple-element":
                return self.element(values[0], int(op.attribute(INDEX)))
            case "compare":
                return self._binary(op, COMPARED.get(op.attribute(DIRECTION)))
            case "select":
                chosen = self.value(values[0])
                return None if chosen is None else self.value(values[1 if chosen else 2])
            case "not":
                inner = self.value(values[0])
                return None if inner is None else int(not inner)
            case "fusion" | "call":
                return self._called(op)
            case opcode if opcode in SAME:
                return self.value(values[0])
            case opcode:
                return self._binary(op, COMPUTED.get(opcode))

    def element(self, name: str, index: int) -> int | None:
        """The value of an element of the tuple `name`; None if unknown."""
        op = self.computation.ops.get(name)
        if op is None:
            return None
        if op.opcode == "parameter":
            return self._parameter((int(op.body), index))
        if op.opcode == "tuple":
            return self.value(op.operands[index])
        unchanged = op.opcode == "while" and index in invariant(self.module[op.called("body")[0]])
        return self.element(op.operands[0], index) if unchanged or op.opcode in SAME else None

    def _parameter(self, key: tuple[int, ...]) -> int | None:
        self.asked.add(key)
        return self.known.get(key)

    def _binary(self, op: Op, compute: Callable[[int, int], int] | None) -> int | None:
        if compute is None or len(op.operands) != 2:
            return None
        left, right = self.value(op.operands[0]), self.value(op.operands[1])
        return None if left is None or right is None else int(compute(left, right))

    def _called(self, op: Op) -> int | None:
        called = op.called("calls") or op.called("to_apply")
        if not called:
            return None
        values = {(at,): self.value(name) for at, name in enumerate(op.operands)}
        known: State = {key: value for key, value in values.items() if value is not None}
        inner = self.module[called[0]]
        return Scalars(self.module, inner, known).value(inner.root)


def _constant(text: str) -> int | None:
    if text in ("true", "false"):
        return int(text == "true")
    try:
        return int(text.strip("{} "))
    except ValueError:
        return None


def invariant(body: HloComputation) -> set[int]:
    """The elements of a loop's state that its body passes on unchanged."""
    root = body.ops.get(body.root)
    if root is None or root.opcode != "tuple":
        return set()
    return {index for index, name in enumerate(root.operands) if _handed_on(body, name) == index}


def _handed_on(body: HloComputation, name: str) -> int | None:
    op = body.ops[name]
    while op.opcode == "copy":
        op = body.ops[op.operands[0]]
    if op.opcode == "get-tuple-element" and body.ops[op.operands[0]].opcode == "parameter":
        return int(op.attribute(INDEX))
    return None


def trips(module: Module, computation: HloComputation, loop: Op, known: Known) -> int | None:
    """How often `loop`, an operation of `computation`, runs its body; None if that depends on data."""
    if stated := loop.attribute(STATED):
        return int(stated)
    condition, body = module[loop.called("condition")[0]], module[loop.called("body")[0]]
    needed = _needed(module, condition, body)
    state = _all_known(_elements(Scalars(module, computation, known), loop.operands[0], needed))
    return None if state is None else _count(module, condition, body, state)


def inside(module: Module, computation: HloComputation, loop: Op, known: Known) -> State:
    """Known values inside the loop's body: unchanged elements whose values are known outside."""
    indices = sorted(invariant(module[loop.called("body")[0]]))
    found = _elements(Scalars(module, computation, known), loop.operands[0], indices)
    return {key: value for key, value in found.items() if value is not None}


def _elements(scalars: Scalars, name: str, indices: Iterable[int]) -> dict[tuple[int, ...], int | None]:
    return {(0, index): scalars.element(name, index) for index in indices}


def _all_known(values: Mapping[tuple[int, ...], int | None]) -> State | None:
    known = {key: value for key, value in values.items() if value is not None}
    return known if len(known) == len(values) else None


def _needed(module: Module, condition: HloComputation, body: HloComputation) -> list[int]:
    """The elements of the state that decide when the loop ends, and the elements that these depend on."""
    asking = Scalars(module, condition, {})
    asked = _reads(asking, condition.root)
    root, before = body.ops[body.root], -1
    while root.opcode == "tuple" and len(asked) != before:
        before = len(asked)
        for index in sorted(asked):
            asked |= _reads(Scalars(module, body, {}), root.operands[index])
    return sorted(asked)


def _reads(scalars: Scalars, name: str) -> set[int]:
    scalars.value(name)
    # an unknown operand stops the computation early: the other side is asked for by itself
    todo, seen = [name], {name}
    while todo:
        op = scalars.computation.ops.get(todo.pop())
        if op is None or op.opcode in ("parameter", "constant", "while"):
            continue
        for operand in op.operands:
            if operand not in seen and op.opcode != "get-tuple-element":
                seen.add(operand)
                todo.append(operand)
                scalars.value(operand)
    return {key[1] for key in scalars.asked if len(key) == 2}


def _count(module: Module, condition: HloComputation, body: HloComputation, state: State) -> int | None:
    states, results = [state], body.ops[body.root].operands
    for count in range(STEPS):
        more = _holds(module, condition, states[-1])
        if not more:
            return None if more is None else count
        scalars = Scalars(module, body, states[-1])
        after = _all_known({key: scalars.value(results[key[1]]) for key in state})
        if after is None:
            return None
        states.append(after)
    return _jump(module, condition, states)


def _holds(module: Module, condition: HloComputation, state: Known) -> bool | None:
    value = Scalars(module, condition, state).value(condition.root)
    return None if value is None else bool(value)


def _jump(module: Module, condition: HloComputation, states: list[State]) -> int | None:
    """Find the end by bisection, if all elements grow by equal steps; else None."""
    first, second = states[0], states[1]
    step = {key: second[key] - first[key] for key in first}
    if any(later[key] - sooner[key] != step[key] for sooner, later in pairwise(states) for key in step):
        return None
    low, high = len(states) - 1, len(states)

    def goes_on(after: int) -> bool | None:
        return _holds(module, condition, {key: first[key] + after * step[key] for key in first})

    while goes_on(high):
        low, high = high, high * 2
        if high > 1 << BITS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if goes_on(middle) else (low, middle)
    return high
