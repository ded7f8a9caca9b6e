"""Contents go to hosts together until an announced fault is near, and take the same time as in `exact`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import seaway as sw
from sim.cohort import history
from sim.cohort.history import History
from sim.engine import Unannounced
from sim.simulation import Fault
from tests.laws import examples
from tests.sim import fault_scene, scene

MS = 1_000_000


@pytest.fixture
def forgets(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """When islands stopped remembering, since contents went to their hosts together. Faults are near as late as may be:
    some are too near for what is under way, and refused."""
    found: list[int] = []
    forget = History.forget

    def noted(self: History) -> None:
        found.append(self._island.sim.now)
        forget(self)

    monkeypatch.setattr(History, "forget", noted)
    monkeypatch.setattr(history, "TIMES", 2)
    monkeypatch.setattr(history, "LEAST", MS // 2)
    return found


@given(seed=st.integers(0, 1 << 20))
@examples(2, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_scenes_in_which_contents_go_together_before_a_fault_take_the_same_time(forgets: list[int], seed: int) -> None:
    drawn = fault_scene.draw(seed, after=40)
    with suppress(Unannounced):
        scene.assert_equal(drawn)


def times(fidelity: Any, at: int, loader: bool) -> str:
    """A loop that reads its loss, or is given an array, and a host that crashes and comes back, twice."""
    faults = [
        Fault(at + more, what, 1)
        for more, what in (
            (0, "crash_host"),
            (10 * MS, "return_host"),
            (2 * at, "crash_host"),
            (2 * at + 10 * MS, "return_host"),
        )
    ]
    step = sw.synthetic("step", devices=sw.slice(devices=16), duration="2ms", allreduce="4B")
    with sw.simulate("B", hosts=4, fidelity=fidelity, faults=faults, retries=3, values="compute") as s:
        while s.now() * 1e9 < 4 * at:
            y = step(np.zeros(4096, np.float32) if loader else np.float32(0))
            np.asarray(y)
        return str(s.trace.gangs().values.tolist())  # as text, in which what is unknown equals itself


@pytest.mark.parametrize("loader", [False, True])
def test_a_loop_that_reads_or_is_given_arrays_takes_the_same_time_before_between_and_after_faults(
    loader: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    at: list[int] = []
    forget = History.forget

    def noted(self: History) -> None:
        at.append(self._island.sim.now)
        forget(self)

    monkeypatch.setattr(History, "forget", noted)
    assert times("cohort", 400 * MS, loader) == times("exact", 400 * MS, loader)
    assert any(when < 400 * MS for when in at)
    assert any(when > 410 * MS for when in at)  # it became a cohort again


def test_a_fault_may_come_long_after_the_last_contents() -> None:
    step = sw.synthetic("step", devices=sw.slice(devices=16), duration="2ms", allreduce="4B")

    def played(fidelity: Any) -> str:
        with sw.simulate(
            "B", hosts=4, fidelity=fidelity, faults=[Fault(3000 * MS, "crash_host", 1)], values="compute"
        ) as s:
            for _ in range(4):
                np.asarray(step(np.float32(0)))
            s.simulation.run(4000 * MS)
            assert not s.simulation.lone_hosts[1].alive
            return str(s.trace.gangs().values.tolist())

    assert played("cohort") == played("exact")


@pytest.mark.parametrize("at_us", [50_000, 51_200])  # while the user waits, and while a call is due
def test_a_fault_that_nobody_announced_is_refused_after_contents_went_together(at_us: int) -> None:
    step = sw.synthetic("step", devices=sw.slice(devices=16), duration="2ms", allreduce="4B")

    def loss(simulation: Any) -> Any:
        yield simulation.env.timeout(at_us * 1000)
        simulation.trouble.crash_host(1)

    def run() -> None:
        announced = Fault(3600_000 * MS, "crash_host", 2)
        with sw.simulate("B", hosts=4, faults=[announced], values="compute") as s:
            s.env.process(loss(s.simulation))
            for _ in range(100):
                np.asarray(step(np.float32(0)))

    with pytest.raises(sw.errors.Stalled, match="does not remember what contents they have moved"):
        run()
