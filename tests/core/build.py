"""A small front end to write programs for tests, with one line for each node.

b = Build(a=4, b=(2, 2))                      # slices by name: devices or mesh
x = b.arg("a", 8, 8, split="0.")              # dimension 0 over mesh axis 0, dimension 1 whole
y = b.call("double", "a", [x])                # output like its first input
program = b.program(y)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from core.model.place import Place, line
from core.model.plan import Layout
from core.model.program import Arg, Computation, Exchange, Node, Out, Program, Ref, Reshard, Sharding, SliceSpec, Value


class Handle(msgspec.Struct, frozen=True):
    """A value of the program that is being built."""

    ref: Ref
    value: Value


def sharding(text: str) -> Sharding:
    """Read a sharding from text: a character for each dimension, "." if it is not split, "" if replicated.

    If a dimension has several axes, dimensions are separated by commas: "01,.".
    """
    if not text:
        return Sharding()
    dims = text.split(",") if "," in text else list(text)
    return Sharding(tuple(tuple(int(axis) for axis in dim if axis != ".") for dim in dims))


class Build:
    def __init__(self, name: str = "test", **slices: int | tuple[int, ...]) -> None:
        self.name = name
        self.slices: list[SliceSpec] = []
        for each, mesh in slices.items():
            sizes = (mesh,) if isinstance(mesh, int) else mesh
            devices = 1
            for size in sizes:
                devices *= size
            self.slices.append(SliceSpec(each, devices, () if isinstance(mesh, int) else sizes))
        self.computations: dict[str, Computation] = {}
        self.args: list[Value] = []
        self.nodes: list[Node | Exchange | Reshard] = []
        self.given_up: list[int] = []

    def slice(self, name: str) -> int:
        return [spec.name for spec in self.slices].index(name)

    def value(self, where: str, *shape: int, split: str = "", dtype: str = "float32") -> Value:
        return Value(shape, dtype, self.slice(where), sharding(split))

    def arg(self, where: str, *shape: int, split: str = "", donate: bool = False, dtype: str = "float32") -> Handle:
        self.args.append(self.value(where, *shape, split=split, dtype=dtype))
        if donate:
            self.given_up.append(len(self.args) - 1)
        return Handle(Arg(len(self.args) - 1), self.args[-1])

    def computation(self, name: str, cost: int, temp: int, collective: bool, steps: int = 1) -> int:
        found = Computation(name, f"key-{name}", cost, temp, collective, steps=steps)
        assert self.computations.setdefault(name, found) == found
        return list(self.computations).index(name)

    def call(
        self,
        name: str,
        where: str,
        inputs: Sequence[Handle],
        outputs: Sequence[Value] | None = None,
        *,
        wants: Sequence[str] | None = None,
        cost: int = 1000,
        temp: int = 0,
        collective: bool = True,
        donate: Sequence[int] = (),
        irregular: bool = False,
        node: str = "",
        steps: int = 1,
    ) -> Handle:
        """Add a node and return its first output. `wants[k]` is the sharding of input k; by default as it is."""
        home = self.slice(where)
        expects = [msgspec.structs.replace(each.value, slice=home) for each in inputs]
        if wants is not None:
            expects = [
                msgspec.structs.replace(each, sharding=sharding(text))
                for each, text in zip(expects, wants, strict=True)
            ]
        made = (expects[0],) if outputs is None else tuple(outputs)
        self.nodes.append(
            Node(
                node or name,
                self.computation(name, cost, temp, collective, steps),
                home,
                tuple(each.ref for each in inputs),
                tuple(expects),
                made,
                tuple(donate),
                irregular,
            )
        )
        return self.output(0)

    def output(self, number: int) -> Handle:
        """Return another output of the latest node."""
        node = self.nodes[-1]
        return Handle(Out(len(self.nodes) - 1, number), node.outputs[number])

    def exchange(self, name: str, source: Handle, target: Value) -> Handle:
        self.nodes.append(Exchange(name, source.ref, target))
        return self.output(0)

    def reshard(self, name: str, source: Handle, where: str, split: str = "", *others: Handle) -> Handle:
        """`others`: go along. Returns the first of what is made."""
        given = source, *others
        targets = [self.value(where, *each.value.shape, split=split, dtype=each.value.dtype) for each in given]
        self.nodes.append(Reshard(name, tuple(each.ref for each in given), tuple(targets)))
        return self.output(0)

    def program(self, *results: Handle) -> Program:
        return Program(
            self.name,
            tuple(self.slices),
            tuple(self.computations.values()),
            tuple(self.args),
            tuple(self.nodes),
            tuple(each.ref for each in results),
            tuple(self.given_up),
        )


# --- where things lie -------------------------------------------------------------------------------------


def places(program: Program, islands: int = 1, per_island: int = 0) -> list[Place]:
    """Return a place for each slice, on devices of its own; slice i is on island i modulo `islands`."""
    size = per_island or sum(spec.devices for spec in program.slices)
    used = [0] * islands
    found = []
    for number, spec in enumerate(program.slices):
        island = number % islands
        found.append(line(island, island * size + used[island], spec.devices))
        used[island] += spec.devices
    return found


def at_home(program: Program, where: Sequence[Place]) -> list[Layout]:
    """Return the layouts of all arguments as the program declares them."""
    return [
        Layout(each.shape, each.dtype, where[each.slice], program.slices[each.slice].mesh_shape, each.sharding)
        for each in program.args
    ]


def replicated(program: Program, devices: int) -> Program:
    """Return the same program on slices of so many devices, with nothing split, so that its size stays the same."""
    tree = msgspec.to_builtins(program)
    for spec in tree["slices"]:
        spec.update(devices=devices, mesh=())
    for value in _values(tree):
        value["sharding"]["dims"] = ()
    return msgspec.convert(tree, Program)


def _values(tree: object) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        if "sharding" in tree:
            yield tree
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        for each in tree:
            yield from _values(each)


# --- programs ---------------------------------------------------------------------------------------------


def chain(length: int, devices: int = 4, donate: bool = False, size: int = 0, temp: int = 0) -> Program:
    """Return a program in which each node's output is the next one's input, on one slice."""
    b = Build("chain", s=devices)
    x = b.arg("s", size or devices, split="0", donate=donate)
    for number in range(length):
        x = b.call("step", "s", [x], donate=(0,) if donate else (), node=f"step {number}", temp=temp)
    return b.program(x)


def hop(length: int, slices: int = 2, devices: int = 2) -> Program:
    """Return a chain in which each node runs on another slice than the one before it."""
    names = [f"s{number}" for number in range(slices)]
    b = Build("hop", **dict.fromkeys(names, devices))
    x = b.arg("s0", devices * 2, split="0")
    for number in range(length):
        x = b.call("step", names[number % slices], [x], node=f"step {number}")
    return b.program(x)


def fan_out(branches: int, devices: int = 2) -> Program:
    """Return a program with one source, a branch on each of several slices, and their sum on the first slice."""
    names = [f"s{number}" for number in range(branches)]
    b = Build("fan_out", s=devices, **dict.fromkeys(names, devices))
    x = b.call("source", "s", [b.arg("s", devices * 2, split="0")])
    parts = [b.call("branch", name, [x], node=f"branch {name}") for name in names]
    return b.program(b.call("sum", "s", parts))


def pipeline(stages: int, microbatches: int, schedule: Literal["gpipe", "1f1b"] = "gpipe", devices: int = 2) -> Program:
    """Return a program that passes micro-batches forward and backward through all stages, then updates each stage."""
    names = [f"stage{number}" for number in range(stages)]
    b = Build(f"pipeline-{schedule}", **dict.fromkeys(names, devices))
    batches = [b.arg(names[0], devices * 4, 8, split="0.") for _ in range(microbatches)]
    weights = [b.arg(name, 8, 8, donate=True) for name in names]
    forward: dict[tuple[int, int], Handle] = {}
    backward: dict[tuple[int, int], Handle] = {}
    gradients: dict[int, Handle] = {}
    for stage, micro, way in _turns(stages, microbatches, schedule):
        name = names[stage]
        if way == "f":
            x = forward[stage - 1, micro] if stage else batches[micro]
            forward[stage, micro] = b.call("forward", name, [x, weights[stage]], cost=2000, node=f"F{stage}.{micro}")
        else:
            x = forward[stage, micro]
            of = backward.get((stage + 1, micro), x)
            inputs = [of, x] if of is not x else [x]
            made = [of.value, b.value(name, 8, 8)]
            made[0] = msgspec.structs.replace(made[0], slice=b.slice(name))
            if stage in gradients:
                inputs.append(gradients[stage])
            kind = f"backward{len(inputs)}"
            backward[stage, micro] = b.call(
                kind, name, inputs, made, cost=4000, node=f"B{stage}.{micro}",
                donate=(len(inputs) - 1,) if stage in gradients else (),
            )  # fmt: skip
            gradients[stage] = b.output(1)
    updated = [
        b.call("update", name, [weights[stage], gradients[stage]], donate=(0, 1), node=f"U{stage}")
        for stage, name in enumerate(names)
    ]
    return b.program(*updated)


def _turns(stages: int, microbatches: int, schedule: str) -> list[tuple[int, int, str]]:
    """Yield (stage, micro-batch, forward or backward) in an order in which a tracer could meet them."""
    plans: list[list[tuple[int, str]]] = []
    for stage in range(stages):
        ahead = microbatches if schedule == "gpipe" else min(microbatches, stages - stage)
        turns = [(micro, "f") for micro in range(ahead)]
        for micro in range(microbatches):
            turns.append((micro, "b"))
            if ahead + micro < microbatches:
                turns.append((ahead + micro, "f"))
        plans.append(turns)
    done: set[tuple[int, int, str]] = set()
    found: list[tuple[int, int, str]] = []
    while any(plans):
        for stage, turns in enumerate(plans):
            if turns:
                micro, way = turns[0]
                if way == "f":
                    needs = {(stage - 1, micro, "f")} if stage else set()
                else:
                    needs = {(stage + 1, micro, "b")} if stage + 1 < stages else set()
                    needs |= {(stage, micro, "f")}
                if needs <= done:
                    turns.pop(0)
                    done.add((stage, micro, way))
                    found.append((stage, micro, way))
    return found


def moe(devices: int = 4, tokens: int = 16) -> Program:
    """Return a program that routes tokens to experts: an irregular node and two sparse exchanges."""
    b = Build("moe", s=devices, experts=devices)
    x = b.arg("s", tokens, 8, split="0.")
    routed = b.call("route", "s", [x], [b.value("s", tokens, 8, split="0.")], irregular=True)
    sent = b.exchange("to experts", routed, b.value("experts", tokens, 8, split="0."))
    expert = b.call("expert", "experts", [sent])
    back = b.exchange("back", expert, b.value("s", tokens, 8, split="0."))
    return b.program(b.call("combine", "s", [x, back]))
