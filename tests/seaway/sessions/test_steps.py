"""`sw.synthetic(..., steps=n)`: one call of n steps, which can be ended early. In simulations, and on timed devices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seaway as sw
from seaway.cli import main

ZERO: Any = np.float32(0)
MS, S = 1_000_000, 1_000_000_000
ALL = sw.slice(devices=4)


@pytest.fixture(scope="module", params=["simulated", "timed"])
def session(request: pytest.FixtureRequest) -> Iterator[sw.Session]:
    simulated = request.param == "simulated"
    with (
        sw.simulate("B", hosts=2, devices_per_host=2)
        if simulated
        else sw.local(hosts=2, devices_per_host=2, platform="timed")
    ) as made:
        yield made


def train(steps: int, devices: Any = ALL, duration: str = "10ms") -> Any:
    return sw.synthetic("train", devices=devices, duration=duration, steps=steps)


@pytest.mark.parametrize("fidelity", ["exact", "cohort"])
@pytest.mark.parametrize("devices", [1, 8])
def test_a_call_takes_the_product_exactly(fidelity: Any, devices: int) -> None:
    with sw.simulate("B", hosts=2, fidelity=fidelity) as made:
        run = train(1000, devices, "1s")(ZERO).run.wait()
        (gang,) = made.simulation.trace.rows("gangs")
    assert gang["ended"] - gang["started"] == 1000 * S
    assert run.steps == 1000


def test_collectives_count_in_each_step() -> None:
    took = []
    for steps in (1, 50):
        step = sw.synthetic("step", devices=8, duration="1ms", allreduce="64MiB", steps=steps)
        with sw.simulate("B", hosts=2) as made:
            step(ZERO).block_until_ready()
            (gang,) = made.simulation.trace.rows("gangs")
        took.append(gang["ended"] - gang["started"])
    assert took[1] == 50 * took[0] > 50 * MS


def test_a_run_that_is_stopped_ends_well_with_a_step_and_says_how_far_it_came(session: sw.Session) -> None:
    made = train(100_000)(ZERO)
    behind = train(3)(made)
    session.sleep("200ms")
    assert not made.is_ready()
    with pytest.raises(sw.errors.NotNow, match=r"known when it has ended: run\.wait\(\)\.steps"):
        made.run.steps  # noqa: B018
    made.run.stop()
    made.run.stop()
    assert 1 <= made.run.wait().steps < 10_000
    assert made.block_until_ready() is made
    made.run.stop()  # too late, and harmless
    assert behind.run.wait().steps == 3


def test_a_call_that_has_not_started_does_no_step(session: sw.Session) -> None:
    first, second, third = (train(100_000)(ZERO) for _ in range(3))
    second.run.stop()
    third.run.stop()
    session.sleep("100ms")
    first.run.stop()
    steps = [made.run.wait().steps for made in (first, second, third)]
    assert 1 <= steps[0] < 10_000
    assert steps[1:] == [0, 0]


def test_the_steps_of_a_program_are_counted_together(session: sw.Session) -> None:
    @sw.program
    def both(value: Any) -> Any:
        return train(2)(sw.synthetic("ordinary", devices=ALL, duration="1ms")(train(3)(value)))

    assert both(ZERO).run.wait().steps == 2 + 1 + 3


def test_a_loop_waits_for_the_next_of_its_runs_to_end_or_for_a_time(session: sw.Session) -> None:
    with session.client("loop"):
        assert session.next_ended() == session.next_ended(timeout="1ms") == []  # no run is under way
        long, short = train(100_000)(ZERO).run, train(1, 1)(ZERO).run
        assert session.next_ended(timeout=0) == []
        long.stop()
        ended = session.next_ended()
        while len(ended) < 2:
            ended += session.next_ended(timeout="10s")
        assert {run.program for run in ended} == {"train"}
        assert sorted(ended, key=lambda run: run.number) == [long, short]
        assert session.next_ended() == []


def test_calls_before_such_a_wait_leave_at_once_however_many_messages_are_in_flight() -> None:
    """Else those beyond the fourth wait until one of these is answered, or for some time."""
    names = [sw.synthetic(f"f{number}", devices=1, duration="50ms") for number in range(8)]
    with sw.simulate("B", hosts=2, profile="ideal") as made:
        made.next_ended()
        runs = [each(ZERO).run for each in names]
        made.next_ended()
        assert {row["submitted"] // 1_000 for row in made.simulation.trace.rows("runs")} == {0}
        for run in runs:
            run.wait()


def test_a_slice_that_is_suspended_by_another_thread_does_not_wait_for_all_steps(session: sw.Session) -> None:
    made = train(100_000)(ZERO)
    session.sleep("100ms")
    caller = session.main

    def suspend() -> None:
        with caller:
            session.suspend()

    session.spawn(suspend)
    done = made.run.wait().steps
    assert 1 <= done < 10_000
    session.resume()
    assert train(2)(made).run.wait().steps == 2


def test_a_slice_that_moves_does_not_wait_for_all_steps() -> None:
    with sw.simulate("B", hosts=2, devices_per_host=4) as made:
        first = train(1000, sw.slice(devices=4), "1s")(ZERO)
        made.sleep("2.5s")
        made.move(first.slice)
        assert first.run.wait().steps == 3
        assert made.now() < 4


def test_a_record_of_stops_gives_the_same_commands_and_what_if_stops_them_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "run.log"
    with sw.local(hosts=2, devices_per_host=2, platform="timed", record=log) as made:
        run = train(100_000)(ZERO).run
        made.sleep("100ms")
        run.stop()
        run.wait()
    assert main(["replay", str(log)]) == 0
    assert "the same commands, to the byte" in capsys.readouterr().out
    assert main(["whatif", str(log)]) == 0  # all steps would take a quarter of an hour
    assert re.search(r"^makespan +\d+ ms +\d+ ms ", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, "3"])
def test_steps_are_a_whole_number_of_at_least_one(steps: Any) -> None:
    with pytest.raises(ValueError, match=r"sw\.synthetic\('f'\): steps=.*; give a whole number of at least 1"):
        sw.synthetic("f", devices=2, duration="1ms", steps=steps)


@pytest.mark.parametrize("more", [{"irregular": True}, {"collective": False}])
def test_steps_end_on_all_devices_together(more: Any) -> None:
    with sw.simulate("B", hosts=1), pytest.raises(sw.errors.ProgramError, match="its 2 steps must end together"):
        sw.synthetic("f", devices=2, duration="1ms", steps=2, **more)(np.zeros(2, np.float32))


def test_a_single_device_waits_for_no_other(session: sw.Session) -> None:
    one = sw.synthetic("f", devices=1, duration="1ms", steps=2, collective=False)
    assert one(ZERO).run.wait().steps == 2
