"""Measures lowering of a program of 1,000 nodes over 8, 2,048 and 100,000 devices: time, and bytes sent to a host.

Both must not grow with the number of devices. The baseline is the row of 8 devices. Samples of the rows alternate, so
that a slow moment of the machine affects all of them. Caches of places are emptied before each sample.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median

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
    began = time.process_time_ns()
    action()
    return (time.process_time_ns() - began) / 1e6


def main() -> None:
    cases = {devices: Case(devices) for devices in ROWS}
    steps = ("check", "lower", "again", "message")
    found: dict[tuple[int, str], list[float]] = {(row, step): [] for row in ROWS for step in steps}
    plans = {row: case.lower() for row, case in cases.items()}
    for case in cases.values():
        case.again()  # the first fills the cache
    for _ in range(REPEATS):
        for row, case in cases.items():
            found[row, "check"].append(milliseconds(case.check))
            found[row, "lower"].append(milliseconds(case.lower))
            found[row, "again"].append(milliseconds(case.again))
            found[row, "message"].append(milliseconds(partial(case.message, plans[row])))
    spent = {key: median(samples) for key, samples in found.items()}
    sizes = {row: len(case.message(plans[row])) for row, case in cases.items()}
    first = ROWS[0]
    print(f"{'devices':>8} {'validate':>9} {'lower':>15} {'cached':>9} {'encode':>9} {'bytes a host':>20}")
    for row in ROWS:
        times = f"{spent[row, 'lower']:.1f} ms (x{spent[row, 'lower'] / spent[first, 'lower']:.2f})"
        size = f"{sizes[row]:,} (x{sizes[row] / sizes[first]:.3f})"
        print(
            f"{row:>8,} {spent[row, 'check']:>6.1f} ms {times:>15} {spent[row, 'again']:>6.2f} ms "
            f"{spent[row, 'message']:>6.1f} ms {size:>20}"
        )
    print(f"median CPU time of {REPEATS}; x: against {first} devices, to stay within 1.1")
