"""Benchmarks' command lines: an argument parser, and types that refuse wrong values.

A benchmark with options takes them as `main(arguments)`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Literal, get_args

Platform = Literal["cpu", "cuda"]


class Options(argparse.ArgumentParser):
    def number(self, name: str, default: int, text: str, *, at_least: int = 1) -> None:
        self.add_argument(name, type=least(at_least), default=default, help=f"{text} (%(default)s)")

    def platform(self) -> None:
        self.add_argument("--platform", choices=get_args(Platform), default="cpu", help="kind of devices (%(default)s)")

    def numbers(self, name: str, default: Sequence[int], text: str) -> None:
        shown = " ".join(map(str, default))
        self.add_argument(name, type=least(1), nargs="+", default=default, help=f"{text} ({shown})")


def parser(name: str, text: str | None) -> Options:
    """`text`: the module's docstring, whose first line is shown."""
    return Options(
        prog=f"python -m experiments.bench {name}", description=(text or "").partition("\n")[0], allow_abbrev=False
    )


def least(bound: int) -> Callable[[str], int]:
    """An argument type: a whole number of at least `bound`."""

    def whole(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if number < bound:
            raise argparse.ArgumentTypeError(f"{number} is too few: at least {bound}")
        return number

    return whole


def seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} s: more than 0")
    return found


# --- tables of figures ------------------------------------------------------------------------------------------------

SPEC = re.compile(r"(.*?) ?([<>^])(\+?)(\d+)(,?(?:\.\d+)?[fdegs%]?)(.*)")


class Table:
    """Columns are written "TITLE FORMAT", such as "CPU us >9.1f", with a unit behind it: "x naive >9,.1fx"."""

    def __init__(self, *columns: str) -> None:
        self._columns = [found.groups() for column in columns if (found := SPEC.fullmatch(column))]
        assert len(self._columns) == len(columns), columns

    def head(self) -> str:
        return "".join(f"{title:{side}{width}}" for title, side, _, width, _, _ in self._columns)

    def line(self, *cells: object) -> str:
        """Text stands as it is, and None leaves a cell empty."""
        return "".join(
            f"{_shown(cell, sign + number, unit):{side}{width}}"
            for cell, (_, side, sign, width, number, unit) in zip(cells, self._columns, strict=False)
        )

    def begin(self, *above: str) -> Table:
        """Print the head, with lines above it."""
        print(*above, self.head(), sep="\n", flush=True)
        return self

    def row(self, *cells: object) -> None:
        print(self.line(*cells), flush=True)


def _shown(cell: object, number: str, unit: str) -> str:
    if cell is None or isinstance(cell, str):
        return cell or ""
    return format(cell, number) + unit
