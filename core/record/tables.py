"""Append-only tables of integers in typed columns, and names as numbers: what a trace is made of."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from struct import Struct, pack, unpack_from
from typing import Any, Protocol

Bytes = bytes | bytearray | memoryview | array  # type: ignore[type-arg]


class Vector(Protocol):
    """An array that does its own arithmetic, such as numpy's: 512 integers in microseconds."""

    def min(self) -> Any: ...
    def max(self) -> Any: ...
    def astype(self, dtype: str, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __getitem__(self, which: Any, /) -> Any: ...
    def __len__(self) -> int: ...


class Strings:
    """Each string once; a row holds its number."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._numbers: dict[str, int] = {}
        self.nbytes = 0  # of their letters

    def add(self, word: str) -> int:
        number = self._numbers.get(word)
        if number is None:
            number = self._numbers[word] = len(self.words)
            self.words.append(word)
            self.nbytes += len(word)
        return number

    def take(self, other: Strings) -> None:
        """Become what another is, for all who know this one."""
        self.words[:], self._numbers, self.nbytes = other.words, dict(other._numbers), other.nbytes


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

    def extend(self, name: str, values: Iterable[int]) -> None:
        """Many rows of a table of one column."""
        if self._shown:
            self._copy()
        self._columns[name].extend(values)

    def fill(self, columns: Mapping[str, Bytes]) -> None:
        """Rows for a table that has none: bytes as `columns` hands them out."""
        if set(columns) != set(self._columns):
            raise ValueError(f"columns {sorted(columns)}, where {sorted(self._columns)} are wanted")
        for name, column in self._columns.items():
            column.frombytes(bytes(columns[name]))
        if len({len(column) for column in self._all}) > 1:
            lengths = {name: len(column) for name, column in self._columns.items()}
            raise ValueError(f"columns of different lengths: {lengths}")

    def put(self, row: int, **values: int) -> None:
        if self._shown:
            self._copy()
        for name, value in values.items():
            self._columns[name][row] = value

    def keep(self, rows: Sequence[int]) -> None:
        """These, in ascending order, and no others. The last of them mostly follow one another: they go as one."""
        tail, last = len(rows), len(self)
        while tail and rows[tail - 1] == last - 1:
            tail, last = tail - 1, last - 1
        first = rows[:tail]
        self._columns = {
            name: array(column.typecode, [column[row] for row in first]) + column[last:]
            for name, column in self._columns.items()
        }
        self._all, self._shown = tuple(self._columns.values()), False

    def replace(self, name: str, values: Iterable[int]) -> None:
        """A whole column."""
        self._columns = {**self._columns, name: array(self._columns[name].typecode, values)}
        self._all = tuple(self._columns.values())

    def has(self, name: str) -> bool:
        return name in self._columns

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


class Lists:
    """Lists of integers in one column of bytes; what is kept of a list elsewhere is where it begins.

    A list is counted from its smallest, and takes as few bytes a number as the largest then needs. Where that is
    many, the steps from one number to the next are stored if they need fewer: hosts that are told one after the
    other differ much, and neighbours little. A list that was here lately is not stored again.

    There: bytes a number (and STEPS), how many; of steps: the smallest, and the first number; then all, with the
    low byte first.
    """

    HEAD, OF_STEPS, STEPS = Struct("<BI"), Struct("<qq"), 0x80
    LATELY = 64  # so many lists are remembered

    def __init__(self, column: Table, name: str) -> None:
        self._table, self._name = column, name
        self._lately: dict[bytes, int] = {}

    def add(self, numbers: Sequence[int] | Vector) -> tuple[int, int]:
        """(its smallest, where it begins)."""
        if hasattr(numbers, "astype"):
            numbers = numbers.astype("i8")
        smallest, width = _range(numbers)
        if width > 2:
            steps = _steps(numbers)
            least, less = _range(steps)
            if less < width:
                first = int(numbers[0]) - smallest
                head = self.HEAD.pack(less | self.STEPS, len(numbers)) + self.OF_STEPS.pack(least, first)
                return smallest, self._keep(head + _packed(steps, least, less))
        head = self.HEAD.pack(width, len(numbers))
        return smallest, self._keep(head + _packed(numbers, smallest, width))

    def get(self, at: int) -> list[int]:
        """The list that begins there, counted from its smallest."""
        column = self._table.column(self._name)
        width, count = self.HEAD.unpack_from(column, at)
        at += self.HEAD.size
        if not width & self.STEPS:
            return _unpacked(column, at, width, count)
        least, first = self.OF_STEPS.unpack_from(column, at)
        steps = _unpacked(column, at + self.OF_STEPS.size, width & ~self.STEPS, count - 1)
        return list(accumulate((step + least for step in steps), initial=first))

    def take(self, other: Lists, at: int) -> int:
        """Where another's list, stored as it is there, has come to."""
        column = other._table.column(other._name)
        width, count = self.HEAD.unpack_from(column, at)
        length = self.HEAD.size + width * count
        if width & self.STEPS:
            length = self.HEAD.size + self.OF_STEPS.size + (width & ~self.STEPS) * (count - 1)
        return self._keep(column[at : at + length].tobytes())

    def stored(self) -> array[int]:
        return self._table.column(self._name)

    def forget(self) -> None:
        """What is where has changed."""
        self._lately.clear()

    def _keep(self, found: bytes) -> int:
        at = self._lately.get(found)
        if at is None:
            at = self._lately[found] = len(self._table)
            self._table.extend(self._name, array("B", found))
            if len(self._lately) > self.LATELY:
                del self._lately[next(iter(self._lately))]  # the oldest
        return at


_CODES = ("", "B", "H", "I", "I", "", "", "", "Q")  # by width; 3 bytes are cut from 4
_DTYPES = ("", "<u1", "<u2", "<u4", "<u4", "", "", "", "<u8")


def _range(numbers: Any) -> tuple[int, int]:
    """(the smallest, bytes a number that is counted from it)."""
    if hasattr(numbers, "astype"):
        smallest, largest = int(numbers.min()), int(numbers.max())
    else:
        smallest, largest = min(numbers), max(numbers)
    return smallest, _width(largest - smallest)


def _packed(numbers: Any, smallest: int, width: int) -> bytes:
    """All of them, less the smallest."""
    if hasattr(numbers, "astype"):
        body: bytes = (numbers - smallest).astype(_DTYPES[width]).tobytes()
    else:
        body = pack(f"<{len(numbers)}{_CODES[width]}", *[number - smallest for number in numbers])
    if width == 3:
        narrow = bytearray(len(body) // 4 * 3)
        for byte in range(3):
            narrow[byte::3] = body[byte::4]
        body = bytes(narrow)
    return body


def _unpacked(column: array[int], at: int, width: int, count: int) -> list[int]:
    if width == 3:
        return [int.from_bytes(column[i : i + 3], "little") for i in range(at, at + 3 * count, 3)]
    return list(unpack_from(f"<{count}{_CODES[width]}", column, at))


def _steps(numbers: Any) -> Any:
    if hasattr(numbers, "astype"):
        return numbers[1:] - numbers[:-1]
    return [after - before for before, after in pairwise(numbers)]


def _width(largest: int) -> int:
    """Bytes that it takes."""
    width = (largest.bit_length() + 7) // 8 or 1
    return width if width <= 4 else 8
