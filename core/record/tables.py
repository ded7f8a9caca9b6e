"""The tables of a trace: integers in typed columns, strings as numbers, and lists of integers in few bytes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from struct import Struct, pack, unpack_from
from typing import Any, Protocol

APPEND: Callable[[array[int], int], None] = array.append
Bytes = bytes | bytearray | memoryview | array  # type: ignore[type-arg]


class Vector(Protocol):
    """An array that does its own arithmetic, such as numpy's: 512 integers in microseconds."""

    def min(self) -> Any: ...
    def max(self) -> Any: ...
    def astype(self, dtype: str, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __getitem__(self, which: Any, /) -> Any: ...
    def __len__(self) -> int: ...


class NumberPattern(Protocol):
    """A vector that never changes. Each is one object, as which it is known again."""

    @property
    def vector(self) -> Any: ...


class ShiftedNumbers(Protocol):
    """The numbers of a pattern, and `at` more."""

    @property
    def pattern(self) -> NumberPattern: ...
    @property
    def at(self) -> int: ...


Numbers = Sequence[int] | Vector | ShiftedNumbers


class Strings:
    """Keeps each string once; rows hold its number, which `numbers` gives by the string."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.numbers = StringNumbers(self)
        self.nbytes = 0  # letters of all strings

    def add(self, word: str) -> int:
        return self.numbers[word]

    def take(self, other: Strings) -> None:
        """Replace the contents of this object by those of another."""
        self.words[:], self.nbytes = other.words, other.nbytes
        self.numbers.clear()
        self.numbers.update(other.numbers)


class StringNumbers(dict[str, int]):
    """A string that is looked up for the first time is added. The others are found without a call of Python's."""

    def __init__(self, strings: Strings) -> None:
        super().__init__()
        self._strings = strings

    def __missing__(self, word: str) -> int:
        strings = self._strings
        number = self[word] = len(strings.words)
        strings.words.append(word)
        strings.nbytes += len(word)
        return number


class Table:
    """Columns by name, each of one `array` typecode.

    The arrays that `columns` returns never change: a later change is made to a copy. An array cannot grow while numpy
    has a view of it, so a view would stop the recording otherwise.
    """

    def __init__(self, **typecodes: str) -> None:
        self._columns: dict[str, array[int]] = {name: array(code) for name, code in typecodes.items()}
        self._all = tuple(self._columns.values())
        self._shared = False  # whether `columns` has returned these arrays

    def __len__(self) -> int:
        return len(self._all[0])

    @property
    def nbytes(self) -> int:
        return sum(len(column) * column.itemsize for column in self._all)

    def append(self, *values: int) -> int:
        """Append a row, given in the order of the columns. Return its number."""
        if self._shared:
            self._copy()
        columns = self._all
        if len(values) != len(columns):
            raise ValueError(f"a row of {len(values)} numbers for a table of {len(columns)} columns")
        any(map(APPEND, columns, values))  # in C; none of them returns anything
        return len(columns[0]) - 1

    def append_all(self, rows: Sequence[Sequence[int]]) -> None:
        """Append many rows, each given in the order of the columns."""
        if self._shared:
            self._copy()
        for column, values in zip(self._all, zip(*rows, strict=True), strict=True):
            column.extend(values)

    def extend(self, name: str, values: Iterable[int]) -> None:
        """Append many rows to a table of one column."""
        if self._shared:
            self._copy()
        self._columns[name].extend(values)

    def fill(self, columns: Mapping[str, Bytes]) -> None:
        """Fill an empty table with columns that another one returned, as bytes."""
        if set(columns) != set(self._columns):
            raise ValueError(f"the columns are {sorted(columns)}, but should be {sorted(self._columns)}")
        for name, column in self._columns.items():
            column.frombytes(bytes(columns[name]))
        if len({len(column) for column in self._all}) > 1:
            lengths = {name: len(column) for name, column in self._columns.items()}
            raise ValueError(f"columns of different lengths: {lengths}")

    def put_one(self, row: int, name: str, value: int) -> None:
        """Change one value of a row."""
        if self._shared:
            self._copy()
        self._columns[name][row] = value

    def put(self, row: int, **values: int) -> None:
        """Change values of a row."""
        if self._shared:
            self._copy()
        for name, value in values.items():
            self._columns[name][row] = value

    def keep(self, rows: Sequence[int]) -> None:
        """Keep only these rows, which are given in ascending order."""
        # The last rows are mostly kept without a gap, so they are copied as one block.
        tail, last = len(rows), len(self)
        while tail and rows[tail - 1] == last - 1:
            tail, last = tail - 1, last - 1
        first = rows[:tail]
        self._columns = {
            name: array(column.typecode, [column[row] for row in first]) + column[last:]
            for name, column in self._columns.items()
        }
        self._all, self._shared = tuple(self._columns.values()), False

    def replace(self, name: str, values: Iterable[int]) -> None:
        """Replace a whole column."""
        self._columns = {**self._columns, name: array(self._columns[name].typecode, values)}
        self._all = tuple(self._columns.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._columns)

    def has(self, name: str) -> bool:
        return name in self._columns

    def row(self, row: int) -> dict[str, int]:
        return {name: column[row] for name, column in self._columns.items()}

    def keys(self) -> array[int]:
        """Return the first column."""
        return self._all[0]

    def column(self, name: str) -> array[int]:
        """Return one column to read now; it changes with the table."""
        return self._columns[name]

    def columns(self) -> dict[str, array[int]]:
        """Return all columns to keep; they never change."""
        self._shared = True
        return dict(self._columns)

    def rows(self) -> Iterator[dict[str, int]]:
        names = tuple(self._columns)
        for values in zip(*self._all, strict=True):
            yield dict(zip(names, values, strict=True))

    def _copy(self) -> None:
        self._shared = False
        self._columns = {name: column[:] for name, column in self._columns.items()}
        self._all = tuple(self._columns.values())


class Lists:
    """Stores lists of integers in one column of bytes. Other tables refer to a list by the row where it begins.

    The smallest number is subtracted from a list, and each number then takes as few bytes as the largest needs. If that
    is more than two, the differences of consecutive numbers are stored instead, if they need fewer bytes: the times of
    hosts that are told one after the other differ much, but those of neighbours little. A list that was stored lately
    is not stored again.

    Format: bytes for each number (and the bit STEPS), the count; with STEPS, the smallest difference and the first
    number; then the numbers, each with the low byte first.
    """

    HEAD, OF_STEPS, STEPS = Struct("<BI"), Struct("<qq"), 0x80
    OF_ONE = HEAD.pack(1, 1) + b"\0"  # any list of one number
    LATELY = 64  # number of lists that are remembered, to store each once
    LARGEST = 4096  # numbers in a vector whose packed bytes are remembered as well
    PATTERNS = 16  # number of patterns whose packed bytes are remembered

    def __init__(self, column: Table, name: str) -> None:
        self._table, self._name = column, name
        self._lately: dict[bytes, int] = {}  # bytes of a list -> row where it begins
        # differences from the first number -> the smallest difference, and the bytes of the list
        self._vectors: dict[bytes, tuple[int, bytes]] = {}
        # the same of patterns: the smallest number, and the bytes of the list
        self._patterns: dict[NumberPattern, tuple[int, bytes]] = {}

    def add(self, numbers: Numbers) -> tuple[int, int]:
        """Store a list. Return (its smallest number, the row where it begins)."""
        given: Any = numbers
        if hasattr(given, "pattern"):
            return self._add_shifted(given)
        if len(given) == 1:
            return int(given[0]), self._store(self.OF_ONE)
        if hasattr(given, "astype"):
            given = given.astype("<i8")
            if len(given) <= self.LARGEST:
                return self._add_vector(given)
        smallest, packed = self._pack(given)
        return smallest, self._store(packed)

    def _add_shifted(self, numbers: ShiftedNumbers) -> tuple[int, int]:
        """Store the numbers of a pattern, which is packed once, whatever is added to it."""
        pattern = numbers.pattern
        known = self._patterns.get(pattern)
        if known is None:
            if len(self._patterns) >= self.PATTERNS:
                self._patterns.clear()
            known = self._patterns[pattern] = self._pack(pattern.vector.astype("<i8"))
        smallest, packed = known
        return numbers.at + smallest, self._store(packed)

    def _add_vector(self, numbers: Any) -> tuple[int, int]:
        """Store a vector. One that differs by a constant from an earlier one is not packed again."""
        first = int(numbers[0])
        relative = (numbers - first).tobytes()
        known = self._vectors.get(relative)
        if known is None:
            if len(self._vectors) >= self.LATELY:
                self._vectors.clear()
            smallest, packed = self._pack(numbers)
            known = self._vectors[relative] = smallest - first, packed
        below, packed = known
        return first + below, self._store(packed)

    def _pack(self, numbers: Any) -> tuple[int, bytes]:
        """Return (the smallest number, the list as bytes)."""
        smallest, width = _range(numbers)
        if width > 2:
            steps = _steps(numbers)
            smallest_step, step_width = _range(steps)
            if step_width < width:
                first = int(numbers[0]) - smallest
                head = self.HEAD.pack(step_width | self.STEPS, len(numbers))
                head += self.OF_STEPS.pack(smallest_step, first)
                return smallest, head + _packed(steps, smallest_step, step_width)
        head = self.HEAD.pack(width, len(numbers))
        return smallest, head + _packed(numbers, smallest, width)

    def get(self, at: int) -> list[int]:
        """Return the list that begins at this row, less its smallest number."""
        column = self._table.column(self._name)
        width, count = self.HEAD.unpack_from(column, at)
        at += self.HEAD.size
        if not width & self.STEPS:
            return _unpacked(column, at, width, count)
        smallest_step, first = self.OF_STEPS.unpack_from(column, at)
        steps = _unpacked(column, at + self.OF_STEPS.size, width & ~self.STEPS, count - 1)
        return list(accumulate((step + smallest_step for step in steps), initial=first))

    def take(self, other: Lists, at: int) -> int:
        """Store a list of another object here. Return the row where it begins."""
        column = other._table.column(other._name)
        width, count = self.HEAD.unpack_from(column, at)
        length = self.HEAD.size + width * count
        if width & self.STEPS:
            length = self.HEAD.size + self.OF_STEPS.size + (width & ~self.STEPS) * (count - 1)
        return self._store(column[at : at + length].tobytes())

    def stored(self) -> array[int]:
        return self._table.column(self._name)

    def forget(self) -> None:
        """Forget which lists were stored lately, because rows have moved."""
        self._lately.clear()

    def _store(self, packed: bytes) -> int:
        at = self._lately.get(packed)
        if at is None:
            at = self._lately[packed] = len(self._table)
            self._table.extend(self._name, array("B", packed))
            if len(self._lately) > self.LATELY:
                del self._lately[next(iter(self._lately))]  # the oldest
        return at


_CODES = ("", "B", "H", "I", "I", "", "", "", "Q")  # by bytes of a number; for 3, one byte of 4 is dropped
_DTYPES = ("", "<u1", "<u2", "<u4", "<u4", "", "", "", "<u8")


def _range(numbers: Any) -> tuple[int, int]:
    """Return (the smallest number, the bytes for each number less the smallest)."""
    if hasattr(numbers, "astype"):
        smallest, largest = int(numbers.min()), int(numbers.max())
    else:
        smallest, largest = min(numbers), max(numbers)
    return smallest, _width(largest - smallest)


def _packed(numbers: Any, smallest: int, width: int) -> bytes:
    """Return the numbers, less the smallest, as bytes."""
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
    """Return how many bytes a number up to this takes: 1 to 4, or 8."""
    width = (largest.bit_length() + 7) // 8 or 1
    return width if width <= 4 else 8
