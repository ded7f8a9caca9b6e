"""The results of `prediction`: rows with errors, and their distribution.

A row is one quantity of one case: predicted, measured (the median of repeats) and the signed error. It also has the
prediction for the machine's speed during the repeats, and its error. Rows whose repeats differ by more than `NOISY` are
listed separately, since they cannot judge a model. Only the measurements decide which rows these are.
"""

import csv
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from .cases import Case

NOISY = 0.10
AIM_MEDIAN, AIM_LAST = 0.05, 0.15  # aims for absolute errors: the median and the 95th percentile
LAST = 95
TIME, RATE, PART = "time", "rate", "part"


class Row(msgspec.Struct, frozen=True):
    """speed: the reference's time during the runs, as a multiple of that at calibration. predicted, error: for the
    speed at calibration. then, off: for the speed during the repeats. spread: see `spread_of`."""

    number: int
    platform: str
    kind: str
    case: str
    quantity: str
    predicted: float
    measured: float
    error: float  # predicted / measured - 1
    speed: float
    then: float
    off: float  # then / measured - 1
    spread: float

    @property
    def noisy(self) -> bool:
        return self.spread > NOISY


def rows_of(
    case: Case, predicted: Mapping[str, float], measured: Sequence[Mapping[str, float]],
    then: Mapping[str, float], references: Sequence[float], speed: float,
) -> tuple[list[Row], list[str]]:  # fmt: skip
    """(rows, quantities that cannot be compared since one side lacks them or is 0).

    references: the reference's time in each measurement. then: the prediction for their median. speed: the reference's
    time at calibration.
    """
    names = list(dict.fromkeys([*predicted, *(name for values in measured for name in values)]))
    found, without = [], []
    for name in names:
        values = [each.get(name, 0.0) for each in measured]
        foretold, again = predicted.get(name, 0.0), then.get(name, 0.0)
        if not min(foretold, again, *values) > 0:
            without.append(name)
            continue
        middle = statistics.median(values)
        found.append(
            Row(
                case.number, case.platform, case.kind, case.title, name, foretold, middle, foretold / middle - 1,
                statistics.median(references) / speed, again, again / middle - 1,
                spread_of(name, values, references),
            )
        )  # fmt: skip
    return found, without


def spread_of(quantity: str, values: Sequence[float], references: Sequence[float]) -> float:
    """The largest deviation of a repeat from the median: of the values themselves, or of values converted to one speed,
    whichever is smaller. Values that are bound by clocks do not change with the speed."""
    power = -1 if unit_of(quantity) == TIME else 1
    at_one_speed = [value * reference**power for value, reference in zip(values, references, strict=True)]
    return min(_farthest(values), _farthest(at_one_speed))


def _farthest(values: Sequence[float]) -> float:
    middle = statistics.median(values)
    return max(abs(each / middle - 1) for each in values)


class Distribution(NamedTuple):
    """The distribution of absolute errors. `bias`: the median of signed errors."""

    rows: int
    median: float
    last: float  # the 95th percentile
    bias: float

    @property
    def met(self) -> bool:
        return self.median <= AIM_MEDIAN and self.last <= AIM_LAST


def distribution(errors: Sequence[float]) -> Distribution | None:
    """The distribution; None if there are no errors."""
    if not errors:
        return None
    sizes = np.abs(errors)
    return Distribution(
        len(errors), float(np.median(sizes)), float(np.percentile(sizes, LAST)), statistics.median(errors)
    )


# --- as text -----------------------------------------------------------------------------------


def unit_of(quantity: str) -> str:
    if quantity.startswith("throughput"):
        return RATE
    return TIME if quantity.startswith(("latency", "hop", "makespan")) else PART


def shown(quantity: str, value: float) -> str:
    match unit_of(quantity):
        case "rate":
            return f"{value:,.1f}/s"
        case "time":
            return f"{value * 1e3:,.3f} ms"
        case _:
            return f"{value:.2%}"


HEAD = f"    {'':20}{'predicted':>14}{'measured':>14}{'error':>9}{'speed':>7}{'then':>14}{'error':>9}{'repeats':>9}"


def line(row: Row) -> str:
    return (
        f"    {row.quantity:20}{shown(row.quantity, row.predicted):>14}{shown(row.quantity, row.measured):>14}"
        f"{row.error:>+9.1%}{row.speed:>7.2f}{shown(row.quantity, row.then):>14}{row.off:>+9.1%}"
        f"{'+-' + format(row.spread, '.1%'):>9}{'  noisy' * row.noisy}"
    )


WHICH: tuple[tuple[str, Callable[[Row], float]], ...] = (
    ("at the speed that the machine had", lambda row: row.off),
    ("as it was foretold", lambda row: row.error),
)


def summary(rows: Sequence[Row]) -> str:
    """A table of errors: of all rows, with the noisy ones separate, then by quantity and by kind of case."""
    quiet, noisy = [row for row in rows if not row.noisy], [row for row in rows if row.noisy]
    lines = [f"{'absolute error':34}{'rows':>6}{'median':>9}{'95 %':>9}{'bias':>9}"]
    wholes = []
    for title, error in WHICH:
        lines.append(title)
        wholes.append(distribution([error(row) for row in quiet]))
        lines.append(_entry(f"  repeats within {NOISY:.0%}", wholes[-1]))
        lines.append(_entry(f"  repeats farther than {NOISY:.0%}", distribution([error(row) for row in noisy])))
        lines.append(_entry("  both", distribution([error(row) for row in rows])))
    aim = f"aim: median <= {AIM_MEDIAN:.0%}, 95 % <= {AIM_LAST:.0%}"
    said = ["nothing to judge by" if whole is None else "met" if whole.met else "missed" for whole in wholes]
    lines.append(f"{aim}: {said[0]} (as it was foretold: {said[1]})")
    lines.append(f"by kind of case (repeats within {NOISY:.0%})")
    for kind in sorted({(row.platform, row.kind) for row in quiet}):
        errors = [row.off for row in quiet if (row.platform, row.kind) == kind]
        lines.append(_entry(f"  {' '.join(kind)}", distribution(errors)))
    return "\n".join(lines)


def _entry(name: str, found: Distribution | None) -> str:
    if found is None:
        return f"{name:34}{0:>6}"
    return f"{name:34}{found.rows:>6}{found.median:>9.1%}{found.last:>9.1%}{found.bias:>+9.1%}"


# --- as a file -----------------------------------------------------------------------------------


def save(rows: Sequence[Row], path: Path) -> None:
    """Write CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*Row.__struct_fields__, "noisy"])
        writer.writerows([*msgspec.structs.astuple(row), row.noisy] for row in rows)
