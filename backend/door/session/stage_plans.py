"""An MPMD program as devices carry it out: compiled stages, copies between them, and whose memory may be taken over.

    staged_plan(StagedProgram, ids, facts of its stages, ...)   -> StagePlan, and the CompiledFacts of the whole

What the client says is checked here: devices, arrays, their types. What a stage makes has the type that its compiler
says. Neighbours: `ops.mpmd`; `local_devices` and `cluster_programs`, which carry plans out.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from math import prod

from backend.contents import COPY, StagedProgram

from ..protocol import REPLICATED, OpSharding, ShardSpec, Tiles, kind_of_mlir, op_sharding
from .memory_meter import bytes_of
from .session_devices import ArrayType, CompiledFacts, PlanStep, StagePlan, invalid, unsupported

LARGEST = 1 << 62  # elements
ARRAY = re.compile(
    r"!ifrt\.array<tensor<((?:\d+x)*)([a-zA-Z]\w*|complex<f\d+>)>, #ifrt\.sharding_param<((?:\d+x)*\d*) to "
    r"\[([\d, ]+)\] on ((?:\d+x)*\d+)>, \[([\d, ]+)\](?:, memory_kind = \"(\w+)\")?>"
)


def staged_plan(
    program: StagedProgram, ids: Sequence[int], stages: Sequence[CompiledFacts], default_kind: str,
    layout: Callable[[ArrayType], str],
) -> tuple[StagePlan, CompiledFacts]:  # fmt: skip
    """`ids`: the session's numbers of the devices that the program numbers. Raises StatusError."""
    known = {text: type_of(text, ids, default_kind) for text in set(program.types)}
    said = [known[text] for text in program.types]
    types, steps = said[: program.parameters], list[PlanStep]()
    for step in program.steps:
        _check_numbers(step.inputs, len(types))
        given, first = [types[number] for number in step.inputs], len(types)
        wanted = said[first : first + step.outputs]
        if step.call >= 0:
            facts = stages[step.call]
            _check_stage(facts, given, wanted)
            types += facts.results
        else:
            types += [_moved(each, to, step.call == COPY) for each, to in zip(given, wanted, strict=True)]
        stage = None if step.call < 0 else step.call
        steps.append(PlanStep(stage, step.inputs, tuple(range(first, len(types)))))
    _check_numbers(program.results, len(types))
    results = dict[int, None]()
    for number in program.results:
        if number < program.parameters or number in results:  # a caller may delete one, and keep the other
            steps.append(PlanStep(None, (number,), (len(types),)))
            types.append(types[number])
            number = len(types) - 1
        results[number] = None
    stay = set(range(program.parameters)).difference(program.donated).union(results)
    steps = _with_ends(steps, stay)
    plan = StagePlan(program.name, tuple(types), tuple(steps), tuple(results))
    return plan, _facts(plan, program, ids, default_kind, layout, sum(each.code_size for each in stages))


def _check_numbers(numbers: Sequence[int], known: int) -> None:
    if not all(0 <= number < known for number in numbers):
        raise invalid("the MPMD program uses an array before it is made")


def _check_stage(facts: CompiledFacts, given: Sequence[ArrayType], wanted: Sequence[ArrayType]) -> None:
    """What the program gives to a stage and wants of it has to be what the stage takes and makes."""
    takes = [(facts.devices, *each) if each is not None else None for each in facts.parameters]
    gives = [(each.sharding.devices, each.kind, each.shape) for each in facts.results]
    for what, has, says in (("takes", takes, given), ("makes", gives, wanted)):
        here = [(each.sharding.devices, each.kind, each.shape) for each in says]
        if has != here:
            raise invalid(f"the stage {facts.name} {what} other arrays than the MPMD program says, or elsewhere")


def _moved(array: ArrayType, to: ArrayType, copied: bool) -> ArrayType:
    """`copied`: each shard stays what it is."""
    source, target = array.sharding, to.sharding
    if array[:2] != to[:2] or (copied and len(source.devices) != len(target.devices)):
        raise invalid("the MPMD program copies an array, and says that it becomes one of another type")
    return ArrayType(*array[:2], source.on(target.devices, target.memory_kind) if copied else target)


def _with_ends(steps: Sequence[PlanStep], needed: set[int]) -> list[PlanStep]:
    """`needed`: arrays that stay when all is done."""
    found = []
    for step in reversed(steps):
        uses = Counter(step.inputs)
        last = frozenset(at for at, number in enumerate(step.inputs) if number not in needed and uses[number] == 1)
        needed.update(uses)
        found.append(step._replace(last=last))
    return found[::-1]


def _facts(
    plan: StagePlan, program: StagedProgram, ids: Sequence[int], default_kind: str,
    layout: Callable[[ArrayType], str], code_size: int,
) -> CompiledFacts:  # fmt: skip
    given, made = plan.types[: program.parameters], [plan.types[number] for number in plan.results]
    takes, makes = (
        tuple(op_sharding(each.sharding.tiles).SerializeToString() for each in some) for some in (given, made)
    )
    return CompiledFacts(
        program.name, tuple(ids), b"", tuple((each.kind, each.shape) for each in given), tuple(made), takes, makes,
        tuple(map(layout, given)), tuple(map(layout, made)),
        tuple(each.sharding.memory_kind or default_kind for each in made), program.donated, {}, code_size,
        tuple(each.sharding.devices for each in given), _peak(plan, len(given)),
    )  # fmt: skip


def _peak(plan: StagePlan, parameters: int) -> int:
    """The most bytes that arrays take at a time which are neither arguments nor results."""
    others = {*range(parameters), *plan.results}
    sizes = [0 if at in others else bytes_of(each) for at, each in enumerate(plan.types)]
    now = peak = 0
    for step in plan.steps:
        now += sum(sizes[number] for number in step.outputs)
        peak = max(peak, now)
        now -= sum(sizes[step.inputs[at]] for at in step.last)
    return peak


def type_of(text: str, ids: Sequence[int], default_kind: str) -> ArrayType:
    """The type of an array that MLIR writes so: its devices' first axis is the last of the sharding's."""
    found = ARRAY.fullmatch(text)
    kind = None if found is None else kind_of_mlir(found[2])
    if found is None or kind is None:
        raise unsupported(f"the MPMD program has an array of type {text[:200]}, which is not known here")
    shape, grid, order, axes, numbers = (tuple(map(int, re.findall(r"\d+", found[at]))) for at in (1, 3, 4, 5, 6))
    count, rest = len(numbers), len(axes) - 1
    right = prod(axes) == count == len(set(numbers)) and max(numbers) < len(ids) and prod(shape) <= LARGEST
    if not right or sorted(order) != list(range(len(axes))) or min(grid, default=1) < 1 or count % prod(grid):
        raise invalid(f"the MPMD program has an array of type {text[:200]}, which makes no sense")
    copies = count // prod(grid)
    groups = ((copies, OpSharding.REPLICATED),) if copies > 1 else ()
    tiles = Tiles(grid, groups, axes[::-1], tuple(rest - at for at in order[::-1]))
    memory_kind = "" if found[7] in (None, default_kind) else found[7]
    spec = ShardSpec(tuple(ids[at] for at in numbers), REPLICATED if prod(grid) == 1 else tiles, memory_kind)
    if not spec.fits(shape):
        raise invalid(f"the MPMD program has an array of type {text[:200]}, which cannot be cut into equal shards")
    return ArrayType(kind, shape, spec)
