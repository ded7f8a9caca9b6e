"""`philly`: arrivals from the public trace of a cluster's jobs, so that a policy meets a load that a cluster had.

The format is that of `cluster_job_log` in Microsoft's Philly traces (Jeon et al., USENIX ATC 2019;
github.com/msr-fiddle/philly-traces): a JSON list with an entry for each job, its virtual cluster, its user, when it was
submitted, and each attempt with its times and GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..file_reading import MOST, plain_bytes
from .open_loop import Arrival, Arrivals

NONE = ("", "None", None)
STATUSES = ("Pass", "Killed", "Failed")


class _Machine(msgspec.Struct):
    ip: str
    gpus: list[str]


class _Attempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Machine] = []


class _Job(msgspec.Struct):
    jobid: str
    submitted_time: str | None
    user: str = ""
    vc: str = ""
    status: str = ""
    attempts: list[_Attempt] = []


def philly(path: str | Path, *, client: Literal["vc", "user"] = "vc", status: Sequence[str] = STATUSES) -> Arrivals:
    """Read the job log of the Philly traces, or of another cluster in their format.

    Each job is an arrival at the time at which it was submitted, counted from the first one. It takes the GPUs of its
    last attempt, for as long as all its attempts took together. Jobs that never ran, or whose times are missing, are
    left out. client: whose job it is: "vc", its virtual cluster, or "user". status: jobs that ended otherwise are left
    out too, as with `status=["Pass"]`.

        >>> import json
        >>> job = {"jobid": "j1", "vc": "v1", "user": "u1", "status": "Pass", "submitted_time": "2017-10-07 01:11:39",
        ...        "attempts": [{"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:09",
        ...                      "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]}]}
        >>> with open("cluster_job_log", "w") as file:
        ...     json.dump([job], file)
        >>> sw.workload.philly("cluster_job_log")[0]
        Arrival(at=0, client='v1', name='j1', devices=2, duration=60000000000)
    """
    if client not in ("vc", "user"):
        raise ValueError(f"sw.workload.philly(client={client!r}): 'vc' or 'user'")
    wanted = [status] if isinstance(status, str) else list(status)
    for each in wanted:
        if each not in STATUSES:
            raise ValueError(f"sw.workload.philly(status={status!r}): of {', '.join(STATUSES)}")
    file = Path(path)
    try:
        jobs = msgspec.json.decode(plain_bytes(file, MOST), type=list[_Job])
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"{file} is no job log in the format of the Philly traces: {error}") from None
    found = [
        (submitted, job, devices, lasts)
        for job in jobs
        if job.status in wanted or not job.status
        for submitted, devices, lasts in _ran(job, file)
    ]
    begin = min((submitted for submitted, *_ in found), default=0)
    return Arrivals(
        Arrival(submitted - begin, getattr(job, client) or "unknown", job.jobid, devices, lasts)
        for submitted, job, devices, lasts in found
    )


def _ran(job: _Job, file: Path) -> list[tuple[int, int, int]]:
    """[(when it was submitted, GPUs, how long it ran)] of a job that ran; [] of one that did not, or of which nobody
    knows when."""
    if job.submitted_time in NONE:
        return []
    spans = [
        (_time(attempt.start_time, job, file), _time(attempt.end_time, job, file))
        for attempt in job.attempts
        if attempt.start_time not in NONE and attempt.end_time not in NONE
    ]
    lasts = sum(max(0, end - start) for start, end in spans)
    gpus = [sum(len(machine.gpus) for machine in attempt.detail) for attempt in job.attempts]
    devices = next((count for count in reversed(gpus) if count), 0)
    if not lasts or not devices:
        return []
    return [(_time(job.submitted_time, job, file), devices, lasts)]


def _time(text: Any, job: _Job, file: Path) -> int:
    """Nanoseconds of a time that says no zone."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{file}, job {job.jobid!r}: {text!r} is no time, like '2017-10-07 01:11:39'") from None
    return round((when.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()) * 1_000_000_000
