"""Compares the simulator's predictions with real runs that it has not seen, and prints the errors.

`python -m experiments.bench prediction [--seed S] [--platform cpu timed] [--cases N] [--calibration FILE ...]
[--out FOLDER] [--measured FOLDER] [--ablate] [--explain CASE]`. First the simulator's knowledge is frozen: a calibrated
cluster for each platform, and how long CPU devices take for each computation alone. Then cases are drawn from the seed.
Each case is simulated, run for real several times, and simulated again at the machine's speed during the real runs. The
same code measures all of them: `measuring`. What `--out` keeps of the real runs, `--measured` compares with new
predictions.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from core.model import Impossible

from ..frame import options
from . import parts
from .cases import ALL_PLATFORMS, PLATFORMS, Case, drawn
from .explain import explained
from .freezing import KEPT, Frozen, calibrated, described, frozen
from .parts import PARTS, Worth, worth
from .playing import Failed, Played, real, simulated
from .table import HEAD, NOISY, Row, line, rows_of, save, summary

FULL = True
CASES, ALL_CASES = 28, 112
REPEATS = 3
SPELL = 1.0
BOUND = 180.0
MEASURED = "measured.json"


def gone_through(
    cases: Sequence[Case], known: Frozen, earlier: Mapping[int, Played], *,
    repeats: int, spell: float, bound: float, explain: bool = False,
) -> tuple[list[Row], dict[int, Played], list[str]]:  # fmt: skip
    """Run all cases and print each. Cases in `earlier` are not run for real again. Returns rows, what really came of
    the cases, and the reasons why cases or quantities could not be compared."""
    rows: list[Row] = []
    ran: dict[int, Played] = {}
    failures: list[str] = []
    for case in cases:
        print(f"{case.number:>3} {case.title}", flush=True)
        file = known.files[case.platform]
        foretold = simulated(case, known.alone, file, spell, bound)
        seen = earlier.get(case.number) or real(case, known.alone, repeats, spell, bound)
        found: list[Row] = []
        if isinstance(seen, Played):
            ran[case.number] = seen
            again = simulated(case, known.alone, file, spell, bound, statistics.median(seen.references))
            found, why = compared(case, foretold, seen, again, known.speeds[case.platform])
        else:
            why = [f"the real run failed: {seen.why}"]
        for row in found:
            print(line(row))
        for each in why:
            print(f"    {each}")
        if explain and isinstance(foretold, Played) and isinstance(seen, Played):
            print(explained(foretold, seen))
        sys.stdout.flush()
        rows += found
        failures += [f"{case.number:>3} {case.title}: {each}" for each in why]
    return rows, ran, failures


def compared(
    case: Case, foretold: Played | Failed, seen: Played, then: Played | Failed, speed: float
) -> tuple[list[Row], list[str]]:
    """Rows of one case. speed: nanoseconds of the reference at calibration. then: the simulation at the speed of the
    real run."""
    if isinstance(foretold, Failed) or isinstance(then, Failed):
        return [], [
            f"the simulation failed: {one.why}" for one in (foretold, then) if isinstance(one, Failed)
        ]
    rows, without = rows_of(case, foretold.values[0], seen.values, then.values[0], seen.references, speed)
    return rows, [f"{name}: nothing to compare" for name in without]


def ablated(
    cases: Sequence[Case], known: Frozen, rows: Sequence[Row], ran: Mapping[int, Played], spell: float, bound: float
) -> list[Worth]:  # fmt: skip
    """Predict again without each part of the model, at the speed that the machine had."""
    found = []
    for part in PARTS:
        changed: list[Row] = []
        for case in cases:
            if seen := ran.get(case.number):
                speed = statistics.median(seen.references)
                file = known.files[case.platform]
                then = simulated(case, known.alone, file, spell, bound, speed, part)
                changed += compared(case, then, seen, then, known.speeds[case.platform])[0]
        found.append(worth(part, rows, changed))
        print(f"  without {part}", flush=True)
    return found


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
    add(
        "--platform",
        choices=ALL_PLATFORMS,
        nargs="+",
        default=list(PLATFORMS),
        help="kinds of devices (timed and cpu)",
    )
    add("--cases", type=options.least(1), help="number of cases")
    given = "cluster files that `seaway calibrate` wrote, one a platform; without them it measures now"
    add("--calibration", type=Path, nargs="+", default=[], metavar="FILE", help=given)
    add("--alone", type=Path, metavar="FILE", help=f"use {KEPT} of an earlier --out instead of measuring")
    add("--quick", action="store_true", help="calibrate quickly and less exactly")
    add("--repeats", type=options.least(1), default=REPEATS, help="real runs of a case (%(default)s)")
    add("--spell", type=options.seconds, default=SPELL, help="seconds of a measurement (%(default)g)")
    bound = "seconds after which a case, simulated or real, is given up (%(default)g)"
    earlier = f"take the calibrations, {KEPT} and {MEASURED} of an earlier --out, and run nothing for real"
    add("--measured", type=Path, metavar="FOLDER", help=earlier)
    add(
        "--ablate",
        action="store_true",
        help="predict again without each part of the model, and print the errors",
    )
    add("--bound", type=options.seconds, default=BOUND, help=bound)
    alone = "run only this case, and print CPU time by process and thread"
    add("--explain", type=options.least(1), metavar="CASE", help=alone)
    add("--out", type=Path, metavar="FOLDER", help="write CSV, Parquet, a picture and the calibrations here")
    return parser


def main(arguments: Sequence[str] = ()) -> None:
    parser = _parser()
    chosen = parser.parse_args(arguments)
    earlier: list[tuple[Case, Played]] = []
    if chosen.measured:
        earlier = _taken_from(parser, chosen)
    number = chosen.cases or (ALL_CASES if chosen.full else CASES)
    if chosen.explain and chosen.explain > number:
        parser.error(f"--explain {chosen.explain}: there are cases 1 to {number}; draw more with --cases")
    platforms = tuple(each for each in ALL_PLATFORMS if each in chosen.platform)
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
        cases = [case for case, _ in earlier] or drawn(chosen.seed, number, platforms)
        wanted = [case for case in cases if chosen.explain in (None, case.number)]
        print(
            f"seed {chosen.seed}: {len(wanted)} of {number} cases; {os.cpu_count()} cores play all processes\n{HEAD}"
        )
        there = {case.number: seen for case, seen in earlier}
        rows, ran, failures = gone_through(
            wanted, known, there, repeats=chosen.repeats, spell=chosen.spell, bound=chosen.bound,
            explain=chosen.explain is not None,
        )  # fmt: skip
        if not rows:
            raise RuntimeError(f"no case could be compared: {failures[0]}")
        print(told(rows, failures), flush=True)
        if chosen.ablate:
            print(parts.shown(ablated(wanted, known, rows, ran, chosen.spell, chosen.bound)), flush=True)
        if chosen.out:
            kept = [(case, ran[case.number]) for case in wanted if case.number in ran]
            (folder / MEASURED).write_bytes(msgspec.json.encode(kept))
            print("\n".join(str(path) for path in save(rows, folder)))


def _taken_from(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> list[tuple[Case, Played]]:
    """The cases of an earlier run, for the platforms asked for; its frozen knowledge becomes that of this run."""
    path = chosen.measured / MEASURED
    try:
        found = msgspec.json.decode(path.read_bytes(), type=list[tuple[Case, Played]])
    except OSError as error:
        parser.error(f"--measured {path} cannot be read: {error.strerror}")
    except msgspec.DecodeError as error:
        parser.error(f"--measured {path} is not what --out left: {error}")
    found = [(case, seen) for case, seen in found if case.platform in chosen.platform]
    chosen.platform = list(dict.fromkeys(case.platform for case, _ in found))
    chosen.calibration = [calibrated(each, chosen.measured) for each in chosen.platform]
    chosen.alone = chosen.measured / KEPT if {*chosen.platform} - {"timed"} else None
    return found
