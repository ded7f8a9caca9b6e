"""Draws random valid programs.

They are graphs over several slices, with reshardings, donation, several outputs, irregular nodes and sparse exchanges.
Some are chains, pipelines or routers.
"""

from __future__ import annotations

from math import prod
from random import Random

import msgspec

from core.model.program import Arg, Exchange, Node, Out, Program, Reshard, Sharding, SliceSpec, Value
from tests.core import build
from tests.core.build import Build, Handle

US = 1_000


class Style(msgspec.Struct, frozen=True):
    """Says what the programs of a case may contain."""

    nodes: int = 6
    costs: tuple[int, ...] = (1 * US, 20 * US, 200 * US)
    temp: int = 0  # at most
    moves: bool = True
    irregular: float = 0.0
    sparse: float = 0.0
    donation: float = 0.3
    collective: float = 0.7
    meshes: float = 0.0  # values whose shardings have meshes of their own
    silent: float = 0.0  # nodes without outputs, programs without results
    reshard: float = 0.0  # nodes that only reshard


def draw(rng: Random, name: str, slices: list[SliceSpec], style: Style) -> Program:
    kind = rng.random()
    one = rng.choice(slices)
    if kind < 0.15:
        made = build.chain(rng.randint(1, 8), one.devices, donate=rng.random() < style.donation)
        return _on(made, name, [one])
    if kind < 0.25 and style.moves and len(slices) > 1:
        schedule = rng.choice(("gpipe", "1f1b"))
        some = _alike(slices)
        if some:
            stages = min(len(some), 3)
            made = build.pipeline(stages, rng.randint(1, 3), schedule, some[0].devices)  # type: ignore[arg-type]
            return _on(made, name, some[:stages])
    if kind < 0.35 and style.moves and style.sparse and style.irregular:
        some = _alike(slices)
        if len(some) > 1:
            return _on(build.moe(some[0].devices, 8 * some[0].devices), name, some[:2])
    return Drawing(rng, name, slices, style).program()


def _alike(slices: list[SliceSpec]) -> list[SliceSpec]:
    """Return the largest group of slices of one size, or [] if all sizes differ."""
    sizes: dict[int, list[SliceSpec]] = {}
    for spec in slices:
        sizes.setdefault(spec.devices, []).append(spec)
    found = max(sizes.values(), key=len)
    return found if len(found) > 1 else []


def _on(program: Program, name: str, slices: list[SliceSpec]) -> Program:
    """Return the same program on these slices of the session, with their meshes made flat."""
    flat = tuple(msgspec.structs.replace(spec, mesh=()) if spec.mesh else spec for spec in slices)
    if any(spec.mesh for spec in slices):
        flat = tuple(msgspec.structs.replace(spec, name=spec.name + "-line") for spec in flat)
    return msgspec.structs.replace(program, name=name, slices=flat)


