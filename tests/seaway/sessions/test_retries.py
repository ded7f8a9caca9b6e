"""`retries=`: a run that the cluster failed runs again by itself, and its results keep their futures."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import seaway as sw
from sim.simulation.faults import Fault

MS = 1_000_000
CRASH = (Fault(10 * MS, "crash_host", 2), Fault(40 * MS, "return_host", 2))
ALL = sw.slice(devices=16)
LARGE = np.arange(4096, dtype=np.float32)  # too large to ride in the call
step = sw.synthetic("step", devices=ALL, duration="20ms")


def simulated(faults: Any = CRASH, **options: Any) -> sw.Session:
    return sw.simulate("B", hosts=4, devices_per_host=4, faults=faults, **options)


@sw.jit(devices=ALL)
def double(x: Any) -> Any:
    return x + x


def test_a_run_that_lost_a_host_runs_again_and_its_numpy_arguments_are_put_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @sw.program(retries=2)
    def twice(x: Any) -> Any:
        return double(double(x))

    mine = LARGE.copy()
    with simulated(values="compute", costs="20ms") as s, caplog.at_level(logging.WARNING, "seaway"):
        result = twice(mine)
        mine[:] = 0  # the put array is a copy
        np.testing.assert_array_equal(np.asarray(result), 4 * LARGE)
        assert result.run is not None
        assert (result.run.tries, result.run.blame) == (1, None)
        assert result.ready_at > 40 * MS
        assert len(s.trace.runs()) == 2  # one that failed, and one that did not
    assert "host 2" in caplog.text
    assert "runs again" in caplog.text


def test_the_runs_that_one_failure_sends_again_are_one_line_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    with simulated(costs="15ms", retries=1) as s, caplog.at_level(logging.WARNING, "seaway"):
        for _ in range(42):
            step(np.float32(0))
        assert s.trace.runs()["ok"].sum() == 42
        failed = int((~s.trace.runs()["ok"]).sum())
    assert failed > 30  # all that were under way
    (line,) = (record.getMessage() for record in caplog.records)
    assert f"client 'main': {failed} runs failed, and run again; the first, <run 1 of 'step'" in line
    assert "host 2" in line
    head, _, row = s.trace.summary().splitlines()[:3]
    assert f"Trace of 1 client, 42 runs ({failed} more failed), " in head
    assert row.split()[4:6] == ["42", str(failed)]


def test_two_failures_are_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    faults = (*CRASH, Fault(1_000 * MS, "crash_host", 1), Fault(1_040 * MS, "return_host", 1))
    with simulated(faults, retries=2), caplog.at_level(logging.WARNING, "seaway"):
        runs = [step(np.float32(0)).run for _ in range(60)]
        for run in runs:
            assert run is not None
            run.wait()
    first, second = (record.getMessage() for record in caplog.records)
    assert "host 2" in first
    assert "host 1" in second


def test_runs_that_ended_before_the_crash_do_not_run_again() -> None:
    with simulated(costs="4ms", retries=1):
        first = double(LARGE)
        second = double(first)
        third = double(second)
        with pytest.raises(sw.errors.RunError, match=r"cannot run again, since the result of 'double' is lost"):
            third.block_until_ready()


def test_an_argument_that_was_lost_with_the_host_is_named() -> None:
    with simulated(retries=3, costs="20ms"):
        x = sw.put(LARGE, ALL)
        x.block_until_ready()
        result = double(x)
        with pytest.raises(
            sw.errors.RunError, match=r"host 2.*cannot run again, since what was put on slice 'slice0' is lost"
        ) as caught:
            result.block_until_ready()
        assert caught.value.code == "host-lost"
        with pytest.raises(sw.errors.RunError, match="is lost"):
            x.block_until_ready()


def test_a_run_with_a_donated_argument_cannot_run_again() -> None:
    take = sw.jit(lambda x: x + 1, devices=ALL, donate_argnums=0, name="take")
    with simulated(retries=3, costs={"double": "2ms", "take": "20ms"}):
        x = double(LARGE)
        x.block_until_ready()
        with pytest.raises(sw.errors.RunError, match=r"cannot run again, since the result of 'double' is donated"):
            take(x).block_until_ready()


def test_a_program_may_override_the_retries_of_its_session() -> None:
    @sw.program(retries=0)
    def once() -> Any:
        return step()

    with simulated(retries=3), pytest.raises(sw.errors.RunError, match="host 2"):
        once().block_until_ready()


@pytest.mark.parametrize("wrong", [-1, 1.5, "3", True, 101])
def test_an_invalid_number_of_retries_is_refused(wrong: Any) -> None:
    for make in (sw.program, sw.simulate, sw.local, lambda **more: sw.connect("grpc://nowhere", **more)):
        with pytest.raises(ValueError, match="retries="):
            make(retries=wrong)


def test_without_retries_a_crashed_host_fails_the_run_by_name_and_its_return_lets_the_next_one_run() -> None:
    with simulated() as session:
        with pytest.raises(sw.errors.RunError, match="host 2"):
            step().block_until_ready()
        again = step().block_until_ready()
        assert again.ready_at > 40 * MS
        assert list(session.simulation.islands) == [0]  # its hosts are alike again, and simulated as one
