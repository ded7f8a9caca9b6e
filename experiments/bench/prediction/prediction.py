"""Compares the simulator's predictions with real runs that it has not seen, and prints the errors.

`python -m experiments.bench prediction [--seed S] [--platform cpu timed] [--cases N] [--calibration FILE ...]
[--out FOLDER]`. First the simulator's knowledge is frozen (`freezing`), then cases are drawn from the seed. Each is
simulated, run for real several times, and simulated again at the machine's speed during the real runs, by the same code
(`measuring`).
"""

import os
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from core.model import Impossible

from ..frame import options
from .cases import ALL_PLATFORMS, PLATFORMS, Case, drawn
from .freezing import Frozen, described, frozen
from .playing import Failed, Played, real, simulated
from .table import HEAD, Row, line, rows_of, save, summary

CASES = 28
REPEATS = 3
SPELL = 1.0
BOUND = 180.0


def gone_through(
    cases: Sequence[Case], known: Frozen, *, repeats: int, spell: float, bound: float
) -> tuple[list[Row], list[str]]:
    """Run all cases and print each. Returns rows, and why cases or quantities could not be compared."""
    rows: list[Row] = []
    failures: list[str] = []
    for case in cases:
        print(f"{case.number:>3} {case.title}", flush=True)
        file = known.files[case.platform]
        foretold = simulated(case, known.alone, file, spell, bound)
        seen = real(case, known.alone, repeats, spell, bound)
        found: list[Row] = []
        if isinstance(seen, Played):
            again = simulated(case, known.alone, file, spell, bound, statistics.median(seen.references))
            found, why = compared(case, foretold, seen, again, known.speeds[case.platform])
        else:
            why = [f"the real run failed: {seen.why}"]
        for each in (*map(line, found), *(f"    {each}" for each in why)):
            print(each, flush=True)
        rows += found
        failures += [f"{case.number:>3} {case.title}: {each}" for each in why]
    return rows, failures


def compared(
    case: Case, foretold: Played | Failed, seen: Played, then: Played | Failed, speed: float
) -> tuple[list[Row], list[str]]:
    """Rows of one case. speed: nanoseconds of the reference at calibration. then: the simulation at the speed of the
    real run."""
    if isinstance(foretold, Failed) or isinstance(then, Failed):
        return [], [f"the simulation failed: {one.why}" for one in (foretold, then) if isinstance(one, Failed)]
    rows, without = rows_of(case, foretold.values[0], seen.values, then.values[0], seen.references, speed)
    return rows, [f"{name}: nothing to compare" for name in without]


def told(rows: Sequence[Row], failures: Sequence[str]) -> str:
    parts = ["not compared:", *failures] if failures else []
    return "\n".join([*parts, "", summary(rows)])


# --- the command line -----------------------------------------------------------------------------------


def _parser() -> options.Options:
    parser = options.parser("prediction", __doc__)
    add = parser.add_argument
    add("--seed", type=options.least(0), default=1, help="seed that draws the cases (%(default)s)")
    add(
        "--platform", choices=ALL_PLATFORMS, nargs="+", default=list(PLATFORMS), help="kinds of devices (timed and cpu)"
    )
    parser.number("--cases", CASES, "number of cases")
    given = "cluster files that `seaway calibrate` wrote, one a platform; without them it measures now"
    add("--calibration", type=Path, nargs="+", default=[], metavar="FILE", help=given)
    add("--quick", action="store_true", help="calibrate quickly and less exactly")
    add("--repeats", type=options.least(1), default=REPEATS, help="real runs of a case (%(default)s)")
    add("--spell", type=options.seconds, default=SPELL, help="seconds of a measurement (%(default)g)")
    bound = "seconds after which a case, simulated or real, is given up (%(default)g)"
    add("--bound", type=options.seconds, default=BOUND, help=bound)
    add("--out", type=Path, metavar="FOLDER", help="keep the rows (CSV) and the calibrations here")
    return parser


def main(arguments: Sequence[str] = ()) -> list[Row]:
    """Print all of it, and return the rows."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    platforms = tuple(each for each in ALL_PLATFORMS if each in chosen.platform)
    with ExitStack() as stack:
        folder = chosen.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            known = frozen(platforms, chosen.calibration, folder, quick=chosen.quick, say=print)
        except (Impossible, NotImplementedError, OSError) as error:
            parser.error(str(error))
        print(described(known), flush=True)
        cases = drawn(chosen.seed, chosen.cases, platforms)
        print(f"seed {chosen.seed}: {chosen.cases} cases; {os.cpu_count()} cores play all processes\n{HEAD}")
        rows, failures = gone_through(cases, known, repeats=chosen.repeats, spell=chosen.spell, bound=chosen.bound)
        if not rows:
            raise RuntimeError(f"no case could be compared: {failures[0]}")
        print(told(rows, failures), flush=True)
        if chosen.out:
            save(rows, folder / "prediction.csv")
            print(folder / "prediction.csv")
        return rows
