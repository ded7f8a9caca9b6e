"""The kinds of files that Seaway reads. One more is one more `Kind` in the table."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from . import making, reshaping


class Kind(NamedTuple):
    """`make` puts a good one into a folder, and says where. `open` does all that a user may do with it.

    `reshape` changes what the file holds, in its own format; sums are made to fit again. `summed`: no damage to bytes
    goes unnoticed, so what can be opened says what the good one says. `writes`: to open it may write beside it, as a
    process does that keeps its state there. `ignored`: what is damaged is as if it were not there, without an error.
    """

    make: Callable[[Path], Path]
    open: Callable[[Path], Any]
    reshape: Callable[[Random, Path], None] | None = None
    summed: bool = False
    writes: bool = False
    ignored: bool = False


# --- opening --------------------------------------------------------------------------------------------------------


def log(path: Path) -> Any:
    from backend.server import eventlogs

    found = eventlogs.read(path)
    return [*found.entries, found.about.cluster, found.about.config]


def partial_log(path: Path) -> Any:
    from backend.server import eventlogs

    return len(eventlogs.read(path, partial=True).entries)


def shown_log(path: Path) -> Any:
    from seaway.cli.replaying import show

    return show(Namespace(log=path, start=None, partial=False, kind=[], first=0, last=None, full=False))


def replayed_log(path: Path) -> Any:
    from seaway.cli.replaying import replay

    return replay(Namespace(log=path, start=None, partial=False, policy="", stop=None, save=None))


def page_of_log(path: Path) -> Any:
    from core.record import Look
    from seaway.dashboard import LogSource

    source = LogSource(path)
    source.look(Look())
    source.at(source.began + 1_000_000)
    return source.title


def workload_of_log(path: Path) -> Any:
    from seaway.tools.whatif import settings, workload
    from sim.hardware import profile

    found = workload.read(path)
    settings.as_recorded(found, profile("seaway"), None)
    return found.policy, len(found.people)


def trace(path: Path) -> Any:
    import seaway as sw

    found = sw.trace.Trace.load(path)
    found.utilization()
    found.gangs(), found.runs(), found.transfers(), found.memory(), found.reservations()
    return {name: {c: bytes(data) for c, data in table.items()} for name, table in found.core.columns().items()}


def page_of_trace(path: Path) -> Any:
    from core.record import Look
    from seaway.trace import trace_source

    return trace_source.TraceSource.opened(path).look(Look())


def cluster(path: Path) -> Any:
    from sim.hardware import setups

    found = setups.load(path)
    return found, found.describe()


def controllers_cluster(path: Path) -> Any:
    from backend.server.controller_cli import cluster_of

    return cluster_of(Namespace(cluster=str(path))).describe()


def profile(path: Path) -> Any:
    from sim.hardware import profile

    return profile(path).describe()


def arrivals(path: Path) -> Any:
    import seaway as sw

    return list(sw.workload.load(path))


def jobs(path: Path) -> Any:
    import seaway as sw

    return list(sw.workload.Jobs.load(path))


def requests(path: Path) -> Any:
    import seaway as sw

    return list(sw.workload.requests(path))


def helios(path: Path) -> Any:
    import seaway as sw

    return list(sw.workload.helios(path))


def pai(path: Path) -> Any:
    import seaway as sw

    return list(sw.workload.pai(path))


def philly(path: Path) -> Any:
    import seaway as sw

    return list(sw.workload.philly(path))


def cost(path: Path) -> Any:
    from seaway.costs.cost import Cost

    found = Cost.from_json(path)
    return found, str(found)


def cached_cost(path: Path) -> Any:
    return making.cached(path)


def agents(path: Path) -> Any:
    from backend.server.state_folder import known_file

    return known_file(path.parent, "agents").read()


def usage(path: Path) -> Any:
    from backend.server.state_folder import known_file

    return known_file(path.parent, "usage").read()


def accounts(path: Path) -> Any:
    from backend.auth import read_accounts

    return read_accounts(str(path))


def code(path: Path) -> Any:
    from backend.server.state_folder import CodeFolder

    found = CodeFolder(path.parent).find(path.name)
    assert found in (None, making.CODE)
    return found


def state(path: Path) -> Any:
    from backend.server.state_folder import remembered

    return len(remembered(path).secret)


def verdict(path: Path) -> Any:
    from backend.sandbox.verdicts import Verdicts

    with Verdicts(path.parent.parent).about(path.stem, 0.1) as slot:
        return slot.verdict


def executable(path: Path) -> Any:
    from backend.pjrt.code.executable_cache import ExecutableCache

    return ExecutableCache(path.parent.parent).find(path.name)


KINDS: dict[str, Kind] = {
    "event log": Kind(making.log, log, reshaping.log, summed=True),
    "event log, partial": Kind(making.log, partial_log, reshaping.log),
    "event log, shown": Kind(making.log, shown_log, reshaping.log),
    "event log, replayed": Kind(making.log, replayed_log, reshaping.log),
    "event log on a page": Kind(making.log, page_of_log, reshaping.log),
    "event log as a workload": Kind(making.log, workload_of_log, reshaping.log),
    "trace": Kind(making.trace, trace, reshaping.trace, summed=True),
    "trace on a page": Kind(making.trace, page_of_trace, reshaping.trace),
    "cluster file": Kind(making.cluster, cluster, reshaping.toml),
    "calibration": Kind(making.calibration, cluster, reshaping.toml),
    "controller's cluster file": Kind(making.controllers_cluster, controllers_cluster, reshaping.toml),
    "profile": Kind(making.profile, profile, reshaping.toml),
    "arrivals, CSV": Kind(making.arrivals_csv, arrivals, reshaping.csv),
    "arrivals, Parquet": Kind(making.arrivals_parquet, arrivals, reshaping.parquet),
    "jobs, CSV": Kind(making.jobs_csv, jobs, reshaping.csv),
    "requests, JSON lines": Kind(making.request_lines, requests, reshaping.json),
    "requests, CSV": Kind(making.request_table, requests, reshaping.csv),
    "job log": Kind(making.philly, philly, reshaping.json),
    "job log of Helios": Kind(making.helios, helios, reshaping.csv),
    "tasks of PAI": Kind(making.pai, pai, reshaping.csv),
    "cost": Kind(making.cost, cost, reshaping.json),
    "cached cost": Kind(making.cached_cost, cached_cost, reshaping.json, summed=True, writes=True, ignored=True),
    "agents of a state folder": Kind(making.agents, agents, reshaping.json, ignored=True),
    "usage of a state folder": Kind(making.usage, usage, reshaping.json, ignored=True),
    "accounts file": Kind(making.accounts, accounts, reshaping.toml),
    "code of a state folder": Kind(making.code, code, summed=True, writes=True, ignored=True),
    "state folder": Kind(making.state, state, reshaping.state, writes=True),
    "verdict": Kind(making.verdict, verdict, reshaping.json, writes=True, ignored=True),
    "executable": Kind(making.executable, executable, summed=True, writes=True, ignored=True),
}
