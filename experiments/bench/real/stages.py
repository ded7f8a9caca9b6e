"""Measures fig 7 on real hosts: a chain of short stages, each on its own host, with parallel and sequential dispatch.

`python -m experiments.bench stages [--platform cpu]`. A call runs a program of some number of stages and is waited for;
values go from host to host. Parallel dispatch does the host work of all stages at once, ahead of the data.
Sequential dispatch, the baseline, does that of a stage when the previous one has been enqueued on all its hosts.
`timed` devices only wait, with an agent process each and without JAX; `cpu` devices compute.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from ..frame import options
from ..frame.deployed import deployed

FULL = True
STAGES, ALL_STAGES = (1, 2, 4, 8), tuple(range(1, 9))
CALLS = 40
WARM = 3
DURATION = "10us"
Dispatch = Literal["parallel", "sequential"]
KINDS: tuple[Dispatch, ...] = ("parallel", "sequential")


class Row(NamedTuple):
    """Median milliseconds of a call by dispatch. places: number of different places of its stages."""

    stages: int
    parallel: float
    sequential: float
    places: int


def chain_of(stages: int, platform: str) -> Callable[[Any], Any]:
    """A program with each stage on an exclusive slice, and so on a host of its own."""
    import seaway as sw

    slices = [sw.slice(devices=1, exclusive=True) for _ in range(stages)]
    if platform == "timed":
        works: list[Any] = [
            sw.synthetic(f"stage-{at}", devices=each, duration=DURATION) for at, each in enumerate(slices)
        ]
    else:
        works = [sw.jit(lambda x: x + 1, devices=each) for each in slices]

    def chain(x: Any) -> Any:
        for work in works:
            x = work(x)
        return x

    found: Callable[[Any], Any] = sw.program(chain)
    return found


def measured(address: str, stages: int, platform: str, calls: int) -> Row:
    """Measure both kinds of dispatch in one session, alternating, so that other work on the machine affects both."""
    import seaway as sw

    times: dict[Dispatch, list[float]] = {kind: [] for kind in KINDS}
    with sw.connect(address, client=f"chain-{stages}") as session:
        work = chain_of(stages, platform)
        first = np.zeros(4, np.float32)
        for kind in KINDS * WARM:
            session.dispatch = kind
            work(first).block_until_ready()
        for _ in range(calls):
            for kind in KINDS:
                session.dispatch = kind
                begun = time.perf_counter()
                work(first).block_until_ready()
                times[kind].append((time.perf_counter() - begun) * 1e3)
        gangs = session.trace.gangs()
    places = gangs[gangs["client"].astype(str) == f"chain-{stages}"]["place"].nunique()
    parallel, sequential = (statistics.median(times[kind]) for kind in KINDS)
    return Row(stages, parallel, sequential, places)


def rows(platform: str, stages: Sequence[int], calls: int = CALLS) -> Iterable[Row]:
    with deployed(max(stages), platform=platform) as cluster:
        for count in stages:
            yield measured(cluster.address, count, platform, calls)


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("stages", __doc__, full="every number of stages from 1 to 8")
    parser.add_argument("--platform", choices=("timed", "cpu"), default="timed", help="devices (%(default)s)")
    parser.add_argument("--stages", type=options.least(1), nargs="+", help="numbers of stages (1 2 4 8)")
    parser.add_argument(
        "--calls", type=options.least(1), default=CALLS, help="calls for a median (%(default)s)"
    )
    chosen = parser.parse_args(arguments)
    stages = chosen.stages or (ALL_STAGES if chosen.full else STAGES)
    print(
        f"{chosen.platform} devices, a host and process each; medians of {chosen.calls} calls, one at a time"
    )
    print(f"{'':7}{'parallel':^22}{'sequential':^22}{'parallel is':>13}")
    print(f"{'stages':>7}{'ms a call':>11}{'stages/s':>11}{'ms a call':>11}{'stages/s':>11}{'':5}faster by")
    for row in rows(chosen.platform, stages, chosen.calls):
        rates = [row.stages / each * 1e3 for each in (row.parallel, row.sequential)]
        print(
            f"{row.stages:>7}{row.parallel:>11.2f}{rates[0]:>11,.0f}{row.sequential:>11.2f}{rates[1]:>11,.0f}"
            f"{row.sequential / row.parallel:>12.2f}x",
            flush=True,
        )
