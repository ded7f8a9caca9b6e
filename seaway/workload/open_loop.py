"""`Arrivals`: what arrives when, for which client. A plain value, which a session plays as often as one likes.

Neighbours: `poisson_arrivals`, `arrival_files` and `cluster_traces` make them; `playback` plays them. The functions
that matter: `Arrivals.play`, `scaled`, `save`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import msgspec

from ..units import Time, duration
from ..wording import duration as worded
from ..wording import plural

if TYPE_CHECKING:
    import pandas as pd

    from ..sessions import Session
    from .playback import LoadReport


class Arrival(msgspec.Struct, frozen=True):
    """One request, or one job. Times are nanoseconds; `at` counts from the beginning of the workload."""

    at: int
    client: str = "load"
    name: str = "request"  # which kind of request, or which job
    devices: int = 0  # of a job; 0: not said
    duration: int = 0  # of a job, once it runs; 0: not said


class Arrivals:
    """Arrivals in the order of their times.

    >>> morning = sw.workload.Arrivals([sw.workload.Arrival(at=3_000_000), sw.workload.Arrival(at=1_000_000)])
    >>> [arrival.at for arrival in morning]
    [1000000, 3000000]
    >>> len(morning + sw.workload.poisson(100, "1s", seed=1)) > 50
    True
    """

    def __init__(self, arrivals: Iterable[Arrival]) -> None:
        self._all = tuple(sorted(arrivals, key=lambda each: each.at))
        for each in self._all:
            if each.at < 0 or each.devices < 0 or each.duration < 0:
                raise ValueError(f"{each}: times and devices are not negative")
            if not each.client or not each.name:
                raise ValueError(f"{each}: an arrival has a client and a name")

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Arrival]:
        return iter(self._all)

    @overload
    def __getitem__(self, which: int) -> Arrival: ...

    @overload
    def __getitem__(self, which: slice) -> Arrivals: ...

    def __getitem__(self, which: int | slice) -> Arrival | Arrivals:
        """One arrival; or some, as `arrivals[:100]`, with their times as they are."""
        found = self._all[which]
        return Arrivals(found) if isinstance(found, tuple) else found

    def __add__(self, other: Arrivals) -> Arrivals:
        """Both at once."""
        return Arrivals((*self._all, *other))

    def __eq__(self, other: object) -> bool:
        return self._all == other._all if isinstance(other, Arrivals) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._all)

    @property
    def clients(self) -> list[str]:
        """In the order in which they first appear."""
        return list(dict.fromkeys(each.client for each in self._all))

    @property
    def span(self) -> int:
        """Nanoseconds from the beginning to the last arrival."""
        return self._all[-1].at if self._all else 0

    def scaled(self, time: float = 1.0, devices: float = 1.0) -> Arrivals:
        """The same with all times, durations too, and numbers of devices multiplied: months of a cluster's jobs in
        minutes, on fewer devices. A job keeps at least one device."""
        if not (time > 0 and devices > 0):
            raise ValueError(f"scaled(time={time!r}, devices={devices!r}): numbers above 0")
        return Arrivals(
            msgspec.structs.replace(
                each,
                at=round(each.at * time),
                duration=round(each.duration * time),
                devices=max(1, round(each.devices * devices)) if each.devices else 0,
            )
            for each in self._all
        )

    def between(self, first: Time, last: Time) -> Arrivals:
        """Those of a window, such as ("8h", "9h"). It begins at time 0 of the result."""
        low, high = duration(first, "between: first"), duration(last, "between: last")
        return Arrivals(msgspec.structs.replace(each, at=each.at - low) for each in self._all if low <= each.at < high)

    def frame(self) -> pd.DataFrame:
        """One row an arrival."""
        import pandas as pd

        frame = pd.DataFrame(
            [msgspec.structs.asdict(each) for each in self._all], columns=list(Arrival.__struct_fields__)
        )
        for time in ("at", "duration"):
            frame[time] /= 1_000
        return frame.rename(columns={"at": "at_us", "duration": "duration_us"})

    def save(self, path: str | Path) -> Path:
        """Write a file that `sw.workload.load` reads: CSV or Parquet, by its ending."""
        from .arrival_files import save

        return save(self, Path(path))

    def play(
        self,
        call: Callable[[Arrival], Any] | None = None,
        *,
        weights: Mapping[str, int] | None = None,
        session: Session | None = None,
    ) -> LoadReport:
        """Make a call for each arrival, at its time, in the current session, and wait for all results.

        call: what an arrival asks for. It is called as the arrival's client, and returns arrays. Without it, each
        arrival is a job: one computation that takes its `duration` on a slice of its own of so many `devices`, which it
        gives back when it ends. weights: of clients that the session does not have yet.

            >>> step = sw.synthetic("step", devices=8, duration="1ms")
            >>> with sw.simulate("B", hosts=2, profile="seaway"):
            ...     report = sw.workload.poisson(100, "1s", seed=1).play(lambda arrival: step(np.float32(0)))
            ...     print(report.latency()["failed"].tolist())
            [0]
        """
        from .playback import play

        return play(self, call, weights or {}, session)

    def __repr__(self) -> str:
        who = plural(len(self.clients), "client")
        return f"<{plural(len(self._all), 'arrival')} of {who} in {worded(self.span)}>"
