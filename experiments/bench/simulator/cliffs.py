"""Measures what users write naturally, each beside the plain case: is there a cliff?

`python -m experiments.bench cliffs [--rows NAME ...] [--quick] [--limit SECONDS]`; docs/benchmarks.md says what it
prints. Figures are medians of CPU time a gang, and of the ratios of plays that followed one another, without start-up.
Each line runs in a process of its own, and one play of a program may take `--limit` CPU seconds; a line that takes
longer says how long it was waited for, and what a gang costs at least. `growth` is the steepest exponent of the cost of
a gang, in plain gangs, between two sizes, and `at most` is what it may be: 0 where more slices or nodes are only more
gangs, and 1 where a gang itself has more hosts or arrays.
"""

from __future__ import annotations

import gc
import math
import signal
import sys
from collections.abc import Sequence
from statistics import median
from time import process_time
from typing import Any, Literal, NamedTuple

from ..frame import options, processes
from ..frame.options import Table
from .cliff_programs import Play
from .cliff_rows import PLAIN, ROWS, Row

HOSTS, FEW_HOSTS = 512, 64  # unless a row says otherwise; the latter with --quick
ROUNDS = 5
LIMIT = 100  # CPU seconds for a play
SHORTEST = 0.2  # CPU seconds that are measured of a play, unless it ends before
STALL = 12  # times the limit may pass on a busy machine
TOLERANCE = 0.25  # of an exponent: 1.4 times at four times the size
APART = 4  # times: sizes that are closer say little about growth


# --- in a process of its own ------------------------------------------------------------------------------------------


class Meter:
    """Takes the CPU time from when `warm` gangs have been made until `gangs` more have, and SHORTEST has passed: where
    a limit is set on it, the system counts CPU time in steps of some milliseconds."""

    def __init__(self, warm: int, gangs: int) -> None:
        self.warm, self.gangs = warm, gangs
        self.made = 0
        self._first: int | None = None
        self.since = 0.0
        self.us: float | None = None
        self._enough = False

    def __call__(self, number: int) -> bool:
        self.made += number
        if self._first is None:
            if self.made >= self.warm:
                self._first, self.since = self.made, process_time()
        elif not self._enough and self.made - self._first >= self.gangs:
            spent = process_time() - self.since
            self.us = 1e6 * spent / (self.made - self._first)
            self._enough = spent >= SHORTEST
        return self._enough

    def at_least(self) -> float | None:
        """What a gang costs at least, if the play is given up now. None: its measured gangs have not begun."""
        if self._first is None:
            return None
        return 1e6 * (process_time() - self.since) / self.gangs


def line(name: str, size: int, hosts: int, rounds: int, limit: int) -> dict[str, Any]:
    """CPU us a gang, of this row, of what it is compared with and of the plain case, a number for each round. A play
    that takes longer than the limit ends the process, which says what is known."""
    row, begun = ROWS[name], process_time()
    found: dict[str, Any] = {"row": [], "base": [], "plain": []}
    for done in range(rounds):
        if done and (process_time() - begun) * (done + 1) / done > limit:
            break  # another round would not be over in time
        if row.against == "exact":  # which may be the slower one
            found["row"].append(played(row, size, hosts, limit, found | {"over": "row"}))
            found["plain"].append(played(PLAIN, 0, FEW_HOSTS, limit, found | {"over": "base"}))
            found["base"].append(played(row, size, hosts, limit, found | {"over": "base"}, "exact"))
        else:
            found["base"].append(played(PLAIN, 0, hosts, limit, found | {"over": "base"}))
            found["plain"] = found["base"]
            found["row"].append(played(row, size, hosts, limit, found | {"over": "row"}))
    return found


def played(
    row: Row, size: int, most: int, limit: int, known: dict[str, Any], fidelity: Literal["exact", "cohort"] = "cohort"
) -> float | None:
    """CPU us a gang. After this many CPU seconds from now the process says what is known and ends."""
    meter = Meter(row.warm(size), row.gangs(size))

    def over(*_: object) -> None:
        processes.say(known | {"at_least": meter.at_least()})
        processes.leave()

    gc.collect()
    signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, limit)
    row.program(Play(row.hosts(size, most), meter, fidelity), size)
    return meter.us


