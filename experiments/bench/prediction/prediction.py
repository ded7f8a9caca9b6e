"""Compares the simulator's predictions with real runs that it has not seen, and prints the errors.

`python -m experiments.bench prediction [--seed S] [--platform cpu timed] [--cases N] [--calibration FILE ...]
[--out FOLDER] [--explain CASE]`. First the simulator's knowledge is frozen: a calibrated cluster for each platform, and
how long CPU devices take for each computation alone. Then cases are drawn from the seed. Each case is simulated, run
for real several times, and simulated again at the machine's speed during each real run. The same code measures all of
them: `measuring`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from core.model import Impossible

from ..frame import options
from .cases import PLATFORMS, Case, drawn
from .explain import explained
from .freezing import KEPT, Frozen, described, frozen
from .playing import Failed, Played, real, simulated
from .table import HEAD, NOISY, Row, line, rows_of, save, summary

FULL = True
CASES, ALL_CASES = 28, 112
REPEATS = 3
SPELL = 1.0
BOUND = 180.0


def gone_through(
    cases: Sequence[Case], known: Frozen, *, repeats: int, spell: float, bound: float, explain: bool = False
) -> tuple[list[Row], list[str]]:
    """Run all cases and print each. Returns rows, and the reasons why cases or quantities could not be compared."""
    rows: list[Row] = []
    failures: list[str] = []
    for case in cases:
        print(f"{case.number:>3} {case.title}", flush=True)
        foretold = simulated(case, known.alone, known.files[case.platform], spell, bound)
        seen = real(case, known.alone, repeats, spell, bound)
        speed = known.speeds[case.platform]
        again = [
            simulated(case, known.alone, known.files[case.platform], spell, bound, reference)
            for reference in (seen.references if isinstance(seen, Played) else ())
        ]
        found, why = compared(case, foretold, seen, again, speed)
        for row in found:
            print(line(row))
        for each in why:
            print(f"    {each}")
        if explain and isinstance(foretold, Played) and isinstance(seen, Played):
            print(explained(foretold, seen))
        sys.stdout.flush()
        rows += found
        failures += [f"{case.number:>3} {case.title}: {each}" for each in why]
    return rows, failures


def compared(
    case: Case,
    foretold: Played | Failed,
    seen: Played | Failed,
    again: Sequence[Played | Failed],
    speed: float,
) -> tuple[list[Row], list[str]]:
    """Rows of one case. speed: nanoseconds of the reference at calibration. again: simulations for each repeat."""
    sides = (
        ("the simulation", foretold),
        ("the real run", seen),
        *(("a simulation", each) for each in again),
    )
    why = [f"{which} failed: {played.why}" for which, played in sides if isinstance(played, Failed)]
    thens = [each.values[0] for each in again if isinstance(each, Played)]
    if isinstance(foretold, Failed) or isinstance(seen, Failed) or why:
        return [], why
    rows, without = rows_of(case, foretold.values[0], seen.values, thens, seen.references, speed)
    return rows, [f"{name}: nothing to compare" for name in without]


def told(rows: Sequence[Row], failures: Sequence[str]) -> str:
    parts = []
    if noisy := [row for row in rows if row.noisy]:
        parts.append(
            f"repeats differ by more than {NOISY:.0%} even at equal speed, so these cannot judge a model:"
        )
        last = 0
        for row in noisy:
            if row.number != last:
                parts.append(f"{row.number:>3} {row.case}")
            last = row.number
            parts.append(line(row))
    if failures:
        parts += ["not compared:", *failures]
    return "\n".join([*parts, "", summary(rows)])


# --- the command line -----------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = options.parser("prediction", __doc__, full=f"{ALL_CASES} cases instead of {CASES}")
    add = parser.add_argument
    add("--seed", type=options.least(0), default=1, help="seed that draws the cases (%(default)s)")
    add("--platform", choices=PLATFORMS, nargs="+", default=list(PLATFORMS), help="kinds of devices (both)")
    add("--cases", type=options.least(1), help="number of cases")
    given = "cluster files that `seaway calibrate` wrote, one a platform; without them it measures now"
    add("--calibration", type=Path, nargs="+", default=[], metavar="FILE", help=given)
    add("--alone", type=Path, metavar="FILE", help=f"use {KEPT} of an earlier --out instead of measuring")
    add("--quick", action="store_true", help="calibrate quickly and less exactly")
    add("--repeats", type=options.least(1), default=REPEATS, help="real runs of a case (%(default)s)")
    add("--spell", type=options.seconds, default=SPELL, help="seconds of a measurement (%(default)g)")
    bound = "seconds after which a case, simulated or real, is given up (%(default)g)"
    add("--bound", type=options.seconds, default=BOUND, help=bound)
    alone = "run only this case, and print CPU time by process and thread"
    add("--explain", type=options.least(1), metavar="CASE", help=alone)
    add("--out", type=Path, metavar="FOLDER", help="write CSV, Parquet, a picture and the calibrations here")
    return parser


def main(arguments: Sequence[str] = ()) -> None:
    parser = _parser()
    chosen = parser.parse_args(arguments)
    number = chosen.cases or (ALL_CASES if chosen.full else CASES)
    if chosen.explain and chosen.explain > number:
        parser.error(f"--explain {chosen.explain}: there are cases 1 to {number}; draw more with --cases")
    platforms = tuple(each for each in PLATFORMS if each in chosen.platform)
    with ExitStack() as stack:
        folder = chosen.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            known = frozen(
                platforms, chosen.calibration, folder, alone=chosen.alone, quick=chosen.quick, say=print
            )
        except (Impossible, NotImplementedError, OSError) as error:
            parser.error(str(error))
        print(described(known), flush=True)
        cases = drawn(chosen.seed, number, platforms)
        wanted = [case for case in cases if chosen.explain in (None, case.number)]
        print(
            f"seed {chosen.seed}: {len(wanted)} of {number} cases; {os.cpu_count()} cores play all processes\n{HEAD}"
        )
        rows, failures = gone_through(
            wanted, known, repeats=chosen.repeats, spell=chosen.spell, bound=chosen.bound,
            explain=chosen.explain is not None,
        )  # fmt: skip
        if not rows:
            raise RuntimeError(f"no case could be compared: {failures[0]}")
        print(told(rows, failures), flush=True)
        if chosen.out:
            print("\n".join(str(path) for path in save(rows, folder)))
