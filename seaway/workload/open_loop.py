"""`Arrivals`: requests that arrive when they arrive, whether or not the ones before are over.

Neighbours: `poisson_arrivals` and `arrival_files` make them; `playback` plays them. The functions that matter:
`Arrivals.play`, `scaled`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from .timed_items import Timed, TimedItems

if TYPE_CHECKING:
    from ..sessions import Session
    from .playback import LoadReport


class Arrival(Timed, frozen=True):
    """One request. `at`: nanoseconds from the beginning of the workload."""

    at: int
    client: str = "load"
    name: str = "request"  # which kind of request
    input: int = 0  # tokens that it brings; 0: not said
    output: int = 0  # tokens that it asks for; 0: not said


class Arrivals(TimedItems[Arrival]):
    """Arrivals in the order of their times.

    >>> morning = sw.workload.Arrivals([sw.workload.Arrival(at=3_000_000), sw.workload.Arrival(at=1_000_000)])
    >>> [arrival.at for arrival in morning]
    [1000000, 3000000]
    >>> len(morning + sw.workload.poisson(100, "1s", seed=1)) > 50
    True
    """

    item = Arrival
    word = "arrival"

    def __init__(self, arrivals: Iterable[Arrival]) -> None:
        super().__init__(arrivals)
        for each in self:
            if min(each.at, each.input, each.output) < 0:
                raise ValueError(f"{each}: times and tokens are not negative")
            if not each.client or not each.name:
                raise ValueError(f"{each}: an arrival has a client and a name")

    def _whose(self, each: Arrival) -> str:
        return each.client

    def scaled(self, time: float) -> Arrivals:
        """The same with all times multiplied: 0.5 doubles the load."""
        if not time > 0:
            raise ValueError(f"scaled(time={time!r}): a number above 0")
        return Arrivals(msgspec.structs.replace(each, at=round(each.at * time)) for each in self)

    def play(
        self, call: Callable[[Arrival], Any], *, weights: Mapping[str, int] | None = None,
        session: Session | None = None,
    ) -> LoadReport:  # fmt: skip
        """Make the calls of each arrival when it is due, and wait until all are over. Returns what became of each.

        call: is given the arrival, calls what it asks for, and returns the arrays. weights: of clients that the session
        does not have yet.

            >>> step = sw.synthetic("step", devices=8, duration="1ms")
            >>> with sw.simulate("B", hosts=2, profile="seaway"):
            ...     report = sw.workload.poisson(100, "1s", seed=1).play(lambda arrival: step(np.float32(0)))
            ...     print(report.latency()["failed"].tolist())
            [0]
        """
        from .playback import play

        return play(self, call, weights or {}, session)
