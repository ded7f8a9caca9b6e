"""`Overlay`: several traces, real or simulated, in one table, one picture and on one axis of time.

    both = Overlay({"real": real.trace, "simulated": simulated.trace})
    both.clients()              # like each trace's own, with a column `trace` in front
    both.plot()                 # timelines, one below the other
    both.plot_utilization()     # a line a trace
    both.plot_shares()          # a line a client and trace

Time 0 of each trace is when all its clients had begun to submit (`trace.contended`), or the time that `zero` gives.
Earlier times are negative. Methods are those of a trace, and their windows count from time 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from . import busy, times
from .busy import By
from .fairness import Whose
from .times import Bins, Ints, Nanoseconds, Span, Time, Window
from .trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .keys import ColorBy

MOMENTS = (
    "time_us", "opened_us", "closed_us", "submitted_us", "admitted_us", "deadline_us", "ready_us", "entered_us",
    "enqueued_us", "arrived_us", "started_us", "ended_us",
)  # fmt: skip


def _rows(method: Callable[..., pd.DataFrame]) -> Callable[..., pd.DataFrame]:
    def rows(self: Overlay, window: Window = None) -> pd.DataFrame:
        span = self._shown(window)
        return self._each(lambda trace: method(trace, span))

    return rows


class Overlay:
    """Several traces in one table and one picture, by the names that you give them."""

    def __init__(self, traces: Mapping[str, Trace], zero: Callable[[Trace], Time] | None = None) -> None:
        """`traces`: by the names used in tables and pictures. `zero`: gives time 0 as one of a trace's own times, as in
        `zero=lambda trace: trace.span[0]`."""
        _check(traces)
        # Traces are only ever moved later: a time below 0 would mean that it is unknown.
        begun = {
            name: trace.contended[0] if zero is None else times.nanoseconds(zero(trace))
            for name, trace in traces.items()
        }
        for name, at in begun.items():
            if not 0 <= at < traces[name].span[1]:
                end = times.text(traces[name].span[1])
                raise ValueError(
                    f"zero={times.text(at)} of {name!r}: its last gang ends at {end}; take an earlier time"
                )
        self.of = "time since all clients had begun" if zero is None else "time"
        self.zero = max(begun.values())  # time 0 in the moved traces
        self.traces = {name: trace._moved(self.zero - begun[name]) for name, trace in traces.items()}

    # --- tables ---------------------------------------------------------------------------------------------

    def utilization(self, by: By = "island", bins: Bins = 1, window: Window = None) -> pd.DataFrame:
        """`Trace.utilization` in the same bins for all traces."""
        busy.check(by)
        edges = times.as_bins(self.edges(bins, window))
        return self._each(lambda trace: trace.utilization(by, edges))

    def shares(self, bins: Bins = 20, window: Window = None) -> pd.DataFrame:
        """`Trace.shares` in the same bins for all traces. Without a window: while all clients competed in all."""
        edges = times.as_bins(self.edges(bins, window, self.contended))
        return self._each(lambda trace: trace.shares(edges))

    # As the methods of a trace, with a column `trace` in front.
    gangs, steps, runs = _rows(Trace.gangs), _rows(Trace.steps), _rows(Trace.runs)
    clients, transfers, memory = _rows(Trace.clients), _rows(Trace.transfers), _rows(Trace.memory)

    def hosts(self, window: Window = None, limit: int | None = 2_000_000) -> pd.DataFrame:
        span = self._shown(window)
        return self._each(lambda trace: trace.hosts(span, limit))

    def fairness(self, bins: Bins = 20, window: Window = None) -> pd.DataFrame:
        """`Trace.fairness` in the same bins for all traces. Without a window: while all clients competed in all."""
        edges = times.as_bins(self.edges(bins, window, self.contended))
        return self._each(lambda trace: trace.fairness(edges))

    def latency_cdf(self, by: Whose = "client", window: Window = None) -> pd.DataFrame:
        span = self._shown(window)
        return self._each(lambda trace: trace.latency_cdf(by, span))

    def intervals(
        self, window: Window = None, sample: int | None = None, limit: int | None = 2_000_000
    ) -> pd.DataFrame:
        span = self._shown(window)
        return self._each(lambda trace: trace.intervals(span, sample=sample, limit=limit))

    # --- pictures -------------------------------------------------------------------------------------------

    def plot(self, window: Window = None, rows: int = 8, color: ColorBy = "auto") -> Figure:
        """Timelines of `rows` devices, one trace below the other. A name has the same colour in all of them.

        Without a window: from time 0 on, as much as can be told apart.
        """
        from . import timeline

        return timeline.draw_several(self, window, rows, color)

    def plot_utilization(
        self, by: By = "total", bins: Bins = 60, window: Window = None, axes: Axes | None = None
    ) -> Figure:
        """The busy part of the devices over time, one line a trace.

        Unless `by` is "total", each key has a panel, and `axes` cannot be given.
        """
        from . import lines

        busy.check(by)
        return lines.utilization(self, by, self.edges(bins, window), axes)

    def plot_shares(self, bins: Bins = 20, window: Window = None, axes: Axes | None = None) -> Figure:
        """Each client's share of device time: a colour a client, a line style a trace, level lines for shares asked.

        Without a window, while all clients competed in all traces.
        """
        from . import lines

        return lines.shares(self, self.edges(bins, window, self.contended), axes)

    def plot_fairness(self, bins: Bins = 20, window: Window = None, axes: Axes | None = None) -> Figure:
        """Jain's index over time, one line a trace. Without a window, while all clients competed in all traces."""
        from . import lines

        return lines.fairness(self, self.edges(bins, window, self.contended), axes)

    def plot_latency_cdf(self, by: Whose = "client", window: Window = None, axes: Axes | None = None) -> Figure:
        """The distribution of the latency of runs: a colour a client (or program), a line style a trace."""
        from . import lines

        span = self._shown(window)
        return lines.latencies(self, [each.latency_cdf(by, span) for each in self.traces.values()], by, axes)

    # --- inside ---------------------------------------------------------------------------------------------

    @property
    def span(self) -> Span:
        """From the first gang of any trace to the last, in the moved traces' times."""
        spans = [trace.span for trace in self.traces.values()]
        return times.span_of(min(low for low, _ in spans), max(high for _, high in spans))

    @property
    def contended(self) -> Span:
        """While all clients competed in all traces."""
        over = min(trace.contended[1] for trace in self.traces.values())
        return times.span_of(self.zero, over if over > self.zero else self.span[1])

    def edges(self, bins: Bins, window: Window, whole: tuple[int, int] | None = None) -> Ints:
        """Edges of bins in the moved traces' times. Without a window: `whole`, or else from time 0 to the end."""
        found = self._shown(window) or whole or (self.zero, self.span[1])
        if isinstance(bins, Sequence | np.ndarray) and not isinstance(bins, str):
            return times.edges_of([Nanoseconds(times.nanoseconds(each) + self.zero) for each in bins], found)
        return times.edges_of(bins, found)

    def _shown(self, window: Window) -> Span | None:
        if window is None:
            return None
        low, high = times.window_of(window, (self.span[0] - self.zero, self.span[1] - self.zero))
        return times.span_of(low + self.zero, high + self.zero)

    def _each(self, table: Callable[[Trace], pd.DataFrame]) -> pd.DataFrame:
        found = []
        for name, trace in self.traces.items():
            frame = table(trace)
            for column in set(MOMENTS) & set(frame.columns):
                frame[column] -= self.zero / 1_000
            frame.insert(0, "trace", name)
            found.append(frame)
        whole = pd.concat(found, ignore_index=True)
        whole["trace"] = pd.Categorical(whole["trace"], categories=list(self.traces))
        return whole

    def __repr__(self) -> str:
        """The first line of each trace's summary."""
        return "\n".join(f"{name}: {trace!r}" for name, trace in self.traces.items())


def _check(traces: Any) -> None:
    if isinstance(traces, Mapping) and traces and all(isinstance(each, Trace) for each in traces.values()):
        return
    values = traces.values() if isinstance(traces, Mapping) else [traces]
    wrong = [type(each).__name__ for each in values if not isinstance(each, Trace)]
    found = f"a {wrong[0]}" if wrong else "none"
    raise TypeError(f'Overlay takes traces by name, as in Overlay({{"real": a.trace}}); got {found}')
