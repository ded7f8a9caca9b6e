"""What became of jobs that were played in a session: a table, from what their users saw and what the trace has.

How long a job waited, and for how long it had devices, is read from the trace; all else was seen by its user.

Neighbours: `seaway.workload` plays jobs, sums this up and draws it; `storage` keeps it with the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np
import pandas as pd

from core.model import spans

if TYPE_CHECKING:
    from .trace import Trace

S = 1_000_000_000
FAR = 1 << 62
Time = Annotated[int, msgspec.Meta(gt=-FAR, lt=FAR)]
Count = Annotated[int, msgspec.Meta(ge=1, lt=FAR)]


class PlayedJob(msgspec.Struct, eq=False, kw_only=True):
    """A job, and what became of it. Times are nanoseconds of the session's clock."""

    user: str
    name: str
    devices: Count
    needs: Count  # time of its steps, on the kind of devices where they take least
    deadline: Time = 0  # after its arrival; 0: none
    number: int  # of all jobs, in the order of arrival
    arrived: Time
    called: Time = -1  # when it made its first call
    ended: Time = -1
    cause: str = ""  # why it failed; "": it did not
    cuts: int = 0  # how often its steps were cut, because its devices were taken away
    losses: int = 0  # how often they failed, because its devices were lost
    resizes: int = 0  # how often it went on with another number of devices
    calls: dict[int, bool] = {}  # of its user, in the trace; whether what that did counts


class PlayedJobs(msgspec.Struct, eq=False):
    begin: Time  # of the workload
    jobs: list[PlayedJob]  # in the order of arrival


class JobTable:
    """A workload's jobs. Times of the table are seconds, from the beginning of the workload."""

    def __init__(self, played: PlayedJobs, trace: Trace) -> None:
        self._begin, self._played = played.begin, played.jobs
        self.facts = trace.facts()
        self.devices = spans.count(self.facts.machines.devices)
        self.gangs = self._of_jobs(trace.gangs(), trace.runs())

    def _of_jobs(self, gangs: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
        """The gangs of these jobs, each with the number of its job, when that made its first call, and whether what the
        gang did counts."""
        whose = {(each.user, call): (each.number, counts) for each in self._played
                 for call, counts in each.calls.items()}  # fmt: skip
        found = [whose.get(key, (-1, False)) for key in zip(runs["client"].astype(str), runs["call"], strict=True)]
        mine = pd.DataFrame(found, columns=["job", "counts"]).assign(run=runs["run"], called_us=runs["submitted_us"])
        mine = mine[mine["job"] >= 0]
        mine["called_us"] = mine.groupby("job")["called_us"].transform("min")
        return gangs.merge(mine, on="run")

    @cached_property
    def times(self) -> pd.DataFrame:
        """By job: how long after its first call it had devices first, and for how long."""
        gangs = self.gangs
        gangs = gangs.assign(
            after_us=gangs["started_us"] - gangs["called_us"],
            lost_us=gangs["duration_us"].where(~gangs["counts"], 0.0),
            good_us=gangs["device_us"].where(gangs["counts"], 0.0),
        )
        found = gangs.groupby("job").agg(after_us=("after_us", "min"), served_us=("duration_us", "sum"),
            lost_us=("lost_us", "sum"), device_us=("device_us", "sum"), good_us=("good_us", "sum"))  # fmt: skip
        return found.reindex(range(len(self._played))).fillna(dict.fromkeys(found.columns[1:], 0.0))

    def frame(self) -> pd.DataFrame:
        """One row a job, in the order of arrival.

        waited_s: from its arrival until it had devices first. jct_s: until it was over (job completion time).
        served_s: for how long it had devices at work. lost_s: the part of that in which it made what was lost with its
        devices, or began again. slowdown: jct_s by the time that its steps need. rho: finish-time fairness (Themis):
        jct_s by what it would be if each user had an equal part of the cluster. cuts, losses, resizes: how often its
        devices were taken, lost, or became others in number. late: it missed its deadline.
        """
        played, times = self._played, self.times
        seen = np.array([(each.arrived, each.called, each.ended) for each in played]).reshape(-1, 3)
        arrived, called, ended = (seen - self._begin).T / S
        needs = np.array([each.needs for each in played]) / S
        wide = np.array([each.devices for each in played])
        part = np.maximum(1, wide * len({each.user for each in played}) / self.devices)
        started = called + times["after_us"].to_numpy() / 1e6
        due = np.array([each.deadline or np.inf for each in played]) / S
        return pd.DataFrame(
            {
                "user": [each.user for each in played],
                "name": [each.name for each in played],
                "devices": wide,
                "arrived_s": arrived, "started_s": started, "ended_s": ended,
                "waited_s": started - arrived,
                "jct_s": ended - arrived,
                "served_s": times["served_us"].to_numpy() / 1e6,
                "lost_s": times["lost_us"].to_numpy() / 1e6,
                "slowdown": (ended - arrived) / needs,
                "rho": (ended - arrived) / (needs * part),
                "cuts": [each.cuts for each in played],
                "losses": [each.losses for each in played],
                "resizes": [each.resizes for each in played],
                "late": ended - arrived > due,
                "ok": np.array([not each.cause for each in played], dtype=bool),
                "cause": [each.cause for each in played],
            }
        )  # fmt: skip


def table(trace: Trace) -> pd.DataFrame:
    """Of all workloads, one after the other."""
    workloads: Sequence[PlayedJobs] = trace.played or [PlayedJobs(0, [])]
    return pd.concat([JobTable(each, trace).frame() for each in workloads], ignore_index=True)
