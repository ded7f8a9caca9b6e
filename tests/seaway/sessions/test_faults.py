"""Announced faults, as a user sees them: a run fails by name, and the session goes on."""

from __future__ import annotations

import pytest

import seaway as sw
from sim.simulation.faults import Fault

MS = 1_000_000


def test_a_crashed_host_fails_the_run_by_name_and_its_return_lets_the_next_one_run() -> None:
    step = sw.synthetic("step", devices=sw.slice(devices=16), duration="20ms")
    faults = [Fault(10 * MS, "crash_host", 2), Fault(40 * MS, "return_host", 2)]
    with sw.simulate("B", hosts=4, devices_per_host=4, faults=faults) as session:
        with pytest.raises(sw.errors.RunError, match="host 2"):
            step().block_until_ready()
        again = step()
        again.block_until_ready()
        assert again.ready_at > 40 * MS
        assert list(session.simulation.islands) == [0]  # its hosts are alike again, and simulated as one
