"""Plays jobs in a session: each arrives at its time, asks for a slice that it has alone, and makes its steps there.

Each user of the workload is a client, and has a thread, which waits for the next arrival or for the end of one of the
user's runs. A job calls its steps between two checkpoints as one gang (`sw.synthetic(..., steps=)`), or all of them if
it makes no checkpoints. A gang is cut at a step's end when the policy takes the devices away, and the job calls for the
rest; if devices are lost, it goes on from the last checkpoint. A job of several sizes has a thread of its own.

Simulated sessions repeat to the nanosecond.

Neighbours: `jobs` says what there is to play; `job_report` what became of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ..api import synthetic
from ..errors import RunError
from ..sessions import Run, Session, ambient
from ..specs import ElasticSlice, Slice, elastic_of
from ..specs import slice as slice_of
from ..units import Nanoseconds, Time
from .job_report import JobReport, PlayedJob
from .jobs import Job, Jobs

if TYPE_CHECKING:
    from ..sessions import Caller

ZERO = np.float32(0)
AHEAD = 2  # gangs that a job has called and that have not ended: devices do not wait for the next one
MOST_TRIES = 1_000  # how often in a row a job is begun again before it is given up


class Progress(msgspec.Struct, eq=False):
    """A job that is being played."""

    job: Job
    number: int
    home: Slice | None
    played: PlayedJob
    left: int  # steps that have not been called
    called: dict[int, int] = {}  # by number of a run: the steps that it is to make; 0: it begins again
    tries: int = 0  # since the last step that was made
    last: int = 0  # the last run that had been called when one failed: those up to it failed for the same reason


def play(jobs: Jobs, weights: Mapping[str, int], session: Session | None) -> JobReport:
    where = session or ambient.session("jobs.play()")
    for name in weights:
        if name not in jobs.clients:
            there = ", ".join(jobs.clients)
            raise ValueError(f"play(weights={dict(weights)!r}): no job is {name!r}'s; there are {there}")
    begin = where.driver.now()
    numbered: dict[str, list[tuple[int, Job]]] = {}
    for number, job in enumerate(jobs):
        numbered.setdefault(job.user, []).append((number, job))
    tasks = []
    for user, mine in numbered.items():
        caller = where.client(user, weights.get(user, 1))
        tasks.append(where.task_of(caller, UserJobs(where, caller, mine, begin).play))
    played = [each for task in tasks for each in task.result()]
    return JobReport(sorted(played, key=lambda each: each.arrived), begin, where)


class UserJobs:
    """All jobs of one user."""

    def __init__(self, session: Session, caller: Caller, jobs: list[tuple[int, Job]], begin: int) -> None:
        self._session, self._caller, self._begin = session, caller, begin
        self._coming = deque(jobs)
        self._by_run: dict[int, Progress] = {}
        self._under_way = 0
        self._played: list[PlayedJob] = []

    def play(self) -> list[PlayedJob]:
        driver, tasks = self._session.driver, []
        self._caller.next_ended(until=0)
        while self._coming or self._under_way:
            while self._coming and self._begin + self._coming[0][1].at <= driver.now():
                number, job = self._coming.popleft()
                if job.sizes:
                    tasks.append(self._session.task_of(self._caller, self._play_elastic, number, job))
                else:
                    self._start(number, job)
            until = self._begin + self._coming[0][1].at if self._coming else None
            if until is None and not self._under_way:
                break
            for run in self._caller.next_ended(until):
                if progress := self._by_run.pop(run.number, None):
                    self._ended(progress, run)
        return [*self._played, *[task.result() for task in tasks]]

    def _start(self, number: int, job: Job) -> None:
        home = slice_of(
            job.devices, exclusive=True, kind=job.kind, name=f"{job.name}.{number}", deadline=job.deadline,
            expected={kind: job.lasts(kind) for kind in job.step_time()},
        )  # fmt: skip
        played = PlayedJob(job, self._begin + job.at, self._session.driver.now())
        progress = Progress(job, number, home, played, job.steps)
        self._under_way += 1
        self._call(progress)

    def _call(self, progress: Progress) -> None:
        """Call for the next steps, as many as are called ahead."""
        while progress.left and len(progress.called) < AHEAD:
            steps = min(progress.left, progress.job.checkpoint or progress.left)
            self._call_steps(progress, steps, saves=steps < progress.left)
            progress.left -= steps

    def _call_steps(self, progress: Progress, steps: int, saves: bool) -> None:
        job, times = progress.job, progress.job.step_time()
        assert progress.home is not None
        gang = synthetic(job.name, devices=progress.home, duration=_duration(times), steps=steps)
        self._submit(progress, gang(ZERO).run, steps)
        if saves and job.checkpoint_time:
            saving = synthetic(f"{job.name} saves", devices=progress.home, duration=job.checkpoint_time)
            self._submit(progress, saving(ZERO).run, 0)

    def _submit(self, progress: Progress, run: Run | None, steps: int) -> None:
        assert run is not None
        progress.called[run.number] = steps
        progress.played.calls.append(self._caller.known_as(run.number)[1])
        self._by_run[run.number] = progress

    def _ended(self, progress: Progress, run: Run) -> None:
        played, asked = progress.played, progress.called.pop(run.number)
        done = 0 if run.blame is not None else run.steps
        progress.left += asked - min(done, asked)
        run._looked_at = True
        if run.blame is not None and run.number <= progress.last:
            pass  # it was called ahead
        elif run.blame is not None:
            progress.tries += 1
            played.losses += 1
            progress.last = max(progress.called, default=run.number)
            if progress.tries > MOST_TRIES or run.blame.code == "refused":
                self._over(progress, run, str(run.blame))
                return
            self._again(progress)
        elif done < asked:
            played.cuts += 1
            self._again(progress)
        else:
            progress.tries = 0
        if progress.left:
            self._call(progress)
        elif not progress.called:
            self._over(progress, run, "")

    def _again(self, progress: Progress) -> None:
        if progress.job.restart:
            assert progress.home is not None
            name = f"{progress.job.name} restarts"
            gang = synthetic(name, devices=progress.home, duration=progress.job.restart)
            self._submit(progress, gang(ZERO).run, 0)

    def _over(self, progress: Progress, run: Run, cause: str) -> None:
        progress.played.ended, progress.played.cause = run.ended_at, cause
        for number in progress.called:
            self._by_run.pop(number, None)
        if progress.home is not None:
            self._caller.forget_slice(progress.home)
        self._under_way -= 1
        self._played.append(progress.played)

    # --- jobs of several sizes --------------------------------------------------------------------------------------

    def _play_elastic(self, number: int, job: Job) -> PlayedJob:
        """It makes its steps on the slice that it has been given, until it is given another one."""
        home = elastic_of(
            tuple(sorted({job.devices, *job.sizes})), exclusive=True, kind=job.kind, name=f"{job.name}.{number}",
            deadline=job.deadline, expected={kind: job.lasts(kind) for kind in job.step_time()},
        )  # fmt: skip
        played, left = PlayedJob(job, self._begin + job.at, self._session.driver.now()), job.steps
        for part in self._session.resizes(home):
            begun = bool(played.calls)
            left = self._steps_on(part, home, job, played, left, again=begun)
            if not left:
                break
            played.resizes += 1
        self._session.release(home)
        played.ended = self._session.driver.now()
        return played

    def _steps_on(
        self, part: Slice, home: ElasticSlice, job: Job, played: PlayedJob, left: int, again: bool
    ) -> int:  # fmt: skip
        """Until the job is over, or is to go on elsewhere. Returns how many steps are left."""
        while left:
            if again and job.restart:
                self._run(part, f"{job.name} restarts", job.restart, 1, played)
            steps = min(left, job.checkpoint or left)
            run = self._run(part, job.name, _duration(job.step_time(part.devices)), steps, played)
            if self._caller.wait_run_or_size(run, home):
                run.stop()
            try:
                left, again = left - run.wait().steps, False
            except RunError as error:
                played.losses, again = played.losses + 1, True
                if played.losses > MOST_TRIES:
                    left, played.cause = 0, str(error)
            if left and self._session.resized(home):
                break
        return left

    def _run(self, part: Slice, name: str, time: Time | Mapping[str, Time], steps: int, played: PlayedJob) -> Run:
        run = synthetic(name, devices=part, duration=time, steps=steps)(ZERO).run
        assert run is not None
        played.calls.append(self._caller.known_as(run.number)[1])
        return run


def _duration(times: Mapping[str, Nanoseconds]) -> Time | Mapping[str, Time]:
    return times[""] if set(times) == {""} else times
