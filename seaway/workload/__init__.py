"""Open-loop load: requests or jobs that arrive when they arrive, whether or not the ones before are over.

open_loop         `Arrival` and `Arrivals`: what arrives when, for which client; scaled, added, saved, played
poisson_arrivals  `poisson`: drawn from a seed
arrival_files     `load`: from CSV or Parquet
cluster_traces    `philly`: from a public trace of a cluster's jobs
playback          `Arrivals.play`: the calls, each at its time; `LoadReport`: latency from the arrival to the result

>>> step = sw.synthetic("step", devices=8, duration="1ms")
>>> load = sw.workload.poisson(200, "1s", seed=1)
>>> with sw.simulate("B", hosts=2, profile="seaway"):
...     report = load.play(lambda arrival: step(np.float32(0)))
>>> len(load) == len(report.frame())
True
"""

from __future__ import annotations

from .arrival_files import load
from .cluster_traces import philly
from .open_loop import Arrival, Arrivals
from .playback import LoadReport
from .poisson_arrivals import poisson

__all__ = ["Arrival", "Arrivals", "LoadReport", "load", "philly", "poisson"]