# --- what is printed --------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """What was measured of a row at a size. None: not known. `over`: which of row and base was given up. `by_turns`:
    how many times as long as the base the row took in its rounds, and `plain_gangs`: as the plain case."""

    size: int
    us: float | None
    base: float | None
    over: str = ""
    by_turns: float | None = None
    plain_gangs: float | None = None

    @property
    def ratio(self) -> float | None:
        if self.by_turns is not None:
            return self.by_turns
        return self.us / self.base if self.us is not None and self.base else None


def measured(name: str, size: int, hosts: int, rounds: int, limit: int) -> Line:
    try:
        found = processes.answer(line, name, size, hosts, rounds, limit, bound=STALL * limit)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return Line(size, None, None, "failed")
    us, base = (median(found[which]) if found[which] else None for which in ("row", "base"))
    over = found.get("over", "")
    if us is None and over == "row":
        us = found["at_least"]
    elif base is None and over == "base":
        base = found["at_least"]
    else:
        over = ""  # an earlier round was over in time
    return Line(size, us, base, over, by_turns(found, "base"), by_turns(found, "plain"))


def by_turns(found: dict[str, Any], other: str) -> float | None:
    """A shared machine's speed changes between rounds more than within one: the median of the rounds' ratios."""
    ratios = [row / base for row, base in zip(found["row"], found[other], strict=False) if row and base]
    return median(ratios) if ratios else None


def growth(lines: Sequence[Line]) -> float | None:
    """The steepest exponent of the cost of a gang between two sizes that are far enough apart. Costs are in plain
    gangs, if these are known: the speed of a shared machine changes from line to line."""
    plain = all(line.plain_gangs for line in lines)
    known = [(line.size, line.plain_gangs if plain else line.us) for line in lines]
    found = [
        exponent(smaller, less, larger, more)
        for smaller, less in known
        for larger, more in known
        if less and more and larger >= APART * smaller
    ]
    return max(found, default=None)


def exponent(smaller: int, less: float, larger: int, more: float) -> float:
    """0: the costs are the same; 1: they grow as the sizes do."""
    return math.log(more / less) / math.log(larger / smaller)


def beyond(row: Row, line: Line) -> bool:
    if row.bound_us is not None:
        return line.us is None or line.us > row.bound_us
    if line.over == "base":  # what it is compared with takes longer than all of it
        return False
    return line.ratio is None or line.ratio > row.bound


def verdict(row: Row, line: Line, limit: int) -> str:
    if line.over == "failed":
        return "FAILED"
    if line.over == "row":
        return f"OVER {limit} s" if line.us else f"OVER {limit} s, at start-up"
    return "BEYOND" if beyond(row, line) else "met"


def show(name: str, table: Table, quick: bool, limit: int) -> bool:
    """Measure and print a row. Returns whether it is as it should be."""
    row, lines, good = ROWS[name], [], True
    sizes, hosts, rounds = (row.quick, FEW_HOSTS, 1) if quick else (row.sizes, HOSTS, ROUNDS)
    for size in sizes:
        found = measured(name, size, hosts, rounds, limit)
        lines.append(found)
        words, grown = verdict(row, found, limit), None
        good &= words == "met"
        if size == sizes[-1]:
            grown = growth(lines)
            if grown is not None and grown > row.law + TOLERANCE:
                good, words = False, "GROWS" if words == "met" else f"{words}, GROWS"
        bound = f"{row.bound_us:,.0f} us" if row.bound_us is not None else f"{row.bound:g}x"
        table.row(
            row.what.replace("#", f"{size:,}"), _least(found.us, found.over == "row"),
            _least(found.base, found.over == "base"), f"  {row.against}",
            _least(found.ratio, found.over == "row", ".1f"), bound, None if grown is None else f"{grown:.2f}",
            None if grown is None else f"{row.law}", f"  {words}",
        )  # fmt: skip
    return good


def _least(number: float | None, only: bool, form: str = ",.0f") -> str:
    """`only`: it is known that it is at least this much."""
    return "-" if number is None else f"{'>' if only else ''}{number:{form}}"


def main(arguments: Sequence[str] = ()) -> int:
    parser = options.parser("cliffs", __doc__)
    parser.add_argument(
        "--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME", help=f"of {' '.join(ROWS)} (all)"
    )
    parser.add_argument("--quick", action="store_true", help=f"smaller sizes, {FEW_HOSTS} hosts, one round")
    parser.number("--limit", LIMIT, "CPU seconds for a play of a program")
    asked = parser.read(arguments)
    table = Table("row <56", "CPU us a gang >13", "against us >12", "  of <8", "ratio >10", "bound >10", "growth >8",
                  "at most >9", "  verdict <18")  # fmt: skip
    hosts, rounds = (FEW_HOSTS, 1) if asked.quick else (HOSTS, ROUNDS)
    table.begin(f"{hosts} hosts unless a row says otherwise; medians of {rounds}; stride; profile paper")
    bad = [name for name in asked.rows if not show(name, table, asked.quick, asked.limit)]
    print(f"\n{len(asked.rows) - len(bad)} of {len(asked.rows)} rows are as they should be")
    for name in bad:
        print(f"  not: python -m experiments.bench cliffs --rows {name}{' --quick' if asked.quick else ''}")
    return 1 if bad else 0
