"""Devices that are not there are lost, and not idle, from when the controller knows until their host is back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seaway as sw

LEASE, FORMS = 10.0, 0.6  # seconds: until a host is missed; until its island runs again, at most


@pytest.fixture(scope="module", params=["exact", "cohort"])
def trace(request: pytest.FixtureRequest) -> Any:
    """Host 1 of 4 is away from 2 s to 22 s; device 0 is lost at 40 s."""
    step = sw.synthetic("step", devices=sw.slice(devices=8), duration="100ms", allreduce="4B")
    faults = [sw.fault("2s", "crash_host", 1), sw.fault("22s", "return_host", 1), sw.fault("40s", "lose_device", 0)]
    with sw.simulate("B", hosts=4, faults=faults, retries=5, profile="ideal", fidelity=request.param) as session:
        for _ in range(600):
            step(np.float32(0)).block_until_ready()
    return session.trace


def test_a_host_is_lost_from_the_end_of_its_lease_until_it_is_back(trace: Any) -> None:
    table = trace.utilization("host", bins=["0s", "10s", "24s", "39s", "50s"])
    lost = table.pivot(index="time_us", columns="host", values="lost_fraction")
    assert (lost[[2, 3]] == 0).all(axis=None)
    assert 0 <= 14 * lost[1].iloc[1] - (22 - 2 - LEASE) <= FORMS
    assert lost[1].drop(lost.index[1]).eq(0).all()
    assert lost[0].iloc[3] == pytest.approx(10 / 11 / 8, abs=0.02), "one of its eight devices"


def test_lost_time_is_neither_busy_nor_reserved_and_is_nobody_s(trace: Any) -> None:
    parts = [f"{part}_fraction" for part in ("busy", "skew", "input_wait", "reserved", "lost")]
    assert (trace.utilization("device", bins=30)[parts].sum(axis=1) <= 1 + 1e-9).all()
    assert trace.utilization("client")["lost_fraction"].isna().all()
    assert trace.reservations().empty


def test_it_is_said_drawn_and_saved(trace: Any, tmp_path: Path) -> None:
    assert "% lost" in trace.summary()
    (legend, *_) = [axes.get_legend() for axes in trace.plot_utilization(by="host").axes if axes.get_legend()]
    assert "lost" in [text.get_text() for text in legend.texts]
    again = sw.trace.Trace.load(trace.save(tmp_path / "trace"))
    np.testing.assert_array_equal(
        again.utilization(bins=5)["lost_fraction"], trace.utilization(bins=5)["lost_fraction"]
    )
