"""`Jobs`: training jobs and the like, each with an arrival, a size, and so many steps of so much time.

A job asks for a slice that it has alone. The session's policy says when it has devices, and which; it keeps them until
its last step is over, unless the policy takes them away or they are lost.

Neighbours: `job_logs` reads the logs of clusters; `job_playback` plays jobs, and `job_report` says what became of them.
The functions that matter: `Jobs.play`, `Jobs.scaled`, `Job.lasts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import force_setattr, replace

from ..units import Nanoseconds, Time, duration
from .timed_items import Timed, TimedItems

if TYPE_CHECKING:
    from ..sessions import Session
    from .job_report import JobReport


class Job(Timed, frozen=True, kw_only=True):
    """One job. Times are given as texts, such as "90min", and kept in nanoseconds.

    >>> sw.workload.Job(at="1h", devices=8, step="2s", steps=1800).lasts()
    3600000000000
    """

    times: ClassVar[tuple[str, ...]] = ("at", "step", "checkpoint_time", "restart", "deadline")

    user: str = "load"
    name: str = "job"
    devices: int = 1
    # of one step on so many devices; or by their kind: then it runs on these kinds only
    step: Time | Mapping[str, Time] = 0
    steps: int = 1
    kind: str = ""  # that it must have; "": any
    sizes: tuple[int, ...] = ()  # numbers of devices that it may have instead, growing and shrinking as it runs
    # the part of a step that more devices make faster: a step on n times as many takes 1 - scaling + scaling / n
    scaling: float = 1.0
    # steps between checkpoints, to which, or to where it was cut, it goes back when devices are lost; 0: it begins anew
    checkpoint: int = 0
    checkpoint_time: Time = 0  # what each takes
    restart: Time = 0  # what it takes to begin again, after a loss or a cut, or with another number of devices
    deadline: Time = 0  # when it should be over, after its arrival; 0: it does not matter

    def __post_init__(self) -> None:
        for field in self.times:
            given = getattr(self, field)
            if isinstance(given, Mapping) and set(given) == {""}:
                given = given[""]
            if isinstance(given, Mapping):
                times = {kind: Nanoseconds(duration(time, f"step on {kind!r}")) for kind, time in given.items()}
                force_setattr(self, field, times)
            else:
                force_setattr(self, field, Nanoseconds(duration(given, f"{field} of a job")))
        if self.checkpoint < 0 or min(self.devices, self.steps, *self.sizes) < 1 or not 0 <= self.scaling <= 1:
            raise ValueError(f"{self}: devices and steps are at least 1, scaling is from 0 to 1")
        if not self.user or not self.name:
            raise ValueError(f"{self}: a job has a user and a name")
        if not any(self.step_time().values()):
            raise ValueError(f"{self}: how long is a step? Give `step`, such as '2s', or by kind of device")

    def step_time(self, devices: int = 0) -> dict[str, Nanoseconds]:
        """Nanoseconds of a step on so many devices, by their kind."""
        times: Any = self.step if isinstance(self.step, Mapping) else {"": self.step}
        if devices in (0, self.devices):
            return dict(times)
        share = 1 - self.scaling + self.scaling * self.devices / devices
        return {kind: _times(time, share) for kind, time in times.items()}

    def lasts(self, kind: str = "", devices: int = 0) -> Nanoseconds:
        """Nanoseconds from its first step to its last, on devices of this kind, if nothing comes between."""
        times = self.step_time(devices)
        step = times.get(kind) or times.get("") or min(times.values())
        saved = (self.steps - 1) // self.checkpoint if self.checkpoint else 0
        return Nanoseconds(self.steps * step + saved * duration(self.checkpoint_time))


def _times(time: int, factor: float) -> Nanoseconds:
    return Nanoseconds(max(1, round(time * factor)))


class Jobs(TimedItems[Job]):
    """Jobs in the order of their arrival.

    >>> jobs = sw.workload.Jobs([sw.workload.Job(at="5s", devices=8, step="1s", steps=60),
    ...                          sw.workload.Job(at=0, devices=4, step="1s", steps=10, user="ann")])
    >>> with sw.simulate("B", hosts=1, profile="seaway", policy="in_turn"):
    ...     print(jobs.play().frame()[["user", "waited_s", "ended_s"]].round(1).values.tolist())
    [['ann', 0.0, 10.0], ['load', 5.0, 70.0]]
    """

    item = Job
    word = "job"

    def __init__(self, jobs: Iterable[Job]) -> None:
        super().__init__(jobs)

    def _whose(self, each: Job) -> str:
        return each.user

    def scaled(self, time: float = 1.0, devices: float = 1.0, arrivals: float = 1.0) -> Jobs:
        """The same with times multiplied, and numbers of devices, of which a job keeps one: a large cluster's jobs on
        fewer devices. arrivals: only the times of arrival; 0.5 doubles the load."""
        if not (time > 0 and devices > 0 and arrivals > 0):
            raise ValueError(f"scaled(time={time!r}, devices={devices!r}, arrivals={arrivals!r}): numbers above 0")
        return Jobs(_scaled(each, time, devices, arrivals) for each in self)

    def in_steps(self, time: Time) -> Jobs:
        """The same, each job in equal steps of at most this time: where it may be cut and go on later, if the log that
        it comes from does not say."""
        most = duration(time, "in_steps")
        return Jobs(_in_steps(each, most) for each in self)

    @staticmethod
    def load(path: str | Path) -> Jobs:
        """Read jobs from a CSV or Parquet file, as `save` writes it: a column for each of a job's fields, whose name
        says the unit where it is a time, as `at_s` and `step_ms`. `step_s@tpu-v4` is the time on that kind. Only an
        arrival and a step are needed."""
        from .arrival_files import load_items

        return Jobs(load_items(Path(path), Job, ("at", "step")))

    def play(self, *, weights: Mapping[str, int] | None = None, session: Session | None = None) -> JobReport:
        """Let each job arrive at its time in the current session, and wait until all are over.

        weights: of users that the session does not have yet. In a simulation, a job's steps are one event, as long as
        nothing comes between; months take as long as their events do.
        """
        from .job_playback import play

        return play(self, weights or {}, session)


def _in_steps(job: Job, most: int) -> Job:
    times = job.step_time()
    parts = -(-max(times.values()) // max(1, most))
    return replace(job, steps=job.steps * parts, step={kind: _times(time // parts, 1) for kind, time in times.items()})


def _scaled(job: Job, time: float, devices: float, arrivals: float) -> Job:
    steps = {kind: _times(each, time) for kind, each in job.step_time().items()}
    sizes = dict.fromkeys(max(1, round(size * devices)) for size in job.sizes)
    rest = {
        field: Nanoseconds(round(getattr(job, field) * time)) for field in ("checkpoint_time", "restart", "deadline")
    }
    return replace(
        job, at=Nanoseconds(round(job.at * time * arrivals)), step=steps, devices=max(1, round(job.devices * devices)),
        sizes=tuple(sizes), **rest,
    )  # fmt: skip
