"""Makes the tables that users read: gangs, runs, clients, transfers, memory and steps, with units in column names.

An unknown time is NaN. `inferred` names the times of a row that were computed rather than observed ("" if none), so
`frame[frame.inferred == ""]` has only measured rows.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from core.model import spans
from core.record import LOST
from core.record import trace as core_trace

from .facts import Facts, category, texts
from .place_groups import NONE
from .times import Ints, micros

_INFERRED = {flag: name for name, flag in core_trace.TIMES.items()}
PERCENTILES = (50, 90, 99)


def gangs(facts: Facts, window: tuple[int, int] | None) -> pd.DataFrame:
    columns = facts.gangs
    rows = _within(facts.start, facts.end, window)
    start, end = facts.start[rows], facts.end[rows]
    frame = pd.DataFrame(
        {
            "seq": columns["seq"][rows],
            **_whose(facts, columns["run"], rows),
            "step": texts(facts.words[columns["step"][rows]]),
            "island": islands_column(facts, columns["place"][rows]),
            "place": columns["place"][rows],
            "devices": facts.sizes[rows],
        }
    )
    for name in ("ready", "entered", "enqueued"):
        frame[f"{name}_us"] = micros(columns[name][rows])
    frame["started_us"], frame["ended_us"] = micros(start), micros(end)
    frame["duration_us"] = np.where(end >= 0, (end - start) / 1_000, np.nan)
    frame["device_us"] = np.where(end >= 0, facts.spent()[rows] / 1_000, np.nan)
    frame["skew_us"] = micros(facts.skew[rows])
    frame["input_wait_us"] = _input_waits(facts, rows)
    flags = facts.flags[rows]
    frame["inferred"] = inferred(flags)
    frame["placeholder"] = flags & core_trace.PLACEHOLDER > 0
    frame["failed"] = flags & core_trace.FAILED > 0
    return frame


def steps(facts: Facts, window: tuple[int, int] | None) -> pd.DataFrame:
    """One row a step of a program: how often it ran, how long it took, on how many devices."""
    frame = gangs(facts, window)
    frame = frame[frame["ended_us"].notna()]
    grouped = frame.groupby(["program", "step"], sort=False, observed=True)
    table = grouped.agg(
        gangs=("seq", "size"),
        devices=("devices", "max"),
        duration_mean_us=("duration_us", "mean"),
        duration_min_us=("duration_us", "min"),
        duration_max_us=("duration_us", "max"),
        skew_mean_us=("skew_us", "mean"),
        input_wait_mean_us=("input_wait_us", "mean"),
        device_us=("device_us", "sum"),
    )
    return table.reset_index()


def runs(facts: Facts, window: tuple[int, int] | None) -> pd.DataFrame:
    columns = facts.runs
    lasted = facts.until_now(columns["ended"])
    rows = _within(columns["submitted"], lasted, window)
    count, device_time = _of_gangs(facts, facts.gangs["run"].astype(np.int64), len(columns["run"]), None)
    submitted, admitted, ended = (columns[name][rows] for name in ("submitted", "admitted", "ended"))
    due = columns["deadline"][rows]
    return pd.DataFrame(
        {
            "run": columns["run"][rows],
            "client": category(facts.run_clients[rows], facts.client_names),
            "call": columns["call"][rows],
            "program": texts(facts.words[columns["program"][rows]]),
            "submitted_us": micros(submitted),
            "admitted_us": micros(admitted),
            "ended_us": micros(ended),
            "wait_us": _between(submitted, admitted),  # for admission
            "latency_us": _between(submitted, ended),
            "deadline_us": micros(due),
            "late": (due >= 0) & (lasted[rows] > due),
            "gangs": count[rows],
            "device_us": device_time[rows] / 1_000,
            "ok": (ended >= 0) & (columns["code"][rows] < 0),
            "code": texts(facts.words[columns["code"][rows]]),
            "cause": texts(facts.words[columns["cause"][rows]]),
            "node": texts(facts.words[columns["node"][rows]]),
            "host": columns["host"][rows],
        }
    )


def clients(facts: Facts, window: tuple[int, int] | None) -> pd.DataFrame:
    """One row a client. Shares are among these clients: asked by weight, got by device time. Without a window, they are
    of the time in which all clients competed, and all else is of the whole trace."""
    columns = facts.clients
    number = len(columns["client"])
    gang_count, device_time = _of_gangs(facts, facts.gang_clients, number, window)
    _, competing = _of_gangs(facts, facts.gang_clients, number, window or facts.contended)
    table = pd.DataFrame(
        {
            "client": texts(np.array(facts.client_names, dtype=object)),
            "weight": columns["weight"],
            "priority": columns["priority"],
            "opened_us": micros(columns["opened"]),
            "closed_us": micros(columns["closed"]),
            "asked_share": columns["weight"] / max(int(columns["weight"].sum()), 1),
            "got_share": competing / max(float(competing.sum()), 1.0),
            "device_us": device_time / 1_000,
            "gangs": gang_count,
        }
    )
    of_runs = ended_in(runs(facts, None), window)
    ended, ok = of_runs["ended_us"].notna(), of_runs["ok"]
    for name, which in (("runs", ended & ok), ("failed_runs", ended & ~ok), ("late_runs", of_runs["late"])):
        counts = of_runs[which]["client"].value_counts()
        table[name] = counts.reindex(facts.client_names, fill_value=0).to_numpy(np.int64)
    latencies = of_runs[ended & ok].groupby("client", observed=True)["latency_us"]
    for percent in PERCENTILES:
        found = latencies.quantile(percent / 100).reindex(facts.client_names)
        table[f"latency_p{percent}_us"] = found.to_numpy(np.float64)
    return table


def ended_in(table: pd.DataFrame, window: tuple[int, int] | None) -> pd.DataFrame:
    """Rows of `runs` that ended in the window."""
    if window is None:
        return table
    return table[(table["ended_us"] >= window[0] / 1_000) & (table["ended_us"] < window[1] / 1_000)]


def transfers(facts: Facts, window: tuple[int, int] | None) -> pd.DataFrame:
    columns = facts.transfers
    began = np.where(columns["started"] >= 0, columns["started"], columns["entered"]).astype(np.int64)
    rows = _within(began, facts.until_now(columns["ended"]), window)
    ended = columns["ended"][rows]
    duration = _between(columns["started"][rows], ended)
    flags = columns["flags"][rows].astype(np.int64)
    nbytes = columns["nbytes"][rows]
    return pd.DataFrame(
        {
            "seq": columns["seq"][rows],
            **_whose(facts, columns["run"], rows, columns["client"]),
            "step": texts(facts.words[columns["step"][rows]]),
            "source": places_column(facts, columns["source"][rows]),
            "target": places_column(facts, columns["target"][rows]),
            "nbytes": nbytes,
            "entered_us": micros(columns["entered"][rows]),
            "started_us": micros(columns["started"][rows]),
            "ended_us": micros(ended),
            "duration_us": duration,
            # Bytes a nanosecond are gigabytes a second.
            "gigabytes_per_s": nbytes / np.where(duration > 0, duration * 1_000, np.nan),
            "inferred": inferred(flags),
            "failed": flags & core_trace.FAILED > 0,
        }
    )


def memory(facts: Facts, window: tuple[int, int] | None) -> pd.DataFrame:
    """One row a change. A row holds until the next row of the same place."""
    columns = facts.tables["memory"]
    at = columns["at"]
    rows = np.arange(len(at)) if window is None else np.flatnonzero((at >= window[0]) & (at < window[1]))
    place, capacity = columns["place"][rows], columns["capacity"][rows]
    return pd.DataFrame(
        {
            "time_us": micros(at[rows]),
            "place": place,
            "island": islands_column(facts, place),
            "devices": places_column(facts, place),
            "resident_bytes_per_device": columns["resident"][rows],
            "committed_bytes_per_device": columns["committed"][rows],
            "capacity_bytes_per_device": capacity,
            "committed_fraction": columns["committed"][rows] / np.where(capacity > 0, capacity, np.nan),
        }
    )


def reservations(facts: Facts, window: tuple[int, int] | None) -> pd.DataFrame:
    table = facts.reservations
    since, until = table["since"].astype(np.int64), facts.until_now(table["until"])
    low, high = window or (0, np.iinfo(np.int64).max)
    rows = np.flatnonzero((since < high) & (until >= low) & (table["client"] != LOST))
    return pd.DataFrame(
        {
            "client": category(facts.client_rows(table["client"][rows]), facts.client_names),
            "island": islands_column(facts, table["place"][rows]),
            "devices": places_column(facts, table["place"][rows]),
            "since_us": micros(since[rows]),
            "until_us": micros(table["until"][rows].astype(np.int64)),
            "duration_us": (until - since)[rows] / 1_000,
        }
    )


# --- inside -------------------------------------------------------------------------------------------------


def _within(low: npt.NDArray[np.integer], high: npt.NDArray[np.integer], window: tuple[int, int] | None) -> Ints:
    """Rows that overlap the window; all rows if there is none."""
    if window is None:
        return np.arange(len(low))
    return np.flatnonzero((low < window[1]) & (high >= window[0]) & (low >= 0))


def _of_gangs(facts: Facts, keys: Ints, number: int, window: tuple[int, int] | None) -> tuple[Ints, Ints]:
    """(number of gangs, device nanoseconds) by key, for gangs that ran. Times are cut at the window's ends."""
    low, high = window or (0, np.iinfo(np.int64).max)
    spent = facts.spent(low, high)
    seen = (facts.end >= 0) & (keys >= 0) & (facts.start < high) & (facts.end >= low)
    time = np.zeros(number, dtype=np.int64)
    np.add.at(time, keys[seen], spent[seen])
    return np.bincount(keys[seen], minlength=number), time


