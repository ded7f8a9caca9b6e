"""Consecutive names as one: a call of a thousand arrays names them as `Range(first, 1000)`, and they are counted so.

A table of buffers has one record for all names of a range while they are all used alike. A record says by `count` how
many names it covers, and `part(at)` cuts it in two. A `RangeTable` that is asked for some of the names that a record
covers cuts the record there first. So what a record says is true of all its names, and a caller need not know which
names have one record.

Neighbours: messages carry ranges; the buffers of client, controller and hosts are in such tables.
The functions that matter: `folded`, `each`; `RangeTable.over`, `alone`, `cut`.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any, Protocol, Self, TypeVar

import msgspec

FEW = 8  # fewer names than this travel one by one


class Range(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`count` consecutive names, from `first` on."""

    first: Annotated[int, msgspec.Meta(ge=1)]
    count: Annotated[int, msgspec.Meta(ge=1)]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # it is immutable


class Record(Protocol):
    """Part of a table: it covers `count` names."""

    count: int

    def part(self, at: int) -> Any:
        """Keep the first `at` names, and return a record of the others that is otherwise the same."""
        ...


R = TypeVar("R", bound=Record)


def ranged(first: int, count: int) -> int | Range:
    return first if count == 1 else Range(first, count)


def span(names: int | Range) -> tuple[int, int]:
    """(first, how many)."""
    return (names, 1) if isinstance(names, int) else (names.first, names.count)


def each(names: Iterable[Any]) -> list[Any]:
    """All names, one by one. What is no range (a name, or a literal) stays."""
    found: list[Any] = []
    for name in names:
        if type(name) is Range:
            found.extend(range(name.first, name.first + name.count))
        else:
            found.append(name)
    return found


def number(names: Sequence[Any]) -> int:
    """How many there are, each of a range counted."""
    for name in names:
        if type(name) is Range:
            return len(names) + sum([name.count - 1 for name in names if type(name) is Range])
    return len(names)


def folded(names: Sequence[Any], few: int = FEW) -> tuple[Any, ...]:
    """The same names, with those that follow one another as ranges. What is no name (below 1, or bytes) stays."""
    many = len(names)
    if many < few:
        return tuple(names)
    found: list[Any] = []
    at = 0
    while at < many:
        name = names[at]
        end = at + 1
        if type(name) is int and name > 0 and end < many and names[end] == name + 1:
            end = _end(names, at)
            if list(names[at:end]) != list(range(name, name + end - at)):  # some between are others
                end = at + 1
                while end < many and names[end] == name + end - at:
                    end += 1
        if end - at >= few:
            found.append(Range(name, end - at))
        else:
            found.extend(names[at:end])
        at = end
    return tuple(found)


def ascending(names: Iterable[int], few: int = FEW) -> list[int | Range]:
    """The same names, none of which is there twice, in order, with those that follow one another as ranges."""
    ordered = sorted(names)
    found: list[int | Range] = []
    at = 0
    while at < len(ordered):
        end = _end(ordered, at)
        if end - at >= few:
            found.append(Range(ordered[at], end - at))
        else:
            found.extend(ordered[at:end])
        at = end
    return found


def joined(names: Iterable[int | Range]) -> list[int | Range]:
    """The same names, none of which is there twice, in order and in as few ranges as can be."""
    found: list[list[int]] = []
    for first, count in sorted(map(span, names)):
        if found and found[-1][0] + found[-1][1] == first:
            found[-1][1] += count
        else:
            found.append([first, count])
    return [ranged(first, count) for first, count in found]


def _end(names: Sequence[Any], at: int) -> int:
    """Where the consecutive names that begin `at` end, if they go on to be consecutive until one is not. Asks for few
    of them: twice as far each time, and half as far from where one is another."""
    first, end, size, grows = names[at] - at, at + 1, 1, True
    while size:
        last = end + size - 1
        if last < len(names) and names[last] == first + last:
            end = last + 1
        else:
            grows = False
        size = 2 * size if grows else size // 2
    return end


def once(names: Sequence[int | Range]) -> bool:
    """Whether none of them is named twice."""
    if Range not in set(map(type, names)):
        return len(set(names)) == len(names)
    spans = sorted(
        [(each, each) if isinstance(each, int) else (each.first, each.first + each.count - 1) for each in names]
    )
    return all(high < low for (_, high), (low, _) in pairwise(spans))


