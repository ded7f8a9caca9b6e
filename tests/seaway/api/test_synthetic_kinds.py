"""A synthetic computation whose time depends on the kind of the island where its slice lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import seaway as sw

ZERO = np.float32(0)
MIXED = {
    "name": "mixed",
    "island": [
        {"name": "old", "kind": "tpu-v4", "hosts": 2, "devices_per_host": 4},
        {"name": "new", "kind": "tpu-v5e", "hosts": 2, "devices_per_host": 4},
    ],
}
TIMES = {"v4": "1ms", "v5e": "3ms"}


def took(session: sw.Session) -> list[float]:
    gangs = session.trace.gangs()
    return [round(float(us), 3) for us in gangs["ended_us"] - gangs["started_us"]]


@pytest.mark.parametrize("fidelity", ["exact", "cohort"])
def test_a_gang_takes_the_time_of_the_island_on_which_its_slice_lies(fidelity: Any) -> None:
    steps = [
        sw.synthetic("step", devices=sw.slice(devices=8, island=island), duration=TIMES) for island in ("old", "new")
    ]
    with sw.simulate(MIXED, fidelity=fidelity) as s:
        for step in steps:
            step(ZERO).block_until_ready()
    assert took(s) == [1_000, 3_000]


def test_a_slice_that_may_lie_anywhere_takes_the_time_of_where_it_lies_and_policies_see_that() -> None:
    seen: list[int] = []

    class Watching(sw.policies.Fifo):
        def pick(self, ready: sw.policies.Ready, now: int) -> Any:
            seen.extend(gang.cost for gang in ready.heads())
            return super().pick(ready, now)

    whole, other = (sw.slice(devices=8, exclusive=True, name=name) for name in ("first", "second"))
    with sw.simulate(MIXED, policy=Watching, profile="ideal") as s:
        for home in (whole, other):  # the second finds no room beside the first
            step = sw.synthetic("step", devices=home, duration=TIMES, collective=False)
            sw.block_until_ready([step(ZERO) for _ in range(3)])
    assert sorted(took(s)) == [1_000] * 3 + [3_000] * 3
    assert set(seen) <= {1_000_000, 3_000_000}
    assert len(set(seen)) == 2


@pytest.mark.parametrize("fidelity", ["exact", "cohort"])
def test_a_kind_without_a_time_is_refused_by_name_before_any_work(fidelity: Any) -> None:
    step = sw.synthetic("step", devices=sw.slice(devices=8, island="new"), duration={"tpu-v4": "1ms", "cpu": "2ms"})
    with sw.simulate(MIXED, fidelity=fidelity) as s:
        for _ in range(2):  # the second is not compiled ahead
            with pytest.raises(sw.errors.RunError, match=r"a time on tpu-v4, v4, v4p, cpu, .*'tpu-v5e'") as e:
                step(ZERO).block_until_ready()
            assert e.value.code == "refused"
    assert len(s.trace.gangs()) == 0


def test_a_slice_does_not_move_to_where_its_computations_have_no_time() -> None:
    free = sw.slice(devices=8, name="free")
    both = sw.synthetic("both", devices=free, duration=TIMES)
    with sw.simulate(MIXED) as s:
        x = both(ZERO).block_until_ready()
        s.move(free, island="new")
        both(x).block_until_ready()
        only = sw.synthetic("only", devices=free, duration={"v5e": "1ms"})
        only(ZERO).block_until_ready()
        with pytest.raises(sw.errors.NotNow, match="finds no other devices"):
            s.move(free, island="old")
    assert took(s) == [1_000, 3_000, 1_000]


def test_timed_devices_take_the_time_of_their_kind() -> None:
    step = sw.synthetic("step", devices=2, duration={"cpu": "30ms", "v4": "90ms"})
    with sw.local(hosts=1, devices_per_host=2, platform="timed") as s:
        step(ZERO).block_until_ready()
        elsewhere = sw.synthetic("other", devices=2, duration={"v4": "1ms"})
        with pytest.raises(sw.errors.RunError, match=r"'other' has a time on v4, tpu-v4, .*'cpu'"):
            elsewhere(ZERO).block_until_ready()
    assert 30_000 <= took(s)[0] < 90_000


def test_the_times_of_kinds_have_units() -> None:
    with pytest.raises(sw.errors.Impossible, match="duration on v4 cannot be 5, a number without a unit"):
        sw.synthetic("step", devices=2, duration={"v4": 5})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="takes no time"):
        sw.synthetic("step", devices=2, duration={})