def _whose(
    facts: Facts, run_rows: npt.NDArray[np.integer], rows: Ints, clients: npt.NDArray[np.integer] | None = None
) -> dict[str, Any]:
    """Columns that say whose each row is. `clients`: client numbers, for rows without a run."""
    mine = run_rows[rows]
    who = facts.by_run(facts.run_clients, mine)
    if clients is not None:
        who = np.where(who >= 0, who, facts.client_rows(clients[rows]))
    return {
        "client": category(who, facts.client_names),
        "program": texts(facts.words[facts.by_run(facts.runs["program"], mine)]),
        "run": facts.by_run(facts.runs["run"], mine),
    }


def islands_column(facts: Facts, places: npt.NDArray[np.integer]) -> pd.Series:
    names = {island.index: island.name for island in facts.machines.islands}
    found = {key: names.get(place.island, "") for key, place in facts.places.items()}
    return _looked_up(places, found, "")


def places_column(facts: Facts, places: npt.NDArray[np.integer]) -> pd.Series:
    found = {key: spans.text(place.devices) for key, place in facts.places.items()}
    return _looked_up(places, {**found, NONE: "client"}, "?")


def _looked_up(keys: npt.NDArray[np.integer], found: dict[int, str], other: str) -> pd.Series:
    kinds, which = np.unique(keys, return_inverse=True)
    names = np.array([found.get(kind, other) for kind in kinds.tolist()] or [""], dtype=object)
    return texts(names[which])


def inferred(flags: Ints) -> pd.Series:
    """The `inferred` column: names of the flags set, such as "started,ended"."""
    kinds, which = np.unique(flags & sum(_INFERRED), return_inverse=True)
    names = [",".join(name for bit, name in _INFERRED.items() if kind & bit) for kind in kinds.tolist()]
    return texts(np.array(names or [""], dtype=object)[which])


def _input_waits(facts: Facts, rows: Ints) -> npt.NDArray[np.float64]:
    last = facts.gathered[1][rows]
    waited = np.where(facts.lone[rows], 0, facts.start[rows] - last)
    return np.where(last >= 0, waited / 1_000, np.nan)


def _between(low: npt.NDArray[np.integer], high: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    return np.where((low >= 0) & (high >= 0), (high - low) / 1_000, np.nan)
