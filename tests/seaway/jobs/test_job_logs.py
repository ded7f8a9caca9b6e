"""Jobs from public logs of clusters: Microsoft's Philly, SenseTime's Helios, Alibaba's PAI."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import seaway as sw
from seaway.workload import Job

S = 1_000_000_000
SAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "philly.json"


# --- Philly -----------------------------------------------------------------------------------------------------


def test_a_job_of_the_philly_format_arrives_when_it_was_submitted_with_the_gpus_and_time_that_it_had() -> None:
    jobs = sw.workload.philly(SAMPLE)
    assert len(jobs) == 10  # of 12: one never ran, one was still running
    assert jobs[0] == Job(at=0, user="vc-a", name="application_0_0001", devices=8, step="120s")
    twice = next(job for job in jobs if job.name == "application_0_0003")  # it was tried again, elsewhere
    assert (twice.devices, twice.lasts()) == (16, (60 + 300) * S)
    assert set(jobs.clients) == {"vc-a", "vc-b", "vc-c"}
    assert set(sw.workload.philly(SAMPLE, user="user").clients) == {"u1", "u2", "u3", "u4"}
    assert len(sw.workload.philly(SAMPLE, status=["Pass"])) == 7


def test_a_file_in_another_format_than_phillys_is_refused_by_what_is_wrong_in_it(tmp_path: Path) -> None:
    file = tmp_path / "jobs"
    file.write_text('[{"jobid": 5}]')
    with pytest.raises(ValueError, match=r"no job log in the format of the Philly traces: .*jobid"):
        sw.workload.philly(file)
    ran = {"start_time": "2017-10-07 01:00:00", "end_time": "2017-10-07 01:01:00"}
    detail = [{"ip": "m", "gpus": ["g"]}]
    job = {"jobid": "j", "submitted_time": "yesterday", "attempts": [{**ran, "detail": detail}]}
    file.write_text(json.dumps([job]))
    with pytest.raises(ValueError, match="job 'j': 'yesterday' is no time"):
        sw.workload.philly(file)
    with pytest.raises(ValueError, match="of Pass, Killed, Failed"):
        sw.workload.philly(SAMPLE, status=["Passed"])
    with pytest.raises(ValueError, match="'vc' or 'user'"):
        sw.workload.philly(SAMPLE, user="who")  # type: ignore[arg-type]


# --- Helios -----------------------------------------------------------------------------------------------------

HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,u1,vc1,8,32,1,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:00:20,2020-04-01 00:05:20,300,10
2,u2,vc1,0,4,1,COMPLETED,2020-04-01 00:00:11,2020-04-01 00:00:11,2020-04-01 00:00:21,10,0
3,u2,vc2,1,4,1,FAILED,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 00:00:07,7,0
4,u2,vc2,2,4,1,CANCELLED,2020-04-01 00:00:30,2020-04-01 00:00:30,2020-04-01 00:00:30,0,0
"""


def test_a_job_of_helios_has_the_gpus_and_the_seconds_of_its_row_and_those_without_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "cluster_log.csv"
    file.write_text(HELIOS)
    assert list(sw.workload.helios(file)) == [
        Job(at=0, user="vc2", name="3", devices=1, step="7s"),
        Job(at="10s", user="vc1", name="1", devices=8, step="300s"),
    ]
    assert sw.workload.helios(file, user="user").clients == ["u2", "u1"]
    assert [job.name for job in sw.workload.helios(file, status="COMPLETED")] == ["1"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("gpu_num", "gpus", "it needs the columns job_id, vc, gpu_num, state, submit_time, duration"),
        ("2020-04-01 00:00:00,2020", "then,2020", "row 3: 'then' is no time, like '2017-10-07 01:11:39'"),
        ("1,u1,vc1,8,", "1,u1,vc1,eight,", "row 1: 'eight' is no number from 0 on"),
        (",300,10", ",300", "row 1: it has 11 columns instead of 12"),
        ("2020-04-01 00:00:10,2020", "2420-04-01 00:00:10,2020", "cluster_log.csv: at of a job cannot be .*too large"),
    ],
)
def test_what_is_wrong_in_a_log_of_helios_is_named_by_its_row(tmp_path: Path, old: str, new: str, says: str) -> None:
    file = tmp_path / "cluster_log.csv"
    assert old in HELIOS
    file.write_text(HELIOS.replace(old, new))
    with pytest.raises(ValueError, match=says):
        sw.workload.helios(file)


# --- PAI: its tables come without a header -----------------------------------------------------------------------

TASKS = """\
j1,worker,4.0,Terminated,1000.0,1600.0,600.0,29.0,50.0,V100
j1,ps,1.0,Terminated,990.0,1601.5,600.0,29.0,,
j2,worker,1.0,Terminated,1200.0,1300.0,600.0,29.0,25.0,T4
j3,worker,1.0,Failed,1000.0,1010.0,600.0,29.0,100.0,T4
j4,worker,1.0,Running,1000.0,,600.0,29.0,100.0,T4
"""
JOBS = """\
j1,i1,u7,Terminated,980.0,1601.5
j2,i2,u8,Terminated,1150.0,1300.0
j3,i3,u8,Failed,1000.0,1010.0
"""


def test_a_job_of_pai_takes_all_gpus_of_its_tasks_from_the_first_begin_to_the_last_end(tmp_path: Path) -> None:
    tasks, jobs = tmp_path / "pai_task_table.csv", tmp_path / "pai_job_table.csv"
    tasks.write_text(TASKS)
    jobs.write_text(JOBS)
    assert list(sw.workload.pai(tasks, jobs)) == [
        Job(at=0, user="u7", name="j1", devices=2, step="611500ms"),  # four halves of a GPU
        Job(at="170s", user="u8", name="j2", devices=1, step="100s"),
    ]
    assert [job.kind for job in sw.workload.pai(tasks, jobs, kinds=True)] == ["V100", "T4"]
    alone = sw.workload.pai(tasks)  # without submissions: when they began
    assert [(job.at, job.user) for job in alone] == [(0, "unknown"), (210 * S, "unknown")]


def test_a_table_of_pai_with_a_header_is_read_by_it(tmp_path: Path) -> None:
    file = tmp_path / "tasks.csv"
    file.write_text("plan_gpu,job_name,inst_num,status,start_time,end_time,gpu_type\n100,j,2,Terminated,5,9,T4\n")
    assert list(sw.workload.pai(file)) == [Job(at=0, user="unknown", name="j", devices=2, step="4s")]


def test_another_table_than_pais_is_refused_by_the_columns_that_it_needs(tmp_path: Path) -> None:
    file = tmp_path / "tasks.csv"
    for text in ("", "j1,worker\n"):
        file.write_text(text)
        with pytest.raises(
            ValueError, match=r"pai_task_table\.csv of Alibaba's GPU traces: it needs the columns job_n"
        ):
            sw.workload.pai(file)
