"""Measures lowering of a program of 1,000 nodes over 8, 2,048 and 100,000 devices: time, and bytes sent to a host.

Both must not grow with the number of devices. The baseline is the row of 8 devices. Samples of the rows alternate, so
that a slow moment of the machine affects all of them. Caches of places are emptied before each sample.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from core.compile import Lowerings, cut, home, lower
from core.link import codec as wire
from core.model import (
    Arg,
    Computation,
    Layout,
    Node,
    Out,
    Place,
    Plan,
    Program,
    Ref,
    Sharding,
    SliceSpec,
    Value,
    canonical,
    device_spans,
    line,
    spans,
    validate,
)
from core.protocol import Ordered

from ..frame.measuring import cpu_seconds, medians
from ..frame.table import Table

ROWS = (8, 2_048, 100_000)
STAGES, MICROBATCHES, REPEATS = 4, 250, 9
BATCH = 1_600_000  # divisible by every stage's devices, so that rows differ only in devices


def pipeline(devices: int) -> Program:
    """Forward through four stages of `devices / 4` each: 1,000 nodes, and 750 moves between them."""
    names = [f"stage {number}" for number in range(STAGES)]
    slices = tuple(SliceSpec(name, devices // STAGES) for name in names)
    batches = [Value((BATCH, 8), "bfloat16", 0, Sharding(((0,), ()))) for _ in range(MICROBATCHES)]
    weights = [Value((8, 8), "bfloat16", stage) for stage in range(STAGES)]
    nodes: list[Node] = []
    for micro in range(MICROBATCHES):
        x: Ref = Arg(micro)
        for stage, name in enumerate(names):
            here = Value((BATCH, 8), "bfloat16", stage, Sharding(((0,), ())))
            inputs = (x, Arg(MICROBATCHES + stage))
            nodes.append(Node(f"{name}, {micro}", 0, stage, inputs, (here, weights[stage]), (here,)))
            x = Out(len(nodes) - 1)
    results = tuple(Out(STAGES * micro + STAGES - 1) for micro in range(MICROBATCHES))
    return Program("pipeline", slices, (Computation("layer", "layer", 1_000_000),), (*batches, *weights),
                   tuple(nodes), results)  # fmt: skip


class Case:
    def __init__(self, devices: int) -> None:
        size = devices // STAGES
        self.program = pipeline(devices)
        self.places: list[Place] = [line(0, stage * size, size) for stage in range(STAGES)]
        self.args: list[Layout] = [home(self.program, self.places, value) for value in self.program.args]
        self.cache = Lowerings()

    def check(self) -> None:
        validate(self.program)

    def lower(self) -> Plan:
        return lower(self.program, self.places, self.args, ident=0)

    def again(self) -> Plan:
        return self.cache.lower(self.program, self.places, self.args)

    def message(self, plan: Plan) -> bytes:
        """The message sent to every host of the island before the first run of the plan."""
        hosts = spans.union(*(device_spans(place) for place in self.places))
        return wire.encode(Ordered(0, 0, 0, 0, hosts, 0, (cut(plan, 0),), (), ()))


def milliseconds(action: Callable[[], object]) -> float:
    device_spans.cache_clear()
    canonical.cache_clear()
    return cpu_seconds(action) * 1e3


def main() -> None:
    cases = {devices: Case(devices) for devices in ROWS}
    works: dict[tuple[int, str], Callable[[], object]] = {}
    for row, case in cases.items():
        plan = case.lower()
        case.again()  # the first fills the cache
        works |= {(row, "check"): case.check, (row, "lower"): case.lower, (row, "again"): case.again}
        works[row, "message"] = partial(case.message, plan)
    spent = medians(REPEATS, {key: partial(milliseconds, work) for key, work in works.items()})
    sizes = {row: len(case.message(case.lower())) for row, case in cases.items()}
    first = ROWS[0]
    table = Table("devices >8,", "validate >9.1f ms", "lower >9.1f ms", "x >6.2f", "cached >9.2f ms", "encode >9.1f ms",
                  "bytes a host >14,", "x >7.3f").begin()  # fmt: skip
    for row in ROWS:
        check, lowered, again, message = (spent[row, step] for step in ("check", "lower", "again", "message"))
        ratio, size = lowered / spent[first, "lower"], sizes[row]
        table.row(row, check, lowered, ratio, again, message, size, size / sizes[first])
    print(f"median CPU time of {REPEATS}; x: against {first} devices, to stay within 1.1")
