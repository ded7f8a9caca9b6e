"""Each table of a simulated run makes sense, column by column: two islands, a move between, puts, gets, memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import seaway as sw
from seaway.trace import Trace
from tests.seaway.small_sessions import small

MIB = 1 << 20
here = sw.slice(mesh={"d": 8}, name="here", exclusive=True)
there = sw.slice(mesh={"d": 8}, name="there", exclusive=True)


def on(home: sw.Slice, name: str, cost: str) -> Any:
    split = home.sharding("d")
    return sw.jit(lambda x: x, devices=home, in_shardings=split, out_shardings=split, cost=cost, name=name)


first, second = on(here, "first", "1ms"), on(there, "second", "2ms")


@sw.program
def across(x: Any) -> Any:
    return second(sw.put(first(x), devices=there, sharding=there.sharding("d")))


@pytest.fixture(scope="module")
def trace() -> Trace:
    """A trace with a put of 4 MiB, three runs of which one starts when another has ended, and a read."""
    stand_in = {"across": np.zeros(MIB, np.float32)}
    with small(hosts=2, devices_per_host=4, islands=2, values=stand_in) as s:
        x = sw.put(np.zeros(MIB, np.float32), devices=here, sharding=here.sharding("d"))
        across(x).block_until_ready()
        across(x)
        np.asarray(across(x))
        found: Trace = s.trace
    return found


def test_transfers_show_client_kind_and_times(trace: Trace) -> None:
    frame = trace.transfers()
    assert frame["step"].tolist() == ["put", "put", "put", "put", "get"]
    assert frame["client"].tolist() == ["main"] * 5
    assert frame["source"].tolist() == ["client", "0-7", "0-7", "0-7", "8-15"]
    assert frame["target"].tolist() == ["0-7", "8-15", "8-15", "8-15", "client"]
    assert (frame["nbytes"] == 4 * MIB).all()
    assert (frame["entered_us"] < frame["started_us"]).all()
    assert (frame["started_us"] < frame["ended_us"]).all()
    assert (frame["inferred"] == "").all(), "a simulator sees when bytes leave and arrive"
    assert not frame["failed"].any()
    speeds = frame["gigabytes_per_s"]
    assert ((speeds > 1) & (speeds < 2 * 12.5)).all(), "two hosts with a card of 12.5 GB/s each at either end"


def test_a_move_begins_when_its_source_is_made_and_ends_before_its_target_is_read(trace: Trace) -> None:
    gangs, moves = trace.gangs(), trace.transfers()
    for _, move in moves[moves["run"] >= 0].iterrows():
        of_run = gangs[gangs["run"] == move["run"]].set_index("step")
        assert of_run.loc["first", "ended_us"] <= move["started_us"]
        assert move["ended_us"] <= of_run.loc["second", "started_us"]


def levels(trace: Trace, devices: str) -> pd.DataFrame:
    frame = trace.memory()
    return frame[frame["devices"] == devices]


def test_memory_over_time_counts_every_buffer_from_its_making_to_its_release(trace: Trace) -> None:
    shard = MIB // 2
    mine = levels(trace, "0-7")
    assert mine["resident_bytes_per_device"].iloc[0] == shard, "the put array"
    assert mine["resident_bytes_per_device"].max() >= 2 * shard, "and the output of `first`, until it has been sent"
    assert mine["resident_bytes_per_device"].iloc[-1] in (0, shard)
    frame = trace.memory()
    assert frame["time_us"].is_monotonic_increasing
    assert (frame["resident_bytes_per_device"] <= frame["committed_bytes_per_device"]).all()
    assert (frame["committed_bytes_per_device"] <= frame["capacity_bytes_per_device"]).all()
    assert set(frame["island"]) == {"i0", "i1"}
    assert set(frame["devices"]) == {"0-7", "8-15"}


def test_the_other_tables_agree_with_each_other(trace: Trace) -> None:
    gangs, runs, clients = trace.gangs(), trace.runs(), trace.clients()
    for name in ("ready_us", "entered_us", "enqueued_us", "started_us"):
        assert (gangs[name] <= gangs["ended_us"]).all(), name
    assert (gangs["entered_us"] <= gangs["enqueued_us"]).all()
    assert (gangs["skew_us"] >= 0).all()
    assert (gangs["input_wait_us"] >= 0).all()
    assert (runs["submitted_us"] <= runs["admitted_us"]).all()
    np.testing.assert_allclose(runs["latency_us"], runs["ended_us"] - runs["submitted_us"])
    assert runs["gangs"].sum() == len(gangs)
    assert clients["runs"].tolist() == [3]
    assert clients["device_us"].sum() == pytest.approx(gangs["device_us"].sum()) == pytest.approx(3 * 8 * 3_000)
    steps = trace.steps().set_index("step")
    assert steps.loc[["first", "second"], "duration_mean_us"].tolist() == [1_000, 2_000]
    intervals = trace.intervals()
    assert len(intervals) == 8 * len(gangs)
    assert (intervals["ended_us"] - intervals["started_us"]).sum() == pytest.approx(gangs["device_us"].sum())
    busy = trace.utilization("total").iloc[0]
    span = (trace.span[1] - trace.span[0]) / 1_000
    assert busy["busy_fraction"] == pytest.approx(gangs["device_us"].sum() / (16 * span))


def test_devices_of_a_split_place_are_counted_in_its_parts() -> None:
    whole, half = sw.slice(devices=4, name="whole"), sw.slice(devices=2, name="half")
    with small() as s:
        kept = sw.put(np.zeros(MIB, np.float32), devices=whole).block_until_ready()
        more = sw.put(np.zeros(MIB, np.float32), devices=half).block_until_ready()
        frame = s.trace.memory()
        columns = ["resident_bytes_per_device", "capacity_bytes_per_device"]
        last: Any = frame.groupby("devices")[columns].last()
        assert last.loc["0-3"].tolist() == [0, 0]
        assert last.loc["0-1"].iloc[0] == 8 * MIB
        assert last.loc["2-3"].iloc[0] == 4 * MIB
        del kept, more
