"""`JobReport`: what became of jobs that were played.

How long a job waited, and for how long it had devices, is read from the session's trace; all else was seen by its user.

Neighbours: `job_playback` makes it; `job_pictures` draws it. The functions that matter: `frame`, `summary`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from core.model import spans

from ..units import duration
from .jobs import Job

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ..sessions import Session

S = 1_000_000_000


class PlayedJob(msgspec.Struct, eq=False):
    """A job, and what became of it. Times are nanoseconds of the session's clock."""

    job: Job
    number: int  # of all jobs, in the order of arrival
    arrived: int
    called: int = -1  # when it made its first call
    ended: int = -1
    cause: str = ""  # why it failed; "": it did not
    cuts: int = 0  # how often its steps were cut, because its devices were taken away
    losses: int = 0  # how often they failed, because its devices were lost
    resizes: int = 0  # how often it went on with another number of devices
    calls: dict[int, bool] = {}  # of its user, in the trace; whether what that did counts


class JobReport:
    """What became of a workload's jobs. Times of its tables are seconds, from the beginning of the workload."""

    def __init__(self, played: Sequence[PlayedJob], begin: int, session: Session) -> None:
        self._played, self._begin = played, begin
        trace = session.trace
        self.facts = trace.facts()
        self.devices = spans.count(self.facts.machines.devices)
        self.gangs = self._of_jobs(trace.gangs(), trace.runs())

    def _of_jobs(self, gangs: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
        """The gangs of these jobs, each with the number of its job, when that made its first call, and whether what the
        gang did counts."""
        import pandas as pd

        whose = {(each.job.user, call): (each.number, counts) for each in self._played
                 for call, counts in each.calls.items()}  # fmt: skip
        found = [whose.get(key, (-1, False)) for key in zip(runs["client"].astype(str), runs["call"], strict=True)]
        mine = pd.DataFrame(found, columns=["job", "counts"]).assign(run=runs["run"], called_us=runs["submitted_us"])
        mine = mine[mine["job"] >= 0]
        mine["called_us"] = mine.groupby("job")["called_us"].transform("min")
        return gangs.merge(mine, on="run")

    @cached_property
    def _times(self) -> pd.DataFrame:
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
        import pandas as pd

        played, times = self._played, self._times
        seen = np.array([(each.arrived, each.called, each.ended) for each in played]).reshape(-1, 3)
        arrived, called, ended = (seen - self._begin).T / S
        needs = np.array([min(map(each.job.lasts, each.job.step_time())) for each in played]) / S
        wide = np.array([each.job.devices for each in played])
        part = np.maximum(1, wide * len({each.job.user for each in played}) / self.devices)
        started = called + times["after_us"].to_numpy() / 1e6
        due = np.array([duration(each.job.deadline) or np.inf for each in played]) / S
        return pd.DataFrame(
            {
                "user": [each.job.user for each in played],
                "name": [each.job.name for each in played],
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

    def summary(self, by: str = "") -> pd.DataFrame:
        """One row for all jobs; or one a user (`by="user"`), or one a number of devices (`by="devices"`).

        busy: the part of all device time, until the last job was over, in which devices worked for jobs. goodput: the
        part in which they did what was not lost.
        """
        import pandas as pd

        if by not in ("", "user", "devices"):
            raise ValueError(f"summary(by={by!r}): '', 'user' or 'devices'")
        frame = self.frame().assign(**{f"{part}_s": self._times[f"{part}_us"] / 1e6 for part in ("device", "good")})
        whole = self.devices * max(float(frame["ended_s"].max() - frame["arrived_s"].min()), 1e-9)
        parts = frame.groupby(by, sort=False) if by else [("all", frame)]
        return pd.DataFrame([{by or "jobs": name, **_row(part, whole)} for name, part in parts])

    def plot(self) -> Figure:
        """Draw how many jobs were over, and how many had devices, after how long; and below the devices in use over
        time. A colour is a user."""
        from .job_pictures import jobs_picture

        return jobs_picture(self)

    def plot_torus(self) -> Figure:
        """Draw the islands that are a torus, each device at its place: the part of the time in which it was busy."""
        from .job_pictures import torus_picture

        return torus_picture(self)

    def __repr__(self) -> str:
        failed = sum(bool(each.cause) for each in self._played)
        return f"<report of {len(self._played)} jobs, {failed} failed>"


def _row(frame: pd.DataFrame, whole: float) -> dict[str, Any]:
    good = frame[frame["ok"]]
    return {
        "count": len(frame),
        "failed": int((~frame["ok"]).sum()),
        "jct_mean_s": good["jct_s"].mean(),
        "jct_p50_s": good["jct_s"].quantile(0.5),
        "jct_p99_s": good["jct_s"].quantile(0.99),
        "waited_mean_s": good["waited_s"].mean(),
        "slowdown_mean": good["slowdown"].mean(),
        "rho_max": good["rho"].max(),
        "makespan_s": frame["ended_s"].max() - frame["arrived_s"].min(),
        "busy": frame["device_s"].sum() / whole,
        "goodput": good["good_s"].sum() / whole,
        "cuts": int(frame["cuts"].sum()),
        "losses": int(frame["losses"].sum()),
        "lost_s": good["lost_s"].sum(),
        "late": int(frame["late"].sum()),
    }
