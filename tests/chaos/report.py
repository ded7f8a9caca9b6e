"""The table: for each kind of fault, how often it was tried, what came of it, and how long that took.

`python -m tests.chaos.report FILE...` prints one table for several runs, from what `--append` wrote.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from .campaign import Round, touches
from .judge import OUTCOMES

COLUMNS = ("ok", "error", "late", "needless", "unnamed", "leak", "spread", "died", "hang", "wrong")


def name_of(found: Round) -> str:
    """The kind of a round. A burst is a kind of its own."""
    return touches(found.faults[0]) if len(found.faults) == 1 else "two in a row"


def table(rounds: Sequence[Round]) -> str:
    assert set(COLUMNS) == set(OUTCOMES)
    names = sorted({name_of(each) for each in rounds})
    head = ["fault", "tries", *COLUMNS, "to error", "worst", "to resume", "worst"]
    rows = [head] + [_row(name, [each for each in rounds if name_of(each) == name]) for name in names]
    if len(names) > 1:
        rows.append(_row("all", list(rounds)))
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    words = [row[0].ljust(widths[0])]
    words += [word.rjust(width) for word, width in zip(row[1:], widths[1:], strict=True)]
    return "  ".join(words).rstrip()


def _row(name: str, rounds: Sequence[Round]) -> list[str]:
    verdicts = [each.verdict for each in rounds]
    counts = [sum(each.outcome == outcome for each in verdicts) for outcome in COLUMNS]
    faults = sum(len(each.faults) for each in rounds)
    errors = [each.to_error for each in verdicts if each.to_error is not None]
    resumes = [each.to_resume for each in verdicts if each.to_resume is not None]
    return [name, str(faults), *(str(count or "") for count in counts), *_times(errors), *_times(resumes)]


def _times(seconds: Sequence[float]) -> list[str]:
    return [f"{median(seconds):.1f} s", f"{max(seconds):.1f} s"] if seconds else ["", ""]


def main() -> None:
    lines = [line for name in sys.argv[1:] for line in Path(name).read_bytes().splitlines()]
    print(table([msgspec.json.decode(line, type=Round) for line in lines]))


if __name__ == "__main__":
    main()
