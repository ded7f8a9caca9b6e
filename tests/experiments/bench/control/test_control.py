"""The control plane's figures, tiny."""

from __future__ import annotations

from experiments.bench.control import control


def test_a_small_cluster_is_measured_over_real_streams() -> None:
    found = control.one(4, 2)
    assert min(found.single.controller, found.single.agents, found.latency, found.rate) > 0
