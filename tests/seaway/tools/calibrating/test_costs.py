"""The costs of the model, from what processes spent and did: known costs are recovered."""

from __future__ import annotations

import tomllib

import pytest

from seaway.tools.calibrating.costs import GROUPS, HOST, SHARED, USER, costs_of, counted, sources
from seaway.tools.calibrating.device_costs import SumOver
from seaway.tools.calibrating.measuring import _of_sums
from seaway.tools.calibrating.transfer_costs import Hop, end_of, simulated, transfers_of
from seaway.tools.calibrating.watching import by_group

from .made import COSTS, calibration, samples


def test_paid_costs_are_recovered() -> None:
    """Costs that are paid in several threads are their sum."""
    runs = samples()
    found = costs_of(runs)
    assert found.costs.keys() == COSTS.keys()
    paid = [counted(group, runs[0]) for group in GROUPS]
    for name, cost in found.costs.items():
        if name in ("enqueue", "complete", "complete_more"):
            continue  # the next test
        threads = 1 if name in SHARED else sum(name in counts for counts in paid)
        assert cost.value == pytest.approx(threads * COSTS[name], rel=0.1, abs=2_000), name
    assert found.missed < 0.05


def test_the_cost_of_a_gang_is_known_but_not_how_it_divides() -> None:
    """A gang that is enqueued also ends, the first of a group or a further one, and any thread may see to it."""
    found = costs_of(samples()).costs
    for end in ("complete", "complete_more"):
        both = found["enqueue"].value + found[end].value
        assert both == pytest.approx(COSTS["enqueue"] + COSTS[end], rel=0.1)
        assert "enqueue" in found[end].like


def test_it_makes_no_difference_which_thread_of_a_host_reads_and_enqueues() -> None:
    one, other = samples(), samples()
    for run in other:
        third = run.cpu[HOST] / 3
        run.cpu.update({HOST: third, "enqueue": third, "completions": third})
    found = costs_of(other).costs
    for name, cost in costs_of(one).costs.items():
        assert found[name].value == pytest.approx(cost.value), name


def test_sums_that_jax_computes_in_the_enqueueing_thread_are_not_in_the_ends_of_gangs() -> None:
    found = costs_of(samples())
    assert found.costs["sum"].value == pytest.approx(COSTS["sum"], rel=0.02)
    silent = [run._replace(counts=run.counts | {"sums": 0.0}) for run in samples()]
    assert "sum" not in costs_of(silent).costs


def test_sums_over_two_three_and_four_hosts_give_one_latency_and_one_bandwidth() -> None:
    """2 log2(n) latencies, rounded up, and 2 (n-1)/n of the bytes."""
    latency, byte = 50_000, 0.5
    sums = [
        SumOver(n, nbytes, 2 * rounds * latency + 2 * (n - 1) / n * nbytes * byte)
        for n, rounds in ((2, 1), (3, 2), (4, 2))
        for nbytes in (4, 65_536, 1_048_576)
    ]
    found = {figure.name: figure for figure in _of_sums(sums, across=True)}
    assert found["network_latency"].value == pytest.approx(latency, rel=0.01)
    assert found["network_bandwidth"].value == pytest.approx(1e9 / byte, rel=0.01)
    assert "over 2, 3, 4 devices" in found["network_latency"].how
    assert _of_sums([], across=False) == []


def test_sources_name_the_measurements() -> None:
    words = sources(costs_of(samples()))
    assert words["send"].startswith("measured: CPU of all processes, by message")
    assert words["enqueue"].startswith("measured: CPU of hosts, by gang")
    assert "divided evenly" not in words["send"]


def test_costs_that_always_occur_together_are_divided_and_the_source_says_so() -> None:
    runs = samples()
    for run in runs:
        run.counts["frames_in"] = run.counts["frames_out"]
        run.counts["near_out"] = run.counts["near_in"] = 0.0
        run.cpu[USER] = sum(COSTS[name] * count for name, count in counted(USER, run).items())
        run.cpu[HOST] = sum(COSTS[name] * count for name, count in counted(HOST, run).items())
    found = costs_of(runs)
    both = found.costs["send"].value + found.costs["receive"].value
    assert both == pytest.approx(COSTS["send"] + COSTS["receive"], rel=0.05)
    assert found.costs["send"].value == pytest.approx(both / 2, rel=0.05)
    assert "not told apart from receive by what was run: divided evenly" in sources(found)["send"]


def test_threads_of_an_agent_are_named_by_their_purpose() -> None:
    """Threads that JAX starts from a thread of ours have its name."""
    threads = {
        10: ("python", 5), 20: ("enqueue", 100), 31: ("enqueue", 7), 32: ("enqueue", 8), 25: ("completions", 50),
        40: ("tf_XLAEigen", 3), 41: ("event_engine", 11),
    }  # fmt: skip
    assert dict(by_group(threads)) == {"enqueue": 100, "completions": 50, "device": 7 + 8 + 3}


def test_the_cost_of_a_byte_is_that_of_further_bytes_at_each_end() -> None:
    hops = [Hop(size, 3e6 + 2.0 * size, 4e6 + 2 * 0.9 * size) for size in (1000, 4 << 20, 16 << 20, 64 << 20)]
    found = transfers_of(hops * 3)
    assert found.byte.slope == pytest.approx(0.9, rel=0.03)
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
