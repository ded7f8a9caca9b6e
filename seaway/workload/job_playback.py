"""Plays jobs in a session: each arrives at its time, asks for a slice that it has alone, and makes its steps there.

Each user of the workload is a client, and has a thread, which waits for the next arrival or for the end of one of the
user's runs. A job calls its steps between two checkpoints as one gang (`sw.synthetic(..., steps=)`), or all of them if
it makes no checkpoints. A gang is cut at a step's end when the policy takes the devices away, and the job calls for the
rest; if devices are lost, it goes on from the last checkpoint, or from where it was cut. A job of several sizes has a
thread of its own.

Simulated sessions repeat to the nanosecond.

Neighbours: `jobs` says what there is to play; `job_report` what became of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from core.client import infrastructure

from ..api import synthetic
from ..errors import NotNow, RunError
from ..sessions import Run, Session, ambient
from ..specs import ElasticSlice, Slice, elastic_of
from ..specs import slice as slice_of
from ..trace import played_jobs
from ..units import Nanoseconds, Time, duration
from .job_report import JobReport
from .jobs import Job, Jobs

if TYPE_CHECKING:
    from core.protocol import Blame

    from ..sessions import Caller

PlayedJob = played_jobs.PlayedJob
Times = Time | Mapping[str, Time]  # of a step; by kind of device
ZERO = np.float32(0)
AHEAD = 2  # gangs that a job has called and that have not ended: devices do not wait for the next one
MOST_TRIES = 1_000  # how often in a row a job is begun again before it is given up


class CalledGang(msgspec.Struct, eq=False):
    """One that a job has called, and that has not ended."""

    call: int  # in the trace
    steps: int = 0  # that it is to make
    saves: CalledGang | None = None  # what is lost if it fails, because it is a checkpoint


class JobProgress(msgspec.Struct, eq=False):
    """A job that is being played."""

    job: Job
    home: Slice
    played: PlayedJob
    left: int  # steps that have not been called
    called: dict[int, CalledGang] = {}  # by number of a run
    again: bool = False  # it was cut, or has lost its devices, and gangs that it had called are not over yet
    tries: int = 0  # since the last gang that was made whole


def play(jobs: Jobs, weights: Mapping[str, int], session: Session | None) -> JobReport:
    where = session or ambient.session("jobs.play()")
    jobs.check(weights)
    begin = where.driver.now()
    numbered: dict[str, list[tuple[int, Job]]] = {}
    for number, job in enumerate(jobs):
        numbered.setdefault(job.user, []).append((number, job))
    tasks = []
    for user, mine in numbered.items():
        caller = where.client(user, weights.get(user, 1))
        tasks.append(where.task_of(caller, UserJobs(where, caller, mine, begin).play))
    played = [each for task in tasks for each in task.result()]
    found = played_jobs.PlayedJobs(begin, sorted(played, key=lambda each: each.number))
    where.played.append(found)
    return JobReport(found, where.trace)


class UserJobs:
    """All jobs of one user."""

    def __init__(self, session: Session, caller: Caller, jobs: list[tuple[int, Job]], begin: int) -> None:
        self._session, self._caller, self._begin = session, caller, begin
        self._coming = deque(jobs)
        self._by_run: dict[int, JobProgress] = {}
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
        home = slice_of(job.devices, **_asks(number, job))
        played = self._arrives(number, job)
        played.called = self._session.driver.now()
        self._under_way += 1
        self._call(JobProgress(job, home, played, job.steps))

    def _arrives(self, number: int, job: Job) -> PlayedJob:
        return PlayedJob(
            user=job.user, name=job.name, devices=job.devices, needs=min(map(job.lasts, job.step_time())),
            deadline=duration(job.deadline), number=number, arrived=self._begin + job.at,
        )  # fmt: skip

    def _call(self, progress: JobProgress) -> None:
        """Call for the next steps, as many as are called ahead."""
        job = progress.job
        while progress.left and len(progress.called) < AHEAD:
            steps = min(progress.left, job.checkpoint or progress.left)
            progress.left -= steps
            gang = self._submit(progress, job.name, _duration(job.step_time()), steps)
            if progress.left and job.checkpoint_time:
                self._submit(progress, f"{job.name} saves", job.checkpoint_time).saves = gang

    def _submit(self, progress: JobProgress, name: str, time: Times, steps: int = 0) -> CalledGang:
        run, call = self._run(progress.home, name, time, max(1, steps), progress.played)
        gang = progress.called[run.number] = CalledGang(call, steps)
        self._by_run[run.number] = progress
        return gang

    def _run(self, home: Slice, name: str, time: Times, steps: int, played: PlayedJob) -> tuple[Run, int]:
        run = synthetic(name, devices=home, duration=time, steps=steps)(ZERO).run
        assert run is not None
        call = self._caller.known_as(run.number)[1]
        played.calls[call] = True
        return run, call

    def _ended(self, progress: JobProgress, run: Run) -> None:
        played, gang, blame = progress.played, progress.called.pop(run.number), run.blame
        lost = _lost(gang, run)
        progress.left += lost
        if blame is not None:
            run._looked_at = True
            played.calls |= {each.call: False for each in (gang, gang.saves) if each}
        if blame is None and not lost:
            progress.tries = 0
        elif not progress.again:  # those called ahead are cut or lost by the same
            progress.again = True
            progress.tries += 1
            played.cuts += blame is None
            played.losses += blame is not None and infrastructure(blame)
            if not _again(blame, progress.tries):
                self._over(progress, run, str(blame))
                return
        if progress.again and progress.called:
            return
        if progress.again and progress.job.restart:
            restart = self._submit(progress, f"{played.name} restarts", progress.job.restart)
            played.calls[restart.call] = False
        progress.again = False
        if progress.left:
            self._call(progress)
        elif not progress.called:
            self._over(progress, run, "")

    def _over(self, progress: JobProgress, run: Run, cause: str) -> None:
        progress.played.ended, progress.played.cause = run.ended_at, cause
        for number in progress.called:
            self._by_run.pop(number, None)
        self._caller.forget_slice(progress.home)
        self._under_way -= 1
        self._played.append(progress.played)

    # --- jobs of several sizes --------------------------------------------------------------------------------------

    def _play_elastic(self, number: int, job: Job) -> PlayedJob:
        """It makes its steps on the slice that it has been given, until it is given another one."""
        home = elastic_of(tuple(sorted({job.devices, *job.sizes})), **_asks(number, job))
        played, left, devices = self._arrives(number, job), job.steps, 0
        try:
            for part in self._session.resizes(home):
                played.resizes += devices not in (0, part.devices)
                devices = part.devices
                left = self._steps_on(part, home, job, played, left)
                if not left:
                    break
        except NotNow as error:  # there are not so many devices
            played.cause = str(error)
        self._session.release(home)
        played.ended = self._session.driver.now()
        return played

    def _steps_on(self, part: Slice, home: ElasticSlice, job: Job, played: PlayedJob, left: int) -> int:
        """Until the job is over, or is to go on elsewhere. Returns how many steps are left."""
        tries, again = 0, bool(played.calls)
        played.called = played.called if again else self._session.driver.now()
        while left:
            before, steps = len(played.calls), min(left, job.checkpoint or left)
            if again and job.restart:
                _, call = self._run(part, f"{job.name} restarts", job.restart, 1, played)
                played.calls[call] = False
            run, _ = self._run(part, job.name, _duration(job.step_time(part.devices)), steps, played)
            stopped = self._caller.wait_run_or_size(run, home)
            if stopped:
                run.stop()
            try:
                done = run.wait().steps
                if done < left and job.checkpoint_time:
                    self._run(part, f"{job.name} saves", job.checkpoint_time, 1, played)[0].wait()
                left, tries, again = left - done, 0, done < steps
                played.cuts += again and not stopped
            except RunError as error:
                tries, again = tries + 1, True
                played.calls |= dict.fromkeys(list(played.calls)[before:], False)
                played.losses += infrastructure(error.blame)
                if not _again(error.blame, tries):
                    left, played.cause = 0, str(error)
            if left and self._session.resized(home):
                break
        return left


def _asks(number: int, job: Job) -> dict[str, Any]:
    """What its slice says, besides its size."""
    return {
        "exclusive": True, "kind": job.kind, "name": f"{job.name}.{number}", "deadline": job.deadline,
        "expected": {kind: job.lasts(kind) for kind in job.step_time()},
    }  # fmt: skip


def _lost(gang: CalledGang, run: Run) -> int:
    """How many steps are to be made again."""
    if gang.saves is not None:
        return 0 if run.blame is None else gang.saves.steps
    asked, gang.steps = gang.steps, min(gang.steps, run.steps)
    return asked - gang.steps


def _again(blame: Blame | None, tries: int) -> bool:
    """Whether it is tried again: it was cut; or lost its devices, or waited in vain for lost ones to come back."""
    return blame is None or (tries <= MOST_TRIES and (infrastructure(blame) or blame.code == "timeout"))


def _duration(times: Mapping[str, Nanoseconds]) -> Times:
    return times[""] if set(times) == {""} else times
