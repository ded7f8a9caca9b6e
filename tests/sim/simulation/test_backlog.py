"""Messages that hosts have had are kept until a heartbeat says so, and heartbeats of a simulation are rare."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import seaway as sw


@pytest.mark.parametrize("fidelity", ["exact", "cohort"])
def test_many_short_gangs_do_not_wait_for_a_heartbeat(fidelity: Any) -> None:
    step = sw.synthetic("step", devices=16, duration="100us")
    with sw.simulate("B", hosts=2, profile="ideal", fidelity=fidelity) as session:
        value: Any = np.float32(0)
        for _ in range(6000):
            value = step(value)
        value.block_until_ready()
        assert session.now() == pytest.approx(0.6, rel=0.05)


def test_a_controller_orders_nothing_new_while_too_much_is_not_known_to_have_come() -> None:
    step = sw.synthetic("step", devices=16, duration="100us")
    with sw.simulate("B", hosts=2, profile="ideal") as session:
        simulation: Any = session.simulation
        simulation.controller.state.backlog = 20
        value: Any = np.float32(0)
        for _ in range(50):
            value = step(value)
        value.block_until_ready()
        assert session.now() > 10, "it waited for heartbeats"
