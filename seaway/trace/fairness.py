"""How fairly clients shared the devices over time: Jain's index and the max-min ratio, as a frame and as a chart.

Both compare what each client got with what it asked for by its weight, among the clients that competed in a bin. A
client competes in a bin if it had a run under way for at least half of it: to get nothing without asking is not unfair.

Neighbours: `curves` has the shares themselves. The functions that matter: `frame`, `draw`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import style, times
from .bins import covered
from .busy import busy_by_code, chosen, coded
from .charts import _figure
from .facts import Facts, texts
from .times import Ints

if TYPE_CHECKING:
    from .trace import Trace

Floats = npt.NDArray[np.float64]
PART = 0.5  # of a bin in which a client has a run under way, if it competes there
LINES = {"jain": ("Jain's index", style.BLUE), "max_min": ("worst share over best", style.ORANGE)}


def frame(facts: Facts, edges: Ints) -> pd.DataFrame:
    """One row a bin."""
    got, asked = _got(facts, edges), facts.clients["weight"].astype(np.float64)
    competes = _under_way(facts, edges) >= PART * np.diff(edges)
    rows = [_of_bin(got[mine, at], asked[mine], np.flatnonzero(mine)) for at, mine in enumerate(competes.T)]
    names = np.array([*facts.client_names, ""], dtype=object)
    return pd.DataFrame(
        {
            "time_us": times.micros(edges[:-1]),
            "bin_us": np.diff(edges) / 1_000,
            "clients": competes.sum(axis=0),
            "jain": np.array([row[0] for row in rows], dtype=np.float64),
            "max_min": np.array([row[1] for row in rows], dtype=np.float64),
            "worst_client": texts(names[np.array([row[2] for row in rows], dtype=np.int64)]),
        }
    )


def jain(shares: Floats) -> float:
    """1 if all are equal, 1/n if one of n has everything."""
    return float(shares.sum() ** 2 / (len(shares) * (shares**2).sum()))


def _of_bin(got: Floats, asked: Floats, who: Ints) -> tuple[float, float, int]:
    """(Jain's index, smallest over largest, the client that has the smallest) of one bin's clients."""
    if len(got) < 2 or not got.sum():
        return np.nan, np.nan, -1
    shares = (got / got.sum()) / (asked / asked.sum())
    return jain(shares), float(shares.min() / shares.max()), int(who[shares.argmin()])


def _got(facts: Facts, edges: Ints) -> Floats:
    """[client, bin]: device time."""
    count = len(facts.client_names)
    _, codes = coded(facts, "client")
    spent = np.zeros((count, len(edges) - 1))
    for pick in chosen(facts, None):
        spent += busy_by_code(facts, pick, edges, codes, count + 1)[:count]
    return spent


def _under_way(facts: Facts, edges: Ints) -> Floats:
    """[client, bin]: for how long it had a run under way."""
    submitted = facts.runs["submitted"].astype(np.int64)
    ended = facts.runs["ended"].astype(np.int64)
    ended = np.where(ended < 0, facts.horizon, ended)
    found = np.zeros((len(facts.client_names), len(edges) - 1))
    for client in range(len(found)):
        mine = np.flatnonzero((facts.run_clients == client) & (submitted >= 0))
        if len(mine):
            low, high = _merged(submitted[mine], ended[mine])
            found[client] = covered(low, high, edges)[0]
    return found


def _merged(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """The same times as intervals that do not overlap."""
    order = np.argsort(low, kind="stable")
    low, high = low[order], np.maximum.accumulate(high[order])
    begins = np.append(True, low[1:] > high[:-1])
    return low[begins], high[np.append(begins[1:], True)]


def draw(trace: Trace, edges: Ints, axes: Axes | None) -> Figure:
    """A line for Jain's index and one for the max-min ratio; 100 % is fair."""
    table = trace.fairness(edges.tolist())
    unit, scale = times.unit(int(edges[-1] - edges[0]))
    middles = (table["time_us"] + table["bin_us"] / 2).to_numpy() * 1_000 / scale
    with style.applied():
        figure, axes = _figure(axes, 2.3)
        for column, (_, color) in LINES.items():
            axes.plot(middles, table[column].to_numpy(), color=color)
        rows = style.rows_of_key(axes, LINES.values())
        style.percent(axes, top=1.02)
        axes.grid(axis="y")
        axes.set_xlim(edges[0] / scale, edges[-1] / scale)
        axes.set_xlabel(f"time ({unit})")
        axes.set_ylabel("fairness")
        span = f"{times.text(int(edges[0]))} to {times.text(int(edges[-1]))}"
        style.title_above(axes, f"Fairness among competing clients, {span}", rows)
    return figure
