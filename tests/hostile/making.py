"""Good files of each kind, small ones. What is dear is made once a process, and copied."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

CODE = b"the code of a client" * 50
MS = 1_000_000

TOML = """
name = "mine"
note = "a cluster of two kinds"
[[island]]
name = "a"
kind = "v4"
hosts = 4
torus = [4, 2, 2]
[[island]]
name = "b"
kind = "cpu"
hosts = 2
count = 2
devices_per_host = 4
memory = "8 GiB"
[machine]
cores = 8
[dcn]
latency = { value = "20 us", source = "measured" }
bandwidth = "25 GB/s"
"""
CONTROLLERS_TOML = """
dcn_bandwidth = 1000000000
dcn_latency = 20000
[[island]]
name = "a"
hosts = 4
devices_per_host = 2
memory = 1000000
torus = [4, 2]
spares = 1
"""
JOB = {
    "jobid": "j1", "vc": "v1", "user": "u1", "status": "Pass", "submitted_time": "2017-10-07 01:11:39",
    "attempts": [{"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:09",
                  "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]}],
}  # fmt: skip


@cache
def _store() -> Path:
    return Path(tempfile.mkdtemp(prefix="seaway-hostile-"))


def _once(name: str, made: Callable[[Path], object]) -> Path:
    path = _store() / name
    if not path.exists():
        made(path)
    return path


def forget() -> None:
    shutil.rmtree(_store())


def log(folder: Path) -> Path:
    return Path(shutil.copy(_once("run.log", _log), folder))


def _log(path: Path) -> None:
    import pytest

    from core.schedule.policy import Stride
    from tests.backend.cluster import chain
    from tests.seaway.tools.whatif.recording import Recorded

    with pytest.MonkeyPatch.context() as patch:
        recorded = Recorded(patch, policy=Stride)
        recorded.person("ann", chain(2, 4, cost=MS), runs=4, fetch=True)
        recorded.person("bob", chain(1, 4, cost=MS), runs=3, waits=False, starts=MS, views=True)
        recorded.run().save(path)


def trace(folder: Path) -> Path:
    return Path(shutil.copytree(_once("run", _trace), folder / "run"))


def _trace(path: Path) -> None:
    import numpy as np

    import seaway as sw

    one, two = sw.slice(devices=4), sw.slice(devices=8)
    step, other = (sw.synthetic(name, devices=on, duration="1ms") for name, on in (("step", one), ("other", two)))
    with sw.simulate("B", islands=2, hosts=2) as s:
        for name in ("ann", "bob"):
            with s.client(name):
                for _ in range(3):
                    other(step(np.float32(0))).block_until_ready()
        s.trace.save(path)


def _text(text: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return make


cluster, controllers_cluster = _text(TOML), _text(CONTROLLERS_TOML)


def calibration(folder: Path) -> Path:
    from seaway.tools.calibrating.calibration import Calibration, Figure

    figures = [
        Figure("send", 20_000.0, "ns", 0.1, "timed", "profile.costs.send"),
        Figure("latency", 40_000.0, "ns", 0.1, "timed", "dcn.latency"),
        Figure("network", 1e10, "B/s", 0.1, "timed", "machine.nic_bandwidth"),
    ]
    made = Calibration("cpu", 2, 2, 4, 2, 8, "this machine", tuple(figures), ("stall",))
    return made.save(folder / "mine.toml")


def profile(folder: Path) -> Path:
    return _text('like = "seaway"\nnote = "mine"\nfanout = 8\n[costs]\nsend = "20 us"\nstep = 3000\n')(folder)


def _arrivals(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        import seaway as sw

        return sw.workload.poisson(100, "200ms", seed=1).save(folder / name)

    return make


arrivals_csv, arrivals_parquet = _arrivals("arrivals.csv"), _arrivals("arrivals.parquet")


def jobs_csv(folder: Path) -> Path:
    import seaway as sw

    return sw.workload.poisson_jobs(60, "30min", seed=1, devices={1: 1, 8: 1}).save(folder / "jobs.csv")


def request_lines(folder: Path) -> Path:
    path = folder / "trace.jsonl"
    row = {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}
    path.write_text(json.dumps(row), encoding="utf-8")
    return path


def request_table(folder: Path) -> Path:
    path = folder / "trace.csv"
    row = "2023-11-16 18:15:46.6805900,374,44"
    path.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{row}\n{row}\n", encoding="utf-8")
    return path


def helios(folder: Path) -> Path:
    path = folder / "cluster_log.csv"
    row = "COMPLETED,2020-04-01 00:00:10,300"
    path.write_text(f"job_id,vc,gpu_num,state,submit_time,duration\n1,a,8,{row}\n2,b,1,{row}\n", encoding="utf-8")
    return path


def pai(folder: Path) -> Path:
    path = folder / "pai_task_table.csv"
    row = "worker,4.0,Terminated,1000.0,1600.0,600.0,29.0,50.0,V100"
    path.write_text(f"j1,{row}\nj2,{row}\n", encoding="utf-8")
    return path


def philly(folder: Path) -> Path:
    path = folder / "cluster_job_log"
    path.write_text(json.dumps([JOB, {**JOB, "jobid": "j2", "attempts": []}]), encoding="utf-8")
    return path


def _cost() -> Any:
    from seaway.costs.cost import Cost

    return Cost.stated(1_234_567, "step")


def cost(folder: Path) -> Path:
    _cost().to_json(folder / "cost.json")
    return folder / "cost.json"


def cached_cost(folder: Path) -> Path:
    from seaway.costs import cost_cache

    path = folder / f"{cost_cache.key('step')}.json"
    cached(path)
    return path


def cached(path: Path) -> Any:
    """The cost with this file as its place in the cache."""
    import pytest

    from seaway.costs import cost_cache

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost_cache, "folder", lambda: path.parent)
        return cost_cache.cost(path.stem, "step", _cost)


def agents(folder: Path) -> Path:
    from backend.server.state_folder import known_file
    from backend.wire import Enrol

    one = Enrol("agent-0", 1, "127.0.0.1:1", "timed", "cpu", 2, 1 << 30)
    known_file(folder, "agents").write({0: one, 1: one})
    return folder / "agents.json"


def usage(folder: Path) -> Path:
    from backend.server.state_folder import known_file

    known_file(folder, "usage").write([(name, 5, 1, 2, 3, 4) for name in "ab"])
    return folder / "usage.json"


def accounts(folder: Path) -> Path:
    from backend.auth import new_token

    (folder / "accounts.toml").write_text("".join(f"{new_token(name, 'user')[1]}\ndevices = 4\n" for name in "ab"))
    return folder / "accounts.toml"


def code(folder: Path) -> Path:
    from backend.contents import hash_of
    from backend.server.state_folder import CodeFolder

    CodeFolder(folder / "code").keep(hash_of(CODE), CODE)
    return folder / "code" / hash_of(CODE)


def state(folder: Path) -> Path:
    from backend.server.state_folder import remembered

    remembered(folder / "state")
    return folder / "state"


def verdict(folder: Path) -> Path:
    from backend.sandbox.verdicts import Verdict, Verdicts

    with Verdicts(folder).about("abc", 0.1) as slot:
        slot.keep(Verdict("refused", reason="it has the operation x"))
    return folder / "checked" / "abc.json"


def executable(folder: Path) -> Path:
    from backend.pjrt.code.executable_cache import ExecutableCache

    ExecutableCache(folder).keep("abc", CODE)
    return folder / "executables" / "abc"