def with_parents(program: Program, session: list[SliceSpec]) -> Program:
    """Return the same program with the parents of its sub-slices listed first."""
    if not any(spec.of for spec in program.slices):
        return program
    named = {spec.name: spec for spec in (*session, *program.slices)}
    every = [*program.slices, *(named[spec.of] for spec in program.slices if spec.of)]
    slices = tuple(sorted(dict.fromkeys(every), key=lambda spec: bool(spec.of)))
    to = [slices.index(spec) for spec in program.slices]
    replace = msgspec.structs.replace

    def moved(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(replace(value, slice=to[value.slice]) for value in values)

    nodes = tuple(
        replace(node, slice=to[node.slice], expects=moved(node.expects), outputs=moved(node.outputs))
        if isinstance(node, Node)
        else replace(node, output=moved(node.outputs)[0])
        if isinstance(node, Exchange)
        else replace(node, outputs=moved(node.outputs))
        for node in program.nodes
    )
    return replace(program, slices=slices, args=moved(program.args), nodes=nodes)


class Drawing:
    def __init__(self, rng: Random, name: str, slices: list[SliceSpec], style: Style) -> None:
        self.rng, self.style = rng, style
        self.build = Build(name)
        count = rng.randint(1, len(slices)) if style.moves else 1
        self.build.slices = rng.sample(slices, count)
        self.values: list[Handle] = []  # values that a node may read
        self.reads: dict[object, int] = {}
        self.comps: list[tuple[str, int, int, bool]] = [
            (f"f{k}", rng.choice(style.costs), rng.randrange(style.temp + 1) if rng.random() < 0.5 else 0,
             rng.random() < style.collective)
            for k in range(rng.randint(1, 4))
        ]  # fmt: skip

    def program(self) -> Program:
        rng = self.rng
        for _ in range(rng.randint(1, 3)):
            spec = rng.choice(self.build.slices)
            value = self._value(spec)
            self.build.args.append(value)
            if rng.random() < self.style.donation:
                self.build.given_up.append(len(self.build.args) - 1)
            self.values.append(Handle(Arg(len(self.build.args) - 1), value))
        for number in range(rng.randint(1, self.style.nodes)):
            if not self.values:
                break
            self._node(number)
        if not self.build.nodes:
            self._node(0)
        return self.build.program(*self._results())

    def _results(self) -> list[Handle]:
        rng = self.rng
        if self.style.silent and rng.random() < self.style.silent / 2:
            return []
        found = [each for each in self.values if isinstance(each.ref, Out)]
        chosen = rng.sample(found, rng.randint(1, min(3, len(found)))) if found else []
        if rng.random() < 0.05:
            kept = [v for v in self.values if isinstance(v.ref, Arg) and v.ref.index not in self.build.given_up]
            chosen += kept[:1]
        if chosen and rng.random() < 0.05:
            chosen.append(chosen[0])
        return chosen

    def _shape(self, spec: SliceSpec) -> tuple[int, ...]:
        unit = prod(spec.mesh_shape)
        rng = self.rng
        if rng.random() < 0.05:
            return (rng.choice((1, 3)) * unit * 2,)
        return (
            (unit * rng.choice((1, 2, 4)), rng.choice((unit, 8 * unit)))
            if rng.random() < 0.5
            else (unit * rng.choice((1, 4, 16)),)
        )

    def _sharding(self, shape: tuple[int, ...], mesh: tuple[int, ...]) -> Sharding:
        """Draw a sharding: each mesh axis splits a dimension that it divides, or replicates."""
        rng = self.rng
        if rng.random() < 0.2:
            return Sharding()
        own: tuple[int, ...] = ()
        if self.style.meshes and rng.random() < self.style.meshes:
            size = prod(mesh)
            major = rng.choice([extent for extent in range(1, size + 1) if size % extent == 0])
            own = mesh = (major, size // major)
        dims: list[list[int]] = [[] for _ in shape]
        for axis, size in enumerate(mesh):
            at = rng.randrange(len(shape) + 1)
            if at < len(shape) and shape[at] % (size * prod(mesh[a] for a in dims[at])) == 0:
                dims[at].append(axis)
        return Sharding(tuple(map(tuple, dims)), own)

    def _value(self, spec: SliceSpec, shape: tuple[int, ...] = ()) -> Value:
        shape = shape or self._shape(spec)
        dtype = self.rng.choice(("float32", "int8"))
        return Value(shape, dtype, self.build.slices.index(spec), self._sharding(shape, spec.mesh_shape))

    def _node(self, number: int) -> None:
        rng, style, b = self.rng, self.style, self.build
        home = rng.randrange(len(b.slices))
        spec = b.slices[home]
        if style.sparse and rng.random() < style.sparse:
            source = rng.choice(self.values)
            value = self._value(spec)
            value = msgspec.structs.replace(value, dtype=source.value.dtype)
            b.nodes.append(Exchange(f"n{number}", source.ref, value))
            self.values.append(b.output(0))
            return
        if style.reshard and rng.random() < style.reshard:
            sources = [rng.choice(self.values) for _ in range(rng.choice((1, 1, 2, 4)))]
            values = [self._value(spec, source.value.shape) for source in sources]
            values = [
                msgspec.structs.replace(value, dtype=source.value.dtype)
                for value, source in zip(values, sources, strict=True)
            ]
            b.nodes.append(Reshard(f"n{number}", tuple(source.ref for source in sources), tuple(values)))
            self.values += [b.output(at) for at in range(len(values))]
            return
        inputs = [rng.choice(self.values) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        expects = [
            msgspec.structs.replace(
                each.value, slice=home,
                sharding=each.value.sharding if each.value.slice == home and rng.random() < 0.6
                else self._sharding(each.value.shape, spec.mesh_shape),
            )
            for each in inputs
        ]  # fmt: skip
        donate: list[int] = []
        for at, each in enumerate(inputs):
            ref = each.ref
            if rng.random() >= style.donation or sum(other.ref == ref for other in inputs) > 1:
                continue
            if isinstance(ref, Arg) and ref.index not in b.given_up:
                continue
            donate.append(at)
        outputs: list[Value] = []
        silent = self.style.silent > 0 and rng.random() < self.style.silent
        for at in range(0 if silent else rng.choice((1, 1, 1, 2, 3))):
            if at < len(donate) and rng.random() < 0.8:
                outputs.append(expects[donate[at]])  # the output takes the memory of the donated input
            else:
                outputs.append(self._value(spec))
        comp, cost, temp, collective = rng.choice(self.comps)
        irregular = rng.random() < style.irregular
        steps = 1
        if not irregular and (collective or spec.devices == 1):
            steps = Random(f"steps of {b.name} {number} {comp}").choice((1, 1, 4))  # draws as many as without
        index = b.computation(comp if steps == 1 else f"{comp}x{steps}", cost, temp, collective, steps)
        b.nodes.append(
            Node(
                f"n{number}", index, home, tuple(each.ref for each in inputs), tuple(expects), tuple(outputs),
                tuple(donate), irregular,
            )
        )  # fmt: skip
        gone = [inputs[at].ref for at in donate]
        self.values = [each for each in self.values if each.ref not in gone]
        self.values += [b.output(at) for at in range(len(outputs))]
