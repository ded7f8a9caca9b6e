"""What a run looked like: tables, pictures and files of a trace, the same for a simulated run and a real one.

    trace = Trace(core_trace, setup)            # a Session has one: session.trace
    trace.utilization(by="client", bins=100)    # tidy frames; units are in the column names
    trace.plot()                                # the timeline of some devices
    trace.perfetto("run.json", window=("10ms", "12ms"))
    trace.save("run"); Trace.load("run")

It reads a `Trace` of core's, which may still grow, and nothing else; what a set-up knows of islands makes the names
better. Times are nanoseconds as integers, or text such as "1.5ms".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core.record import trace as core_trace

from . import machines, times
from .busy import BYS, By
from .facts import Facts, first_time
from .times import Ints, Time, Window

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .hosts import HostRows
    from .timeline import ColorBy

Devices = Iterable[int] | int | None


class Trace:
    """What happened in a session: `session.trace`, or `Trace.load(folder)`. Its tables are pandas frames."""

    def __init__(
        self,
        core: core_trace.Trace,
        setup: Any = None,
        origin: int | None = None,
        told: HostRows | None = None,
    ) -> None:
        """`setup`: what has a `cluster`, a cluster, or None: then islands are what the trace's places show of them.

        `origin`: by the recorder's clock, when time 0 is. It is the clock's own 0, as in a simulation; but of a real
        cluster, which comes without a simulator's set-up, the clock began with the machine: there it is when the
        first thing was recorded. `told`: what hosts have said of their gangs, which `hosts.joined` has put into `core`.
        """
        self.core = core
        self._setup = None if setup is None else machines.of_setup(setup)
        real = setup is not None and not hasattr(setup, "cluster")
        self._origin = origin if origin is not None or real else 0
        self._told = told
        self._facts: Facts | None = None
        self._columns: dict[str, dict[str, Any]] = {}

    # --- tables ---------------------------------------------------------------------------------------------

    def utilization(
        self,
        by: By = "island",
        bins: int | Time | Sequence[Time] = 1,
        window: Window = None,
        devices: Devices = None,
    ) -> pd.DataFrame:
        """What part of the devices' time was spent how, in bins of the window: `busy_fraction` computing,
        `skew_fraction` waiting for peers, `input_wait_fraction` waiting for inputs. The rest is idle.

        `by`: device, host, island, client, program, step or total; of a client, program or step it is the part
        of all devices' time. `bins`: how many, or how wide ("1ms"), or their edges. The window is from the first
        gang's start to the last one's end, unless given.
        """
        if by not in BYS:
            raise ValueError(f"by={by!r}; it is one of {', '.join(BYS)}")
        from . import busy

        edges = times.edges_of(bins, times.window_of(window, self.span))
        return busy.utilization(self.facts(), by, edges, self._devices(devices))

    def intervals(
        self,
        window: Window = None,
        devices: Devices = None,
        sample: int | None = None,
        limit: int | None = 2_000_000,
    ) -> pd.DataFrame:
        """A row a device and gang. `devices`: these; `sample`: so many, spread over all that behave differently;
        more than `limit` rows are refused."""
        from . import intervals

        chosen = self.sample(sample) if sample is not None else self._devices(devices)
        return intervals.frame(self.facts(), chosen, times.window_of(window, self.span), limit)

    def interval_blocks(
        self, window: Window = None, devices: Devices = None, rows: int = 1_000_000
    ) -> Iterator[pd.DataFrame]:
        """All intervals, in frames of about so many rows: for what is too large to hold."""
        from . import intervals

        span = times.window_of(window, self.span)
        return intervals.blocks(self.facts(), self._devices(devices), span, rows)

    def gangs(self, window: Window = None) -> pd.DataFrame:
        """A row a gang. `bound_us`: how wrong its times may be, where they are by clocks of its hosts; else 0."""
        from . import frames, hosts

        found = frames.gangs(self.facts(), self._window(window))
        return found.assign(bound_us=hosts.bounds(self._told or hosts.NOTHING, found["seq"].tolist()) / 1_000)

    def hosts(self, window: Window = None, limit: int | None = 2_000_000) -> pd.DataFrame:
        """A row a gang and host, of gangs of which that is known: when the host had enqueued it, when it started and
        ended there, and by how much the host's clock may be wrong (`bound_us`; 0 for the recorder's own clock)."""
        from . import hosts

        told = self._told or hosts.NOTHING
        return hosts.frame(self.facts(), told, self.origin, self._window(window), limit)

    def steps(self, window: Window = None) -> pd.DataFrame:
        """A row a program's step: how often it ran, how long it took."""
        from . import frames

        return frames.steps(self.facts(), self._window(window))

    def runs(self, window: Window = None) -> pd.DataFrame:
        """A row a run of a program: latency, device time, and what it failed of."""
        from . import frames

        return frames.runs(self.facts(), self._window(window))

    def clients(self, window: Window = None) -> pd.DataFrame:
        """A row a client: the share of device time that it asked for and got, its runs and their latency."""
        from . import frames

        return frames.clients(self.facts(), self._window(window))

    def shares(self, bins: int | Time | Sequence[Time] = 20, window: Window = None) -> pd.DataFrame:
        """What part of the device time that clients had in each bin was whose: `got_share` (NaN where nobody had
        any), beside `asked_share`. `bins`: as for `utilization`; without a window, while all clients competed."""
        from . import curves

        return curves.frame(self.facts(), times.edges_of(bins, self._competing(window)))

    def transfers(self, window: Window = None) -> pd.DataFrame:
        """A row a transfer between places, or with a client."""
        from . import frames

        return frames.transfers(self.facts(), self._window(window))

    def memory(self, window: Window = None) -> pd.DataFrame:
        """A row a change of a place's memory: bytes on each of its devices."""
        from . import frames

        return frames.memory(self.facts(), self._window(window))

    # --- what there is --------------------------------------------------------------------------------------

    @property
    def machines(self) -> machines.Machines:
        return self._setup or machines.of_places(self.core.places)

    @property
    def since(self) -> int:
        """From when on it has everything, in nanoseconds: 0, unless its controller has forgotten its oldest runs."""
        return max(0, self.core.since - self.origin)

    @property
    def origin(self) -> int:
        """What its recorder's clock showed at time 0, in nanoseconds."""
        if self._origin == 0:
            return 0
        first = first_time(self.core)
        return first if self._origin is None else min(self._origin, first)

    @property
    def span(self) -> tuple[int, int]:
        """Nanoseconds, from the first gang's start to the last one's end."""
        return self.facts().span

    @property
    def contended(self) -> tuple[int, int]:
        """The window in which all clients competed: from when the last of them began to ask until the first was done.
        Shares are worth comparing there: `trace.clients(window=trace.contended)`."""
        return self.facts().contended

    def sample(self, count: int) -> Ints:
        """So many devices: of every group that ran the same gangs one at least, then in proportion to its size."""
        from .sampling import spread

        return spread(self.facts(), count)

    def summary(self) -> str:
        from .summary import summary

        return summary(self)

    def __repr__(self) -> str:
        return self.summary().splitlines()[0]

    # --- pictures -------------------------------------------------------------------------------------------

    def plot(
        self, window: Window = None, devices: Devices = None, rows: int = 24, color: ColorBy = "auto",
        title: str | None = None, axes: Axes | None = None,
    ) -> Figure:  # fmt: skip
        """What devices did when: a bar a gang, coloured by client, program or step; pale and hatched while a device
        waits for its gang's other devices. At most `rows` devices are drawn, and the axis says of how many.

        Without a window: as much of the middle of the trace as can be told apart, below a strip of the whole.
        """
        from . import timeline

        return timeline.draw(self, window, self._devices(devices), rows, color, title, axes)

    def plot_utilization(
        self,
        by: By = "client",
        bins: int | Time | None = None,
        window: Window = None,
        axes: Axes | None = None,
    ) -> Figure:
        """Busy devices over time, stacked by client, program or step; or a row an island or host, with its waits."""
        from . import charts

        return charts.utilization(self, by, bins, window, axes)

    def plot_shares(
        self,
        window: Window = None,
        axes: Axes | None = None,
        bins: int | Time | Sequence[Time] | None = None,
    ) -> Figure:
        """The share of device time that each client got, beside the one it asked for; while all of them competed,
        unless there is a window. With `bins`, over time: a line each."""
        from . import charts, curves

        if bins is None:
            return charts.shares(self, window, axes)
        return curves.shares(self, times.edges_of(bins, self._competing(window)), axes)

    # --- files ----------------------------------------------------------------------------------------------

    def perfetto(
        self, path: str | Path, window: Window = None, devices: Devices = None, limit: int = 1_000_000
    ) -> Path:
        """Chrome's Trace Event JSON, which ui.perfetto.dev opens: a process a host, a thread a device."""
        from . import perfetto

        # Without a window all that happened: runs begin before their gangs, and end after them.
        whole = (0, max(self.facts().horizon, self.span[1]) + 1)
        span = times.window_of(window, whole)
        return perfetto.write(self.facts(), Path(path), span, self._devices(devices), limit)

    def save(self, folder: str | Path) -> Path:
        """All of it, as Parquet files; `Trace.load` gives the same again."""
        from . import storage

        return storage.save(self.core, self._setup, Path(folder), self.origin, self._told)

    @classmethod
    def load(cls, folder: str | Path) -> Trace:
        from . import storage

        core, known, origin, told = storage.load(Path(folder))
        trace = cls(core, origin=origin, told=told)
        trace._setup = known
        return trace

    # --- inside ---------------------------------------------------------------------------------------------

    def _moved(self, by: int) -> Trace:
        """The same, with all its times so many nanoseconds later."""
        found = Trace(self.core, origin=self.origin - by, told=self._told)
        found._setup, found._told = self._setup, self._told
        return found

    def facts(self) -> Facts:
        """Facts of the trace as it is. Columns that were handed out are replaced when something is recorded, so the
        same ones mean that nothing was."""
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
