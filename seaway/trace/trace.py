"""`Trace`: tables, pictures and files of what happened, the same for a simulated run and a real one.

    trace = Trace(core_trace, setup)            # a Session has one: session.trace
    trace.utilization(by="client", bins=100)    # tidy frames; units are in the column names
    trace.plot()                                # the timeline of some devices
    trace.perfetto("run.json", window=("10ms", "12ms"))
    trace.save("run"); Trace.load("run")

It reads one of core's traces, which may still grow. A set-up, if given, adds names of islands. It takes
times such as "1.5ms", and hands them out as integer nanoseconds, which it takes, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from core.record import trace as core_trace

from .. import machines
from . import busy, fairness, frames, hosts, intervals, step_works, times
from .busy import By
from .facts import Facts, first_time, spread
from .fairness import Whose
from .hosts import NOTHING, HostRows
from .step_works import GangWorks
from .summary import summary
from .times import Bins, Ints, Span, Time, Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sim.simulation import Simulation

    from ..dashboard import TracePage
    from .keys import ColorBy
    from .played_jobs import PlayedJobs

Devices = Iterable[int] | int | None


class Trace:
    """What happened in a session: `session.trace`, or `Trace.load(folder)`. Its tables are pandas frames."""

    def __init__(
        self, core: core_trace.Trace, setup: Any = None, origin: int | None = None, told: HostRows | None = None,
        works: Callable[[], GangWorks] = step_works.nothing,
    ) -> None:  # fmt: skip
        """`setup`: a simulator's set-up, a cluster, or None to infer islands from the trace's places.

        `origin`: the recorder's clock at time 0. In a simulation that is the clock's own 0. The clock of a real cluster
        (which has no simulator's set-up) counts from the machine's start, so time 0 is the first recorded time.
        `told`: the hosts' rows, which `hosts.joined` has merged into `core`. `works`: what a simulation knows of gangs.
        """
        self.core = core
        self._setup = None if setup is None else machines.of_setup(setup)
        real = setup is not None and not hasattr(setup, "cluster")
        self._origin = origin if origin is not None or real else 0
        self._told, self._works = told, works
        self.played: list[PlayedJobs] = []  # workloads of jobs
        self._facts: Facts | None = None
        self._columns: dict[str, dict[str, Any]] = {}

    @classmethod
    def of_simulation(cls, sim: Simulation) -> Trace:
        """With what the simulator knows of gangs, besides their times."""
        return cls(sim.trace, sim.setup, works=partial(step_works.of_simulation, sim))

    # --- tables ---------------------------------------------------------------------------------------------

    def utilization(
        self, by: By = "island", bins: Bins = 1, window: Window = None, devices: Devices = None
    ) -> pd.DataFrame:
        """Parts of the devices' time, in bins of the window: `busy_fraction` computing, `skew_fraction` waiting for
        peers, `input_wait_fraction` waiting for inputs, `reserved_fraction` kept free by a policy, `lost_fraction` not
        there, from when the controller knew. The rest is idle.

        `by`: device, host, island, client, program, step or total. For a client, program or step the parts are of all
        devices' time. `bins`: how many, or how wide ("1ms"), or their edges. Without a window: from the first gang's
        start to the last gang's end.
        """
        busy.check(by)
        edges = times.edges_of(bins, times.window_of(window, self.span))
        return busy.utilization(self.facts(), by, edges, self._devices(devices))

    def intervals(
        self, window: Window = None, devices: Devices = None, sample: int | None = None, limit: int | None = 2_000_000
    ) -> pd.DataFrame:
        """One row a device and gang. More than `limit` rows are refused.

        `devices`: only these. `sample`: this many, with some of every group that ran the same gangs.
        """
        chosen = self.sample(sample) if sample is not None else self._devices(devices)
        return intervals.frame(self.facts(), chosen, times.window_of(window, self.span), limit)

    def gangs(self, window: Window = None) -> pd.DataFrame:
        """One row a gang. `bound_us`: how wrong its times may be if they come from hosts' clocks; else 0."""
        found = frames.gangs(self.facts(), self._window(window))
        return found.assign(bound_us=hosts.bounds(self._told or NOTHING, found["seq"].tolist()) / 1_000)

    def hosts(self, window: Window = None, limit: int | None = 2_000_000) -> pd.DataFrame:
        """One row a gang and host, if known: when the gang was enqueued, started and ended on that host.

        `bound_us`: how wrong the host's clock may be; 0 for the recorder's own clock.
        """
        return hosts.frame(self.facts(), self._told or NOTHING, self.origin, self._window(window), limit)

    def steps(self, window: Window = None) -> pd.DataFrame:
        """One row a step of a program: how often it ran, how long it took."""
        return frames.steps(self.facts(), self._window(window))

    def runs(self, window: Window = None) -> pd.DataFrame:
        """One row a run of a program: latency, device time, and why it failed."""
        return frames.runs(self.facts(), self._window(window))

    def clients(self, window: Window = None) -> pd.DataFrame:
        """One row a client: the share of device time that it asked for and got, its runs and their latency.

        Without a window, `got_share` is of the time in which all clients competed (`contended`), as in the summary, and
        the other columns are of the whole trace. With a window, all of them are of the window.
        """
        return frames.clients(self.facts(), self._window(window))

    def shares(self, bins: Bins = 20, window: Window = None) -> pd.DataFrame:
        """One row a bin and client: its share of the device time that all clients used, and the share it asked for.

        `got_share` is NaN in bins that no client used. `bins`: as for `utilization`. Without a window: while all
        clients competed.
        """
        return fairness.shares(self.facts(), times.edges_of(bins, self._competing(window)))

    def fairness(self, bins: Bins = 20, window: Window = None) -> pd.DataFrame:
        """One row a bin: how fairly the clients that competed in it shared the devices, by their weights.

        `jain`: Jain's index of got over asked; 1 if all are served alike, 1/n if one of n gets everything. `max_min`:
        the smallest got over asked, divided by the largest, and `worst_client` has the smallest. NaN where fewer than
        two clients competed. `bins`: as for `utilization`. Without a window: while all clients competed.
        """
        return fairness.fairness(self.facts(), times.edges_of(bins, self._competing(window)))

    def latency_cdf(self, by: Whose = "client", window: Window = None) -> pd.DataFrame:
        """One row a run that succeeded: its latency, and the fraction of its client's (or program's) runs that took no
        longer. `window`: only runs that ended in it."""
        return fairness.latencies(self.facts(), whose(by), self._window(window))

    def transfers(self, window: Window = None) -> pd.DataFrame:
        """One row a transfer between places, or between a place and a client."""
        return frames.transfers(self.facts(), self._window(window))

    def memory(self, window: Window = None) -> pd.DataFrame:
        """One row a change of a place's memory: bytes on each of its devices."""
        return frames.memory(self.facts(), self._window(window))

    def reservations(self, window: Window = None) -> pd.DataFrame:
        """One row a reservation: devices that a policy kept free, from when until when, and for which client."""
        return frames.reservations(self.facts(), self._window(window))

    def jobs(self) -> pd.DataFrame:
        """One row a job of the workloads that were played (`sw.workload.Jobs.play`), as their reports have it."""
        from . import played_jobs

        return played_jobs.table(self)

    # --- extent ---------------------------------------------------------------------------------------------

    @property
    def machines(self) -> machines.TraceMachines:
        return self._setup or machines.of_places(self.core.places)

    @property
    def since(self) -> int:
        """From when on the trace is complete, in nanoseconds: 0 unless the controller dropped its oldest runs."""
        return max(0, self.core.since - self.origin)

    @property
    def origin(self) -> int:
        """The recorder's clock at time 0, in nanoseconds."""
        if self._origin == 0:
            return 0
        first = first_time(self.core)
        return first if self._origin is None else min(self._origin, first)

    @property
    def span(self) -> Span:
        """Nanoseconds, from the first gang's start to the last one's end."""
        return times.span_of(*self.facts().span)

    @property
    def contended(self) -> Span:
        """The window in which all clients competed: from the last client's first call until the first client was done.

        Shares should be compared there; `trace.clients()` does so.
        """
        return times.span_of(*self.facts().contended)

    def sample(self, count: int) -> Ints:
        """`count` devices: at least one of every group that ran the same gangs, the rest in proportion to its size."""
        return spread(self.facts(), count)

    def summary(self) -> str:
        return summary(self)

    def __repr__(self) -> str:
        return self.summary().splitlines()[0]

    # --- pictures -------------------------------------------------------------------------------------------

    def live(self, bind: str = "") -> TracePage:
        """The trace as a page with a timeline to zoom and scrub. Notebooks show it, and keep it with their outputs.

        Elsewhere, print it: it says its link. `bind`: the link's address, as "127.0.0.1:29100"; without it, a free port
        of this machine. `trace.live().save("run.html")` writes the page as one file.
        """
        from ..dashboard import TracePage
        from .trace_source import TraceSource

        return TracePage(TraceSource(self, f"a trace of {self.machines.describe()}"), bind)

    def plot(
        self, window: Window = None, devices: Devices = None, rows: int = 24, color: ColorBy = "auto",
        title: str | None = None, axes: Axes | None = None,
    ) -> Figure:  # fmt: skip
        """A timeline: one row a device, one bar a gang, coloured by client, program or step. A pale hatched bar is a
        device's wait for the gang's other devices. At most `rows` devices are drawn; the axis says how many there are.

        Without a window: as much of the trace's middle as can be told apart, below a strip of the whole.
        """
        from . import timeline

        return timeline.draw(self, window, self._devices(devices), rows, color, title, axes)

    def plot_utilization(
        self, by: By = "client", bins: int | Time | None = None, window: Window = None, axes: Axes | None = None
    ) -> Figure:
        """Busy devices over time, stacked by client, program or step; or one row an island or host, with its waits."""
        from . import charts

        return charts.utilization(self, by, bins, window, axes)

    def plot_shares(self, window: Window = None, axes: Axes | None = None, bins: Bins | None = None) -> Figure:
        """The share of device time that each client got, beside the share it asked for. With `bins`: over time.

        Without a window: while all clients competed.
        """
        from . import charts, lines

        if bins is None:
            return charts.shares(self, window, axes)
        return lines.shares(self, times.edges_of(bins, self._competing(window)), axes)

    def plot_fairness(self, bins: Bins = 40, window: Window = None, axes: Axes | None = None) -> Figure:
        """Jain's index and the max-min ratio over time (see `fairness`). Without a window: while all competed."""
        from . import lines

        return lines.fairness(self, times.edges_of(bins, self._competing(window)), axes)

    def plot_latency_cdf(self, by: Whose = "client", window: Window = None, axes: Axes | None = None) -> Figure:
        """The distribution of the latency of runs, a curve for each client or program (see `latency_cdf`)."""
        from . import lines

        return lines.latencies(self, self.latency_cdf(by, window), by, axes)

    # --- files ----------------------------------------------------------------------------------------------

    def perfetto(
        self, path: str | Path, window: Window = None, devices: Devices | Literal["all"] = None, limit: int = 1_000_000
    ) -> Path:
        """Write Chrome's Trace Event JSON, which ui.perfetto.dev opens: one process a host, one thread a device.

        If there are more than 64 devices, 64 are written unless `devices` says which: some of every group that ran the
        same gangs. The file says so. `devices="all"` writes all.
        """
        from . import perfetto

        # Without a window, everything: runs begin before their gangs and end after them.
        whole = (0, max(self.facts().horizon, self.span[1]) + 1)
        span = times.window_of(window, whole)
        if devices is None and len(self.facts().devices) > perfetto.MOST:
            chosen: Ints | None = self.sample(perfetto.MOST)
        else:
            chosen = None if devices == "all" else self._devices(devices)
        return perfetto.write(self.facts(), Path(path), span, chosen, limit)

    def chakra(self, folder: str | Path, window: Window = None, limit: int = 10_000_000) -> Path:
        """Write Chakra execution traces, which ASTRA-sim reads: FOLDER/NAME.RANK.et for each device that ran something,
        with the folder's name, and FOLDER/comm_group.json.

        In a simulation, each step of a gang has a node for its own work and one for each of its collectives; on real
        devices, a gang is one node. Transfers are sends and receives. `window`: only gangs that began in it. More than
        `limit` nodes, in all files together, are refused.
        """
        from . import chakra

        whole = (0, max(self.facts().horizon, self.span[1]) + 1)
        span = times.window_of(window, whole)
        return chakra.write(self.facts(), self.core.lists, self._works(), Path(folder), span, limit)

    def save(self, folder: str | Path) -> Path:
        """Write the whole trace to a folder of Parquet files, for `Trace.load`."""
        from . import storage

        return storage.save(
            self.core, self._setup, Path(folder), self.origin, self._told, self._works(), self.played
        )  # fmt: skip

    @classmethod
    def load(cls, folder: str | Path) -> Trace:
        from . import storage

        core, known, origin, told, works, played = storage.load(Path(folder))
        trace = cls(core, origin=origin, told=told, works=lambda: works)
        trace._setup, trace.played = known, played
        return trace

    # --- inside ---------------------------------------------------------------------------------------------

    def facts(self) -> Facts:
        """Facts of the trace as it is now. Core makes new columns after recording, so equal columns mean no change."""
        columns = self.core.columns()
        same = all(
            column is self._columns.get(table, {}).get(name)
            for table, found in columns.items()
            for name, column in found.items()
        )
        if self._facts is None or not same:
            self._facts, self._columns = Facts(self.core, self.machines, self.origin), columns
        return self._facts

    def _window(self, window: Window) -> tuple[int, int] | None:
        return None if window is None else times.window_of(window, self.span)

    def _competing(self, window: Window) -> tuple[int, int]:
        return self.contended if window is None else times.window_of(window, self.span)

    def _devices(self, devices: Devices) -> Ints | None:
        if devices is None:
            return None
        wanted = np.unique(np.atleast_1d(np.asarray(devices if isinstance(devices, int) else list(devices))))
        if not len(wanted):
            raise ValueError("devices=[] asks for none; leave it out for all")
        there = self.facts().devices
        if len(missing := np.setdiff1d(wanted, there)):
            raise ValueError(f"no device {missing[0]}; there is: {self.machines.describe()}")
        return wanted.astype(np.int64)


def whose(by: Whose) -> Whose:
    if by not in ("client", "program"):
        raise ValueError(f"by={by!r}; it is client or program")
    return by
