"""Jobs from the public logs of clusters, in the seconds that they took there.

    philly   Microsoft, 2017: `cluster_job_log` (Jeon et al., USENIX ATC 2019; github.com/msr-fiddle/philly-traces)
    helios   SenseTime, 2020: `cluster_log.csv` (Hu et al., SC 2021; github.com/S-Lab-System-Group/HeliosData)
    pai      Alibaba, 2020: `pai_task_table.csv`, `pai_job_table.csv` (Weng et al., NSDI 2022; github.com/alibaba/
             clusterdata, cluster-trace-gpu-v2020)

A log says how long a job ran, not in which steps: here it is one step, which is never cut. `Jobs.in_steps` divides it.
A job arrives when it was submitted, counted from the first job of the log.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from io import StringIO
from math import ceil
from pathlib import Path
from typing import Any, Literal

import msgspec

from core.model import Impossible

from ..file_reading import MOST, plain_bytes
from ..units import Nanoseconds
from .jobs import Job, Jobs

NONE = ("", "None", "nan", None)
S = 1_000_000_000
Row = Mapping[str, str]


class _Machine(msgspec.Struct):
    ip: str
    gpus: list[str]


class _Attempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Machine] = []


class _PhillyJob(msgspec.Struct):
    jobid: str
    submitted_time: str | None
    user: str = ""
    vc: str = ""
    status: str = ""
    attempts: list[_Attempt] = []


def philly(
    path: str | Path, *, user: Literal["vc", "user"] = "vc", status: Sequence[str] = ("Pass", "Killed", "Failed")
) -> Jobs:
    """Read the job log of the Philly traces, or of another cluster in their format.

    A job takes the GPUs of its last attempt, for as long as all its attempts took together. Jobs that never ran, or
    whose times are missing, are left out. user: whose job it is: "vc", its virtual cluster, or "user". status: jobs
    that ended otherwise are left out too, as with `status=["Pass"]`.

        >>> import json
        >>> job = {"jobid": "j1", "vc": "v1", "user": "u1", "status": "Pass", "submitted_time": "2017-10-07 01:11:39",
        ...        "attempts": [{"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:09",
        ...                      "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]}]}
        >>> with open("cluster_job_log", "w") as file:
        ...     json.dump([job], file)
        >>> job = sw.workload.philly("cluster_job_log")[0]
        >>> job.user, job.devices, job.lasts()
        ('v1', 2, 60000000000)
    """
    wanted, file = _wanted("philly", status, ("Pass", "Killed", "Failed")), Path(path)
    if user not in ("vc", "user"):
        raise ValueError(f"sw.workload.philly(user={user!r}): 'vc' or 'user'")
    try:
        jobs = msgspec.json.decode(plain_bytes(file, MOST), type=list[_PhillyJob])
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"{file} is no job log in the format of the Philly traces: {error}") from None
    found = (
        (_time(job.submitted_time, f"{file}, job {job.jobid!r}"), getattr(job, user), job.jobid, *ran, "")
        for job in jobs
        if job.submitted_time not in NONE and (job.status in wanted or not job.status)
        for ran in _ran(job, file)
    )
    return _jobs(file, found)


def _ran(job: _PhillyJob, file: Path) -> Iterator[tuple[int, int]]:
    """(GPUs, nanoseconds) of a job that ran, if the log says when."""
    where = f"{file}, job {job.jobid!r}"
    spans = [
        (_time(attempt.start_time, where), _time(attempt.end_time, where))
        for attempt in job.attempts
        if attempt.start_time not in NONE and attempt.end_time not in NONE
    ]
    gpus = [sum(len(machine.gpus) for machine in attempt.detail) for attempt in job.attempts]
    yield next((count for count in reversed(gpus) if count), 0), sum(max(0, end - start) for start, end in spans)


def helios(
    path: str | Path, *, user: Literal["vc", "user"] = "vc",
    status: Sequence[str] = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL"),
) -> Jobs:  # fmt: skip
    """Read a `cluster_log.csv` of the Helios traces. Jobs without GPUs are left out. Options as for `philly`."""
    states = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL")
    wanted, file = _wanted("helios", status, states), Path(path)
    needs = ("job_id", user, "gpu_num", "state", "submit_time", "duration")
    rows = _rows(file, needs, needs, "cluster_log.csv of the Helios traces")
    found = (
        (_time(row["submit_time"], where), row[user], row["job_id"], _count(row["gpu_num"], where),
         _seconds(row["duration"], where), "")
        for where, row in rows
        if row["state"] in wanted
    )  # fmt: skip
    return _jobs(file, found)


def pai(tasks: str | Path, jobs: str | Path | None = None, *, kinds: bool = False) -> Jobs:
    """Read `pai_task_table.csv` of Alibaba's GPU traces of 2020, and `pai_job_table.csv` for users and submission.

    A job takes all GPUs of its tasks, from the begin of the first one to the end of the last. Parts of a GPU count as
    a whole one. Only jobs that ended well are taken. kinds: each must have the kind of GPU that it had, as "V100".
    """
    file = Path(tasks)
    needs = ("job_name", "inst_num", "status", "start_time", "end_time", "plan_gpu", "gpu_type")
    header = ("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem",
              "plan_gpu", "gpu_type")  # fmt: skip
    found: dict[str, list[tuple[str, Row]]] = {}
    for where, row in _rows(file, needs, header, "pai_task_table.csv of Alibaba's GPU traces"):
        found.setdefault(row["job_name"], []).append((where, row))
    who: dict[str, Row] = {}
    if jobs is not None:
        columns = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
        table = _rows(Path(jobs), ("job_name", "user", "start_time"), columns, "pai_job_table.csv")
        who = {row["job_name"]: row for _, row in table}
    whole = {name: rows for name, rows in found.items() if _whole(rows)}
    return _jobs(file, (_pai_job(name, rows, who.get(name, {}), kinds) for name, rows in whole.items()))


def _whole(rows: Sequence[tuple[str, Row]]) -> bool:
    return all(row["status"] == "Terminated" and row["start_time"] not in NONE and row["end_time"] not in NONE
               for _, row in rows)  # fmt: skip


def _pai_job(name: str, rows: Sequence[tuple[str, Row]], job: Row, kinds: bool) -> _Found:
    begin = min(_seconds(row["start_time"], where) for where, row in rows)
    end = max(_seconds(row["end_time"], where) for where, row in rows)
    parts = [(row["inst_num"], row["plan_gpu"], where) for where, row in rows if row["plan_gpu"] not in NONE]
    gpus = sum(_seconds(count, where) // S * _seconds(part, where) for count, part, where in parts) / (100 * S)
    kind = next((row["gpu_type"] for _, row in rows if row["gpu_type"] not in NONE), "") if kinds else ""
    submitted = _seconds(job["start_time"], name) if job.get("start_time") not in NONE else begin
    return min(submitted, begin), job.get("user", ""), name, ceil(gpus), end - begin, kind


# --- what they have in common -----------------------------------------------------------------------------------

_Found = tuple[int, str, str, int, int, str]  # submitted, whose, name, devices, how long, kind


def _jobs(file: Path, found: Iterable[_Found]) -> Jobs:
    """Those that had devices, and took time."""
    ran = [each for each in found if each[3] > 0 and each[4] > 0]
    begin = min((each[0] for each in ran), default=0)
    try:
        return Jobs(
            Job(at=Nanoseconds(at - begin), user=whose or "unknown", name=name or "job", devices=devices,
                step=Nanoseconds(lasts), kind=kind)
            for at, whose, name, devices, lasts, kind in ran
        )  # fmt: skip
    except Impossible as error:
        raise ValueError(f"{file}: {error}") from None


def _wanted(reader: str, status: Sequence[str], known: Sequence[str]) -> list[str]:
    wanted = [status] if isinstance(status, str) else list(status)
    if not set(wanted) <= set(known):
        raise ValueError(f"sw.workload.{reader}(status={status!r}): of {', '.join(known)}")
    return wanted


def _rows(file: Path, needs: Sequence[str], header: Sequence[str], what: str) -> Iterator[tuple[str, Row]]:
    """(where, row). A table may come without its header."""
    try:
        text = plain_bytes(file, MOST).decode()
        table = list(csv.reader(StringIO(text)))
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{file} is no {what}: {error}") from None
    names = table[0] if table and needs[0] in table[0] else list(header)
    lacking = [name for name in needs if name not in names]
    if not table or lacking or len(names) != len(table[0]):
        raise ValueError(f"{file} is no {what}: it needs the columns {', '.join(needs)}")
    for number, row in enumerate(table[names is table[0] :], 1):
        where = f"{file}, row {number}"
        if len(row) != len(names):
            raise ValueError(f"{where}: it has {len(row)} columns instead of {len(names)}")
        yield where, dict(zip(names, row, strict=True))


def _number(text: str, where: str, of: Callable[[str], float] = float) -> float:
    try:
        found = of(text)
    except ValueError:
        found = -1
    if not 0 <= found < 1e12:
        raise ValueError(f"{where}: {text!r:.60} is no number from 0 on")
    return found


def _count(text: str, where: str) -> int:
    return int(_number(text, where, int))


def _seconds(text: str, where: str) -> int:
    return round(_number(text, where) * 1_000) * (S // 1_000)


def _time(text: Any, where: str) -> int:
    """Nanoseconds of a time that says no zone."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{where}: {text!r} is no time, like '2017-10-07 01:11:39'") from None
    return round((when.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()) * S
