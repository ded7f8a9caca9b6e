"""Append-only tables of integers in typed columns, and names as numbers: what a trace is made of."""

from __future__ import annotations

from array import array
from collections.abc import Iterator


class Strings:
    """Each string once; a row holds its number."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._numbers: dict[str, int] = {}

    def add(self, word: str) -> int:
        number = self._numbers.get(word)
        if number is None:
            number = self._numbers[word] = len(self.words)
            self.words.append(word)
        return number


class Table:
    """Columns by name, each of one `array` typecode.

    What `columns` hands out never changes: a later change is made
    to a copy. (An array cannot grow while numpy looks at it; so a view would otherwise stop the recording.)
    """

    def __init__(self, **typecodes: str) -> None:
        self._columns: dict[str, array[int]] = {name: array(code) for name, code in typecodes.items()}
        self._all = tuple(self._columns.values())
        self._shown = False

    def __len__(self) -> int:
        return len(self._all[0])

    @property
    def nbytes(self) -> int:
        return sum(len(column) * column.itemsize for column in self._all)

    def append(self, *values: int) -> int:
        """A row, in the order of the columns. Returned: its number."""
        if self._shown:
            self._copy()
        for column, value in zip(self._all, values, strict=True):
            column.append(value)
        return len(self._all[0]) - 1

    def extend(self, name: str, values: array[int]) -> None:
        """Many rows of a table of one column."""
        if self._shown:
            self._copy()
        self._columns[name].extend(values)

    def put(self, row: int, **values: int) -> None:
        if self._shown:
            self._copy()
        for name, value in values.items():
            self._columns[name][row] = value

    def row(self, row: int) -> dict[str, int]:
        return {name: column[row] for name, column in self._columns.items()}

    def keys(self) -> array[int]:
        """The first column."""
        return self._all[0]

    def column(self, name: str) -> array[int]:
        """To look at, now."""
        return self._columns[name]

    def columns(self) -> dict[str, array[int]]:
        """To keep."""
        self._shown = True
        return dict(self._columns)

    def rows(self) -> Iterator[dict[str, int]]:
        names = tuple(self._columns)
        for values in zip(*self._all, strict=True):
            yield dict(zip(names, values, strict=True))

    def _copy(self) -> None:
        self._shown = False
        self._columns = {name: column[:] for name, column in self._columns.items()}
        self._all = tuple(self._columns.values())
