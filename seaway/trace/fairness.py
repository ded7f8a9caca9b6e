"""How clients shared the devices over time, as frames: shares, Jain's index and the max-min ratio, latencies of runs.

Fairness compares what each client got with what it asked for by its weight, among the clients that competed in a bin. A
client competes in a bin if it had a run under way for at least half of it: to get nothing without asking is not unfair.

Neighbours: `lines` draws these frames. The functions that matter: `shares`, `fairness`, `latencies`.
"""

from typing import Literal

import numpy as np
import pandas as pd

from . import frames, times
from .bins import covered
from .busy import busy_by_code, chosen, coded
from .facts import Facts, texts
from .times import Floats, Ints

Whose = Literal["client", "program"]
PART = 0.5  # of a bin in which a client has a run under way, if it competes there


def shares(facts: Facts, edges: Ints) -> pd.DataFrame:
    """One row a bin and client."""
    spent, bins = _got(facts, edges), len(edges) - 1
    count, whole = len(spent), spent.sum(axis=0)
    weights = facts.clients["weight"].astype(np.int64)
    return pd.DataFrame(
        {
            "time_us": np.repeat(times.micros(edges[:-1]), count),
            "bin_us": np.repeat(np.diff(edges) / 1_000, count),
            "client": texts(np.tile(np.array(facts.client_names, dtype=object), bins)),
            "weight": np.tile(weights, bins),
            "asked_share": np.tile(weights / max(int(weights.sum()), 1), bins),
            "got_share": np.divide(spent, whole, out=np.full_like(spent, np.nan), where=whole > 0).T.ravel(),
            "device_us": spent.T.ravel() / 1_000,
        }
    )


def fairness(facts: Facts, edges: Ints) -> pd.DataFrame:
    """One row a bin."""
    got, asked = _got(facts, edges), facts.clients["weight"].astype(np.float64)
    competes = _under_way(facts, edges) >= PART * np.diff(edges)
    rows = [_of_bin(got[mine, at], asked[mine], np.flatnonzero(mine)) for at, mine in enumerate(competes.T)]
    jain, max_min, worst = np.array(rows).reshape(-1, 3).T
    names = np.array([*facts.client_names, ""], dtype=object)
    return pd.DataFrame(
        {
            "time_us": times.micros(edges[:-1]),
            "bin_us": np.diff(edges) / 1_000,
            "clients": competes.sum(axis=0),
            "jain": jain,
            "max_min": max_min,
            "worst_client": texts(names[worst.astype(np.int64)]),
        }
    )


def _of_bin(got: Floats, asked: Floats, who: Ints) -> tuple[float, float, float]:
    """(Jain's index, smallest over largest, the client that has the smallest) of one bin's clients."""
    if len(got) < 2 or not got.sum():
        return np.nan, np.nan, -1
    part = (got / got.sum()) / (asked / asked.sum())
    return jain(part), part.min() / part.max(), who[part.argmin()]


def jain(shares: Floats) -> float:
    """1 if all are equal, 1/n if one of n has everything."""
    return float(shares.sum() ** 2 / (len(shares) * (shares**2).sum()))


def _got(facts: Facts, edges: Ints) -> Floats:
    """[client, bin]: device time."""
    count = len(facts.client_names)
    _, codes = coded(facts, "client")  # gangs without a client have the code after the last client's
    spent = np.zeros((count, len(edges) - 1))
    for pick in chosen(facts, None):
        spent += busy_by_code(facts, pick, edges, codes, count + 1)[:count]
    return spent


def _under_way(facts: Facts, edges: Ints) -> Floats:
    """[client, bin]: for how long it had a run under way."""
    submitted, ended = facts.runs["submitted"].astype(np.int64), facts.until_now(facts.runs["ended"])
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


def latencies(facts: Facts, by: Whose, window: tuple[int, int] | None) -> pd.DataFrame:
    """One row a run that succeeded: its latency, and the fraction of its client's runs that took no longer."""
    runs = frames.ended_in(frames.runs(facts, None), window)
    runs = runs[runs["ok"]]
    table = runs[[by, "latency_us"]].sort_values([by, "latency_us"], kind="stable", ignore_index=True)
    latency = table.groupby(by, sort=False, observed=True)["latency_us"]
    table["fraction"] = latency.rank("max") / latency.transform("size")
    return table
