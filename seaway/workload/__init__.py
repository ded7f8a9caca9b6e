"""Workloads: requests or jobs that arrive when they arrive, whether or not the ones before are over.

timed_items       what both have in common: plain values, added, cut, saved
open_loop         `Arrival` and `Arrivals`: requests;  playback: `Arrivals.play`: the calls, each at its time;
                  `LoadReport`: latency from the arrival to the result
jobs              `Job` and `Jobs`: so many steps on so many devices;  job_playback: `Jobs.play`
job_report        `JobReport`: what became of jobs;  job_pictures: the same, drawn
poisson_arrivals  `poisson` and `poisson_jobs`: drawn from a seed
arrival_files     `load`, `Jobs.load`: from CSV or Parquet
failing_hosts     `failures`, `failures_of`, `stragglers`: what goes wrong with hosts, drawn or from a log
chakra_ranks      `chakra`: Chakra execution traces;  chakra_steps: what ranks do together;  chakra_playback: played
job_logs          `philly`, `helios`, `pai`: from public logs of clusters;  request_logs: `requests`

>>> step = sw.synthetic("step", devices=8, duration="1ms")
>>> load = sw.workload.poisson(200, "1s", seed=1)
>>> with sw.simulate("B", hosts=2, profile="seaway"):
...     report = load.play(lambda arrival: step(np.float32(0)))
>>> len(load) == len(report.frame())
True
"""

from .arrival_files import load
from .chakra_ranks import load as chakra
from .failing_hosts import failures, failures_of, stragglers
from .job_logs import helios, pai, philly
from .job_report import JobReport
from .jobs import Job, Jobs
from .open_loop import Arrival, Arrivals
from .playback import LoadReport
from .poisson_arrivals import poisson, poisson_jobs
from .request_logs import requests

__all__ = [
    "Arrival", "Arrivals", "Job", "JobReport", "Jobs", "LoadReport", "chakra", "failures", "failures_of", "helios",
    "load", "pai", "philly", "poisson", "poisson_jobs", "requests", "stragglers",
]  # fmt: skip
