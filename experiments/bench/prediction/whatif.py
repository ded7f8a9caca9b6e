"""Changes that `seaway whatif` foretells from a record, against real runs under both settings.

`python -m experiments.bench whatif [--hosts 2 3] [--times N]`. Four clients share timed devices; each setting is really
run N times, and each pair of settings is foretold from the first record under the first of them. A row is a quantity of
one pair: the real change between the medians, how far apart the real runs of a setting were, what was foretold, and the
model's own error for that quantity. `invented`: a change was foretold that is larger than the model's error, and there
was none, or the opposite one; `off`: there was one, but another by more than both errors; `missed`: the model said that
no change can be told, and there was a larger one.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from core.controller import Config
from core.schedule.policy import named
from seaway.tools.whatif import call_durations, report, settings, whatif_runs, workload
from sim.hardware import profile

from ..frame import options
from ..frame.options import Table

REPEATS = 3  # further simulations of the record's settings, which show the model's error
WEIGHTS = (1, 2, 1, 4)


class Setting(NamedTuple):
    title: str
    policy: str
    weights: tuple[int, ...] = WEIGHTS
    window: int = Config().window


STRIDE, FIFO = Setting("stride", "stride"), Setting("fifo", "fifo")
OTHERS = (
    Setting("round_robin", "round_robin"),
    Setting("shortest", "shortest"),
    Setting("equal weights", "stride", (1, 1, 1, 1)),
    Setting("window 1", "stride", window=1),
)
PAIRS = ((STRIDE, FIFO), (FIFO, STRIDE), *((STRIDE, other) for other in OTHERS))


class Row(NamedTuple):
    pair: str
    quantity: str
    real: float  # the change, as a fraction
    apart: float  # of real runs under one setting, the largest distance from their median
    foretold: float
    doubt: float

    @property
    def verdict(self) -> str:
        bound = max(self.apart, self.doubt)
        if abs(self.foretold) > self.doubt:
            if abs(self.foretold - self.real) <= bound:
                return ""
            return "off" if self.foretold * self.real > 0 and abs(self.real) > self.apart else "invented"
        return "missed" if abs(self.real) > bound else ""


# --- real runs ----------------------------------------------------------------------------------------------------


def really(hosts: int, under: Setting, path: Path) -> workload.Workload:
    import seaway as sw

    heavy = sw.synthetic("heavy", devices=2 * hosts - 2, duration="6ms", allreduce="4B")
    light = sw.synthetic("light", devices=2, duration="1500us")
    mid = sw.synthetic("mid", devices=2, duration="3ms", allreduce="4B")
    clients = (("ann", 80, heavy, 1), ("bob", 200, light, 4), ("cy", 120, mid, 0), ("di", 60, heavy, 8))
    config: Any = {"window": under.window}
    with sw.local(
        hosts=hosts, devices_per_host=2, platform="timed", policy=under.policy, record=path, config=config
    ) as session:
        sw.block_until_ready([step(np.float32(0)) for step in (heavy, light, mid)])
        for (name, calls, step, read), weight in zip(clients, under.weights, strict=True):
            session.spawn(client, calls, step, read, name=name, weight=weight)
    return workload.read(path)


def client(calls: int, step: Any, read: int) -> None:
    """Each call has the result of the one before; every `read`th is waited for."""
    value: Any = np.float32(0)
    for number in range(calls):
        value = step(value)
        if read and number % read == 0:
            value.block_until_ready()
    value.block_until_ready()


# --- foretold ------------------------------------------------------------------------------------------------------


def rows(hosts: int, times: int) -> Iterator[Row]:
    found: dict[Setting, list[workload.Workload]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(times):  # by turns
            for under in dict.fromkeys(each for pair in PAIRS for each in pair):
                path = Path(folder) / f"{under.title} {number}"
                found.setdefault(under, []).append(really(hosts, under, path))
    real = {under: [_figures(each) for each in runs] for under, runs in found.items()}
    for first, second in PAIRS:
        yield from _of_pair(f"{hosts} hosts, {first.title} -> {second.title}", found[first][0], second, real, first)


def _figures(recorded: workload.Workload) -> dict[report.Figure, float]:
    return report.figures(report.of_record(recorded, call_durations.measured(recorded)))


def _of_pair(
    title: str, recorded: workload.Workload, second: Setting, real: dict[Setting, list[dict[report.Figure, float]]],
    first: Setting,
) -> Iterator[Row]:  # fmt: skip
    took = call_durations.measured(recorded)
    same, first_world = whatif_runs.fitted(recorded, settings.as_recorded(recorded, profile("seaway")), took)
    config = settings.config_of(recorded, same.setup, same.profile, window=second.window)
    weights = tuple(dict(zip(("ann", "bob", "cy", "di"), second.weights, strict=True)).get(each.name, each.weight)
                    for each in recorded.people)  # fmt: skip
    other = same._replace(make=lambda: named(second.policy), config=config, weights=weights)

    def column(under: settings.Settings, seed: int = 0) -> report.Column:
        return report.of_world(whatif_runs.run(recorded, under, took, seed))

    sames = [report.of_world(first_world), *(column(same, seed) for seed in range(1, 1 + REPEATS))]
    doubt = report.doubts(report.of_record(recorded, took), sames)
    before, after = report.figures(sames[0]), report.figures(column(other))
    for name in before:
        if name[0] == "main" or name[1].startswith("p99"):
            continue
        was, now = ([each[name] for each in real[under]] for under in (first, second))
        middle = statistics.median(was), statistics.median(now)
        apart = max(abs(each / mid - 1) for each, mid in zip([*was, *now], _each(middle, len(was)), strict=True))
        yield Row(title, " ".join(name).strip(), middle[1] / middle[0] - 1, apart, after[name] / before[name] - 1,
                  doubt[name])  # fmt: skip


def _each(middle: tuple[float, float], times: int) -> list[float]:
    return [middle[0]] * times + [middle[1]] * times


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("whatif", __doc__)
    parser.numbers("--hosts", (2, 3), "hosts of the cluster")
    parser.number("--times", 3, "real runs under each setting")
    given = parser.parse_args(arguments)
    table = Table("pair <34", "quantity <18", "real >+8.1%", "apart >7.1%", "foretold >+8.1%", "doubt >7.1%", " <9")
    table.begin()
    found = []
    for hosts in given.hosts:
        for row in rows(hosts, given.times):
            found.append(row)
            table.row(*row, f" {row.verdict}")
    off = sorted(abs(row.foretold - row.real) for row in found)
    said = [row.verdict for row in found]
    print(
        f"{len(found)} changes: off by {statistics.median(off):.1%} of the quantity in the median, "
        f"{off[int(0.95 * (len(off) - 1))]:.1%} at the 95th percentile; {said.count('invented')} invented, "
        f"{said.count('off')} off, {said.count('missed')} missed"
    )
