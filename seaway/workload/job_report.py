"""`JobReport`: what became of jobs that were played, summed up and drawn.

Neighbours: `job_playback` makes it; `seaway.trace.played_jobs` has its table; `job_pictures` draws it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..trace import played_jobs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class JobReport(played_jobs.JobTable):
    """What became of a workload's jobs. Times of its tables are seconds, from the beginning of the workload."""

    def summary(self, by: str = "") -> pd.DataFrame:
        """One row for all jobs; or one a user (`by="user"`), or one a number of devices (`by="devices"`).

        busy: the part of all device time, until the last job was over, in which devices worked for jobs. goodput: the
        part in which they did what was not lost.
        """
        import pandas as pd

        if by not in ("", "user", "devices"):
            raise ValueError(f"summary(by={by!r}): '', 'user' or 'devices'")
        frame = self.frame().assign(**{f"{part}_s": self.times[f"{part}_us"] / 1e6 for part in ("device", "good")})
        whole = self.devices * max(float(frame["ended_s"].max() - frame["arrived_s"].min()), 1e-9)
        parts = frame.groupby(by, sort=False) if by else [("all", frame)]
        return pd.DataFrame([{by or "jobs": name, **_row(part, whole)} for name, part in parts])

    def plot(self) -> Figure:
        """Draw how many jobs were over, and how many had devices, after how long; and below the devices in use over
        time. A colour is a user."""
        from .job_pictures import jobs_picture

        return jobs_picture(self)

    def plot_gantt(self) -> Figure:
        """Draw a row for each job, by user: when it waited (pale), and when it had devices at work."""
        from .job_pictures import gantt_picture

        return gantt_picture(self)

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
