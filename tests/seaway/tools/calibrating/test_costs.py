"""The costs of the model, from what processes spent and did: known costs are recovered."""

from __future__ import annotations

import tomllib

import pytest

from seaway.tools.calibrating.costs import (
    CALLER,
    DEVICE,
    ENQUEUE,
    HOST,
    SHARED,
    USER,
    costs_of,
    counted,
    sources,
)
from seaway.tools.calibrating.device_costs import looped_cpu
from seaway.tools.calibrating.transfer_costs import Hop, end_of, simulated, transfers_of
from seaway.tools.calibrating.watching import GROUPS, WatchSample, by_group
from seaway.tools.calibrating.wire import Round, wire_of

from .made import COSTS, calibration, samples


def test_paid_costs_are_recovered() -> None:
    """Costs that are paid in several threads are their sum."""
    runs = samples(timed=False)
    found = costs_of(runs, timed=False)
    assert found.costs.keys() == COSTS.keys()
    paid = [counted(group, runs[0], timed=False) for group in (CALLER, USER, HOST, ENQUEUE, DEVICE)]
    for name, cost in found.costs.items():
        threads = 1 if name in SHARED else sum(name in counts for counts in paid)
        assert cost.value == pytest.approx(threads * COSTS[name], rel=0.1, abs=2_000), name
    assert all(missed < 0.05 for missed in found.missed.values())


def test_for_timed_devices_the_cost_of_a_gang_is_known_and_its_thread_is_not() -> None:
    """They have no threads of their own: a gang that is enqueued also ends, the first of a group or a further one."""
    found = costs_of(samples(timed=True), timed=True).costs
    for end in ("complete", "complete_more"):
        both = found["enqueue"].value + found[end].value
        assert both == pytest.approx(COSTS["enqueue"] + COSTS[end], rel=0.1)
        assert "enqueue" in found[end].like


def test_threads_without_peers_give_no_cost_of_collectives() -> None:
    """Threads that compute for one host, or products, give no cost: they are not rows that costs could miss."""
    runs = samples(timed=False)
    alone = [run for run in runs if run.counts["hosts"] == 1 or run.counts["handed"]]
    assert 0 < len(alone) < len(runs)
    for run in alone:
        run.cpu[DEVICE] = 77_000.0
    found = costs_of(runs, timed=False)
    assert found.missed[DEVICE] < 0.05
    assert found.rows == 5 * len(runs) - len(alone)


def test_sources_name_the_measurements() -> None:
    runs = samples(True)
    words = sources(costs_of(runs, True), True)
    assert words["send"].startswith("measured: CPU of all processes, by gRPC message")
    assert "timed devices" in words["enqueue"]
    assert "divided evenly" not in words["send"]


def test_costs_that_always_occur_together_are_divided_and_the_source_says_so() -> None:
    runs = samples(True)
    for run in runs:
        run.counts["frames_in"] = run.counts["frames_out"]
        run.counts["parcels_in"] = run.counts["frames_in"]
        run.cpu[USER] = sum(COSTS[name] * count for name, count in counted(USER, run, True).items())
        run.cpu[HOST] = sum(COSTS[name] * count for name, count in counted(HOST, run, True).items())
    found = costs_of(runs, True)
    both = found.costs["send"].value + found.costs["receive"].value
    assert both == pytest.approx(COSTS["send"] + COSTS["receive"], rel=0.05)
    assert found.costs["send"].value == pytest.approx(both / 2, rel=0.05)
    assert "not told apart from receive by what was run: divided evenly" in sources(found, True)["send"]


def test_threads_of_an_agent_are_named_by_their_purpose() -> None:
    """Threads that JAX starts from a thread of ours have its name."""
    threads = {
        10: ("python", 5), 20: ("enqueue", 100), 31: ("enqueue", 7), 32: ("enqueue", 8), 25: ("completions", 50),
        40: ("tf_XLAEigen", 3), 41: ("event_engine", 11),
    }  # fmt: skip
    assert dict(by_group(threads)) == {"enqueue": 100, "completions": 50, "device": 7 + 8 + 3}


def test_a_timed_agent_has_no_such_threads() -> None:
    assert sum(by_group({1: ("python", 5), 2: ("event_engine", 6)}).values()) == 0


def test_the_cost_of_a_byte_is_that_of_further_bytes_at_each_end() -> None:
    hops = [Hop(size, 3e6 + 2.0 * size, 4e6 + 2 * 0.9 * size) for size in (1000, 4 << 20, 16 << 20, 64 << 20)]
    found = transfers_of(hops * 3)
    assert found.byte.slope == pytest.approx(0.9, rel=0.03)
    assert found.rate.slope == pytest.approx(2.0, rel=0.03)
    assert found.small.value == pytest.approx(3e6 + 2000)


def test_the_cost_of_transfers_is_the_remainder_whatever_the_starting_profile() -> None:
    table = tomllib.loads(calibration("timed").text())
    charged = simulated(table, 1)
    assert charged > 0
    costs = table["profile"]["costs"]
    costs |= {"transfer_end": "5 ms", "stall": "9 ms", "stall_every": "1 us"}
    assert simulated(table, 1) == charged
    hops = [Hop(1000, 3e6, charged + 2 * 400_000), Hop(1 << 20, 3e6, 9e9)]
    assert end_of(hops, table, 1).value == pytest.approx(400_000)
    assert end_of([Hop(1000, 3e6, charged / 2)], table, 1).value == 0, "no cost is negative"


def test_latency_is_the_time_in_which_neither_end_worked() -> None:
    rounds = [Round(64, 500_000.0 + wobble, 150_000.0, 130_000.0) for wobble in (-1000, 0, 1000)]
    found = wire_of(
        [*rounds, Round(64 << 10, 700_000.0, 150_000.0 + 0.3 * (64 << 10), 130_000.0 + 0.6 * (64 << 10))]
    )
    assert found.latency.value == 110_000
    assert found.message.value == 140_000
    assert found.send.slope == pytest.approx(0.3, rel=0.1)
    assert found.receive.slope == pytest.approx(0.6, rel=0.1)


def test_latency_below_its_own_spread_is_zero() -> None:
    """Threads of both ends work at the same time: their CPU time may be more than the time that passed."""
    rounds = [
        Round(64, 500_000.0 + wobble, 250_000.0, 250_000.0) for wobble in (-90_000, -30_000, 10_000, 95_000)
    ]
    found = wire_of([*rounds, Round(64 << 10, 600_000.0, 260_000.0, 260_000.0)])
    assert found.latency.value == 0
    assert 30_000 < found.doubt < 60_000


def test_one_more_sum_in_a_loop_costs_the_difference_of_long_and_short_loops() -> None:
    def looped(sums: int, cpu: float) -> WatchSample:
        counts = {"sums": float(sums), "hosts": 2.0}
        return WatchSample(
            "looped", 1e9, dict.fromkeys(GROUPS, 0.0) | {"enqueue": cpu / 4, "device": 3 * cpu / 4}, counts
        )

    pairs = [(50_000.0, 50_000.0 + 100 * 2 * each) for each in (6_000.0, 7_000.0, 30_000.0)]
    found = looped_cpu([sample for few, many in pairs for sample in (looped(4, few), looped(104, many))])
    assert found.value == pytest.approx(7_000), "on each host; the median of three turns"
    assert looped_cpu([looped(4, 9.0), looped(104, 8.0)]).value == 0
