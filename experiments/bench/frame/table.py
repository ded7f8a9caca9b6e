"""Tables of figures: the columns are said once, each with its format, and rows are printed as they are measured."""

from __future__ import annotations

import re

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
