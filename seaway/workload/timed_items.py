"""`TimedItems`: things that arrive, each at its time. Plain values, which a session plays as often as one likes.

Neighbours: `open_loop` has requests and `jobs` has jobs; `arrival_files` reads and writes both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

import msgspec

from ..units import Nanoseconds, Time, duration
from ..wording import duration as worded
from ..wording import plural

if TYPE_CHECKING:
    import pandas as pd


class Timed(msgspec.Struct, frozen=True):
    """Something that arrives. `at`: nanoseconds from the beginning of the workload."""

    at: Any  # a `Job` takes a text, too


T = TypeVar("T", bound=Timed)


class TimedItems(Generic[T]):
    """Things in the order of their times; those of one time in the order given."""

    item: ClassVar[type[Timed]]
    word: ClassVar[str]

    def __init__(self, items: Iterable[T]) -> None:
        self._all = tuple(sorted(items, key=lambda each: each.at))

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[T]:
        return iter(self._all)

    @overload
    def __getitem__(self, which: int) -> T: ...

    @overload
    def __getitem__(self, which: slice) -> Self: ...

    def __getitem__(self, which: int | slice) -> T | Self:
        """One; or some, as `[:100]`, with their times as they are."""
        return type(self)(self._all[which]) if isinstance(which, slice) else self._all[which]

    def __add__(self, other: Self) -> Self:
        """Both at once."""
        return type(self)((*self._all, *other))

    def __eq__(self, other: object) -> bool:
        return self._all == other._all if isinstance(other, TimedItems) else NotImplemented

    def __hash__(self) -> int:
        return hash((len(self), self.span))

    @property
    def clients(self) -> list[str]:
        """Whose they are, in the order in which they first appear."""
        return list(dict.fromkeys(self._whose(each) for each in self._all))

    def _whose(self, each: T) -> str:
        raise NotImplementedError

    def of(self, client: str) -> list[T]:
        return [each for each in self._all if self._whose(each) == client]

    def check(self, weights: Mapping[str, int]) -> None:
        for name in weights:
            if name not in self.clients:
                there = ", ".join(self.clients)
                raise ValueError(f"play(weights={dict(weights)!r}): no {self.word} is {name!r}'s; there are {there}")

    @property
    def span(self) -> Nanoseconds:
        """Nanoseconds from the beginning to the last of them."""
        return Nanoseconds(self._all[-1].at if self._all else 0)

    def between(self, first: Time, last: Time) -> Self:
        """Those of a window, such as ("8h", "9h"). It begins at time 0 of the result."""
        low, high = duration(first, "between: first"), duration(last, "between: last")
        found = [each for each in self._all if low <= each.at < high]
        return type(self)(msgspec.structs.replace(each, at=Nanoseconds(each.at - low)) for each in found)

    def frame(self) -> pd.DataFrame:
        """One row each."""
        from .arrival_files import frame_of

        return frame_of(self._all, self.item)

    def save(self, path: str | Path) -> Path:
        """Write a file that the `load` of its kind reads: CSV or Parquet, by its ending."""
        from .arrival_files import save

        return save(self.frame(), Path(path))

    def __repr__(self) -> str:
        who: Any = plural(len(self.clients), "client")
        return f"<{plural(len(self._all), self.word)} of {who} in {worded(self.span)}>"
