"""Programs as core knows them: what a session registers for an executable, a question, or a copy.

A session has a slice on each of its islands, and a sub-slice of one for each row of devices that a program or an array
is on.
Neighbours: `cluster_layouts`, `cluster_executables`; `backend.contents` has what the code is.
"""

from bisect import bisect
from collections.abc import Collection, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import NamedTuple

from msgspec.structs import replace

from core.client import Blocked, Client
from core.model import Arg, Computation, Node, Out, Program, Ref, Reshard, SliceSpec, Value

from ..session import ArrayType, StagePlan, invalid
from .cluster_layouts import value_of

ROOT = "devices"  # the name of a session's slice that may be on any island
UNKNOWN = 1_000_000  # nanoseconds that a computation is taken to last, as long as nothing is known
LONGEST_NAME = 200
MOST_COPIES = 1024  # programs of copies that are kept
PREFIXES = ("jit_", "pmap_")  # what JAX writes before a function's name, to name what it has lowered


class SessionIsland(NamedTuple):
    """An island of a session, and how many of its devices the session has. `name`: "": any island."""

    name: str
    devices: int


class Places:
    """The slices of a session: its devices on each island, and rows of them. Devices are numbered through, island by
    island, and have these numbers also while their island is down. If there are several islands, what needs one that is
    down fails, and others go on; only at the start the session waits for all of them, as other slices do: `opening`."""

    def __init__(self, islands: Sequence[SessionIsland]) -> None:
        several = len(islands) > 1
        self.opening = tuple(SliceSpec(f"{name} (opening)", count, island=name) for name, count in islands if several)
        self.roots = tuple(
            SliceSpec(name or ROOT, count, island=name, absent="fail" if several else "wait") for name, count in islands
        )
        self.rows = tuple(
            tuple(range(end - each.devices, end))
            for each, end in zip(islands, accumulate(each.devices for each in islands), strict=True)
        )
        self.kinds: tuple[str, ...] = ("",) * len(islands)  # of devices, as soon as hosts have told them
        self._known = dict(zip(self.rows, self.roots, strict=True))

    def island_of(self, device: int) -> int:
        """Its number in the session: what JAX calls `slice_index`."""
        return bisect(self.rows, device, key=lambda row: row[0]) - 1

    def of(self, devices: tuple[int, ...]) -> SliceSpec:
        found = self._known.get(devices)
        if found is None:
            islands = list(dict.fromkeys(map(self.island_of, devices)))
            if len(islands) > 1:
                names = " and ".join(repr(self.roots[each].island) for each in islands)
                raise invalid(
                    f"these devices are of islands {names}, and a program or an array is on devices of one: make a "
                    "mesh for each `device.slice_index`, run a program on each, and move arrays by `jax.device_put`"
                )
            root, first = self.roots[islands[0]], self.rows[islands[0]][0]
            picks = tuple([each - first for each in devices])
            text = ",".join(map(str, picks))
            if len(text) > LONGEST_NAME:
                text = f"{len(devices)} of {blake2b(text.encode(), digest_size=16).hexdigest()}"
            found = SliceSpec(f"{root.name}[{text}]", len(devices), of=root.name, picks=picks)
            self._known[devices] = found
        return found

    def slices(self, *rows: tuple[int, ...]) -> tuple[SliceSpec, ...]:
        """Those of a program: each row's, and before them those that they are parts of."""
        roots = [self.roots[self.island_of(row[0])] for row in rows]
        return tuple(dict.fromkeys((*self.opening, *roots, *map(self.of, rows))))

    def alike(self, devices: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The same row on each other island that has such devices: code is compiled there just as here."""
        at = self.island_of(devices[0])
        first, kind = self.rows[at][0], self.kinds[at]
        return [
            tuple([each - first + row[0] for each in devices])
            for other, row in enumerate(self.rows)
            if other != at and self.kinds[other] == kind and max(devices) - first < len(row)
        ]


def function_of(module: str) -> str:
    """The function's own name, which users know; as much of it as core takes."""
    for prefix in PREFIXES:
        if len(module) > len(prefix) and module.startswith(prefix):
            return module[len(prefix) :][:LONGEST_NAME]
    return module[:LONGEST_NAME]


def question_program(places: Places, name: str, devices: tuple[int, ...], code: str) -> Program:
    """Nothing of it runs: it is registered so that a host answers what its code asks."""
    slices = places.slices(devices)
    at = slices.index(places.of(devices))
    return Program(
        name=name, slices=slices, computations=(Computation(name, code, UNKNOWN, code=code),), args=(),
        nodes=(Node(name, 0, at, (), (), ()),), results=(),
    )  # fmt: skip


def executable_program(
    places: Places, name: str, devices: tuple[int, ...], code: str, temp: int,
    parameters: Sequence[ArrayType], results: Sequence[ArrayType], donated: Sequence[int], cost: int = UNKNOWN,
    step: str = "",
) -> Program:  # fmt: skip
    """`step`: its node's name, if that is not the program's."""
    slices = places.slices(devices)
    at = slices.index(places.of(devices))
    inputs = tuple(value_of(each, at) for each in parameters)
    outputs = tuple(value_of(each, at) for each in results)
    return Program(
        name=name, slices=slices,
        computations=(Computation(name, code, cost, temp, len(devices) > 1, code),), args=inputs,
        nodes=(Node(step or name, 0, at, tuple(map(Arg, range(len(inputs)))), inputs, outputs, tuple(donated)),),
        results=tuple(Out(0, number) for number in range(len(outputs))), donate_args=tuple(donated),
    )  # fmt: skip


def with_costs(program: Program, costs: Sequence[int]) -> Program:
    """The same program, whose computations take so many nanoseconds."""
    priced = zip(program.computations, costs, strict=True)
    return replace(program, computations=tuple(replace(each, cost=cost) for each, cost in priced))


def copy_program(places: Places, copies: Sequence[tuple[ArrayType, ArrayType]]) -> Program:
    """From where each array is to where it goes."""
    every = [end.sharding.devices for copy in copies for end in copy]
    slices = places.slices(*every)
    where = {devices: slices.index(places.of(devices)) for devices in dict.fromkeys(every)}
    given = tuple(value_of(source, where[source.sharding.devices]) for source, _ in copies)
    made = [value_of(target, where[target.sharding.devices]) for _, target in copies]
    nodes: list[Node | Reshard] = []
    outs = _copied(nodes, tuple(map(Arg, range(len(given)))), made)
    return Program(name="copy", slices=slices, computations=(), args=given, nodes=tuple(nodes), results=outs)


class CopyPrograms:
    """Programs that copy arrays to other devices of the session, or beside themselves, as core's client has them."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._registered: dict[tuple[tuple[ArrayType, ArrayType], ...], int] = {}

    def registered(self, copies: tuple[tuple[ArrayType, ArrayType], ...], client: Client, now: int) -> int:
        """The program by its name at core's client; 0: there is no room for it now."""
        known = self._registered.get(copies)
        if known is None:
            if len(self._registered) >= MOST_COPIES:
                client.unregister(self._registered.pop(next(iter(self._registered))), now)
            found = client.register(copy_program(self._places, copies), now)
            if isinstance(found, Blocked):
                return 0
            known = self._registered[copies] = found
        return known


def _copied(nodes: list[Node | Reshard], refs: Sequence[Ref], made: Sequence[Value]) -> tuple[Ref, ...]:
    """Nodes behind `nodes` that copy these; all that go to the same devices go as one."""
    together: dict[int, list[int]] = {}  # arrays, by the slice that they go to
    for number, value in enumerate(made):
        together.setdefault(value.slice, []).append(number)
    outs: dict[int, Ref] = {}
    for each in together.values():
        outs.update((at, Out(len(nodes), output)) for output, at in enumerate(each))
        nodes.append(Reshard("copy", tuple(refs[at] for at in each), tuple(made[at] for at in each)))
    return tuple(outs[at] for at in range(len(made)))


def staged_program(
    places: Places, plan: StagePlan, stages: Sequence[tuple[Program, tuple[int, ...]]], parameters: int,
    donated: Collection[int],
) -> Program:  # fmt: skip
    """`stages`: each as a program of one node, and its devices. `donated`: arguments that are given up."""
    rows = dict.fromkeys((*(each.sharding.devices for each in plan.types), *(devices for _, devices in stages)))
    slices = places.slices(*rows)
    where = {row: slices.index(places.of(row)) for row in rows}
    values = [value_of(each, where[each.sharding.devices]) for each in plan.types]
    refs: list[Ref] = [Arg(at) for at in range(parameters)]
    nodes: list[Node | Reshard] = []
    for step in plan.steps:
        inputs = tuple(refs[number] for number in step.inputs)
        if step.stage is None:
            refs += _copied(nodes, inputs, [values[number] for number in step.outputs])
            continue
        program, devices = stages[step.stage]
        (node,), place = program.nodes, where[devices]
        assert isinstance(node, Node)
        expects, outputs = (tuple(replace(each, slice=place) for each in side) for side in (node.expects, node.outputs))
        takes = tuple(
            at
            for at in node.donate
            if at in step.last and (step.inputs[at] >= parameters or step.inputs[at] in donated)
        )
        refs += [Out(len(nodes), output) for output in range(len(outputs))]
        nodes.append(replace(
            node, computation=step.stage, slice=place, inputs=inputs, expects=expects, outputs=outputs, donate=takes
        ))  # fmt: skip
    return Program(
        name=function_of(plan.name), slices=slices,
        computations=tuple(computation for program, _ in stages for computation in program.computations),
        args=tuple(values[:parameters]), nodes=tuple(nodes), results=tuple(refs[number] for number in plan.results),
        donate_args=tuple(donated),
    )  # fmt: skip