class RangeTable(dict[int, R]):
    """Records by the first of their names. A record that covers one name is an entry as in any `dict`."""

    __slots__ = ("_wide",)

    def __init__(self) -> None:
        super().__init__()
        self._wide: list[int] = []  # the first names of records that cover several, ascending

    def put(self, first: int, record: R) -> None:
        self[first] = record
        if record.count > 1:
            insort(self._wide, first)

    def drop(self, first: int) -> R | None:
        record = self.pop(first, None)
        if record is not None and record.count > 1:
            self._wide.remove(first)
        return record

    def twin(self, copied: Callable[[R], R]) -> RangeTable[R]:
        """The same with copies of the records."""
        found: RangeTable[R] = RangeTable()
        found.update({first: copied(record) for first, record in self.items()})
        found._wide = self._wide.copy()
        return found

    def names(self) -> int:
        """How many names there are."""
        return len(self) + sum([self[first].count - 1 for first in self._wide])

    def find(self, name: int) -> R | None:
        """The record that covers this name, perhaps with others."""
        record = self.get(name)
        if record is None and self._wide:
            at = bisect_right(self._wide, name) - 1
            if at >= 0:
                first = self._wide[at]
                if name < first + self[first].count:
                    return self[first]
        return record

    def covering(self, names: Iterable[int | Range]) -> Iterator[tuple[R, range]]:
        """The records of these names, each with those that it covers. None is cut; names without are left out."""
        for each in names:
            first, count = (each, 1) if isinstance(each, int) else (each.first, each.count)
            end = first + count
            while first < end:
                record, last = self.get(first), first + 1
                if record is None and self._wide:
                    record = self.find(first)
                if record is not None:
                    start = first if first in self else self._wide[bisect_right(self._wide, first) - 1]
                    last = min(end, start + record.count)
                    yield record, range(first, last)
                first = last

    def alone(self, name: int) -> R | None:
        """The record of this name alone."""
        record = self.get(name)
        if (record is None and self._wide) or (record is not None and record.count > 1):
            self.cut(name)
            self.cut(name + 1)
            record = self.get(name)
        return record

    def over(self, first: int, count: int) -> list[R]:
        """The records of these names, in order. Names that are not in the table are left out."""
        record = self.get(first)
        if record is not None and record.count == count:
            return [record]
        if record is None and not self._wide and count == 1:
            return []
        return [record for _, record in self.there(first, count)]

    def there(self, first: int, count: int) -> list[tuple[int, R]]:
        """The same, each with its first name."""
        if count <= len(self):
            return [(name, record) for name, record in self.parts(first, count) if record is not None]
        self.cut(first)
        self.cut(first + count)
        return [(name, self[name]) for name in sorted([name for name in self if first <= name < first + count])]

    def take(self, first: int, count: int) -> list[R]:
        """The records of these names, in order, which are not in the table any more."""
        record = self.get(first)
        if record is not None and count == record.count == 1:
            del self[first]
            return [record]
        found = self.there(first, count)
        for name, _ in found:
            self.drop(name)
        return [record for _, record in found]

    def parts(self, first: int, count: int) -> Iterator[tuple[int, R | None]]:
        """The same, each with its first name; and None with each name that is not in the table."""
        self.cut(first)
        self.cut(first + count)
        at, end = first, first + count
        while at < end:
            record = self.get(at)
            yield at, record
            at += 1 if record is None else record.count

    def cut(self, name: int) -> None:
        """Let no record cover this name and the one before it."""
        if self._wide and name not in self:
            record = self.find(name)
            if record is not None:
                at = bisect_right(self._wide, name) - 1
                first = self._wide[at]
                self._split(first, name, record)

    def _split(self, first: int, name: int, record: R) -> None:
        self.divided(first, name, record.part(name - first))

    def divided(self, first: int, name: int, rest: R) -> None:
        """The record of `first` has been cut, and `rest` has the names from `name` on."""
        if self[first].count == 1:
            self._wide.remove(first)
        self.put(name, rest)

    def open(self, record: R, first: int) -> None:
        """Give each name that this record covers a record of its own."""
        for name in range(first + record.count - 1, first, -1):
            self.cut(name)
