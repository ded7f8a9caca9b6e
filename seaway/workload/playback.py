"""Plays arrivals in a session: each call at its time, whether or not the ones before are over; and times the results.

Each client of the workload has a thread, which sleeps until an arrival is due and calls for it. A call returns at once,
so the next one is not late because this one takes long: the load stays open. What makes it late all the same (a client
that has as many runs under way as it may have, a slow thread) is `lag`, and part of the latency, which counts from the
arrival. Simulated sessions repeat to the nanosecond; in real ones the arrivals are the same and the rest is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import RunError
from ..sessions import Array, Run, Session, ambient
from ..specs import trees
from ..units import Time
from ..units import duration as nanoseconds
from .open_loop import Arrival, Arrivals

if TYPE_CHECKING:
    import pandas as pd

    from ..sessions import Caller

PERCENTILES = (50, 90, 99)
Call = Callable[[Arrival], Any]


class PlayedCall(NamedTuple):
    """One arrival, and what became of it. Times are nanoseconds of the session's clock."""

    arrival: Arrival
    due: int
    called: int
    ended: int
    cause: str  # why it failed; "": it did not


class LoadReport:
    """What became of a workload's arrivals: latency from the arrival to the result."""

    def __init__(self, played: Sequence[PlayedCall], begin: int) -> None:
        self._played, self._begin = played, begin

    def frame(self) -> pd.DataFrame:
        """One row an arrival. Times count from the beginning of the workload.

        `latency_us`: from the arrival to the last of its results. `lag_us`: the part of it before the call was made.
        """
        import pandas as pd

        begin, calls = self._begin, self._played
        return pd.DataFrame(
            {
                "client": [each.arrival.client for each in calls],
                "name": [each.arrival.name for each in calls],
                "arrived_us": [(each.due - begin) / 1_000 for each in calls],
                "called_us": [(each.called - begin) / 1_000 for each in calls],
                "ended_us": [(each.ended - begin) / 1_000 for each in calls],
                "lag_us": [(each.called - each.due) / 1_000 for each in calls],
                "latency_us": [(each.ended - each.due) / 1_000 for each in calls],
                "ok": [not each.cause for each in calls],
                "cause": [each.cause for each in calls],
            }
        )

    def latency(self, by: str = "client", window: tuple[Time, Time] | None = None) -> pd.DataFrame:
        """One row a client (or `by="name"`): how many arrived and failed, and percentiles of the latency of the others.

        window: only arrivals of this time, such as ("1s", "5s"), so that the beginning and the end do not count.
        """
        import pandas as pd

        if by not in ("client", "name"):
            raise ValueError(f"latency(by={by!r}): 'client' or 'name'")
        frame = self.frame()
        if window is not None:
            low, high = (nanoseconds(time, "latency: window") / 1_000 for time in window)
            frame = frame[(frame["arrived_us"] >= low) & (frame["arrived_us"] < high)]
        rows = []
        for name, part in frame.groupby(by, sort=False):
            latencies = part["latency_us"][part["ok"]]
            shown = {f"latency_p{percent}_us": latencies.quantile(percent / 100) for percent in PERCENTILES}
            counts = {by: name, "arrivals": len(part), "failed": int((~part["ok"]).sum())}
            rows.append({**counts, **shown, "lag_max_us": part["lag_us"].max()})
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        failed = sum(bool(each.cause) for each in self._played)
        return f"<report of {len(self._played)} arrivals, {failed} failed>"


def play(arrivals: Arrivals, call: Call, weights: Mapping[str, int], session: Session | None) -> LoadReport:
    where = session or ambient.session("a workload's play()")
    arrivals.check(weights)
    begin = where.driver.now()
    tasks = []
    for client in arrivals.clients:
        mine = arrivals.of(client)
        caller = where.client(client, weights.get(client, 1))
        tasks.append(where.task_of(caller, _calls, where, caller, mine, begin, call))
    played: list[PlayedCall] = [each for task in tasks for each in task.result()]
    return LoadReport(sorted(played, key=lambda each: each.due), begin)


def _calls(session: Session, caller: Caller, arrivals: Sequence[Arrival], begin: int, call: Call) -> list[PlayedCall]:
    """One client: first its calls, and when all are made, their ends. It keeps no array that it does not need."""
    made = []
    for arrival in arrivals:
        _sleep_until(session, caller, begin + arrival.at)
        called = session.driver.now()
        made.append((arrival, called, _runs(call(arrival), arrival)))
    return [_ended(arrival, begin, called, runs) for arrival, called, runs in made]


def _sleep_until(session: Session, caller: Caller, when: int) -> None:
    caller.flush()  # what it has dropped is given back before it waits
    rest = when - session.driver.now()
    if rest > 0:
        session.driver.sleep(rest)


def _runs(made: Any, arrival: Arrival) -> list[Run]:
    arrays = [leaf for leaf in trees.leaves(made) if isinstance(leaf, Array)]
    runs = list(dict.fromkeys(array.run for array in arrays if array.run is not None))
    if not runs:
        raise TypeError(
            f"the function of play() returned {made!r} for {arrival}: return the arrays that the arrival asks for, so "
            f"that it is known when they are there"
        )
    return runs


def _ended(arrival: Arrival, begin: int, called: int, runs: Sequence[Run]) -> PlayedCall:
    cause = ""
    for run in runs:
        try:
            run.wait()
        except RunError as error:
            cause = cause or str(error)
    return PlayedCall(arrival, begin + arrival.at, called, max(run.ended_at for run in runs), cause)
