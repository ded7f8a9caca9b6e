"""The control plane's figures, tiny; and the simulator gets the costs that were measured."""

from __future__ import annotations

import pytest

from experiments.bench.control import control
from experiments.bench.control.predicting import Cost, Measured, Spent, call_ms, gang_ms, profile_of

FANOUT = 23
PEER, STEP, OWN = 0.1, 0.5, 0.06  # ms: a peer's two messages, a step, a host's own work


def spent(hosts: int, peers: int) -> Spent:
    """Measurements of a controller with exactly this cost."""
    relayed = hosts + (hosts - peers)
    cost = Cost(STEP + peers * PEER, hosts * OWN + relayed * PEER)
    return Spent(cost, cost, client=0.2, latency=9.0, rate=100.0)


def measured(hosts: int) -> Measured:
    return Measured(hosts, spent(hosts, min(hosts, FANOUT)), spent(hosts, hosts))


def test_costs_are_recovered_from_their_sums() -> None:
    found = [measured(16), measured(256)]
    for row in found:
        costs = profile_of(row, found, FANOUT, "batched")
        assert (costs.send, costs.receive, costs.step) == (50_000, 50_000, 500_000)
        assert (costs.relay_step, costs.enqueue, costs.complete) == (20_000, 20_000, 20_000)
        assert (costs.client_call, costs.client_note) == (100_000, 100_000)
        assert (costs.fanout, costs.status) == (FANOUT, "measured")


def test_a_single_call_is_two_messages_down_and_one_up() -> None:
    found = [measured(16), measured(256)]
    costs = profile_of(found[0], found, FANOUT, "single")
    assert 2 * costs.send + costs.receive == pytest.approx(1e6 * PEER, abs=2)
    assert 2 * costs.step == pytest.approx(1e6 * STEP, abs=2)


def test_without_a_cluster_larger_than_the_tree_is_wide_the_controller_counts_as_a_peer() -> None:
    row = Measured(4, Spent(Cost(1.0, 0.4), Cost(1.0, 0.4), 0.2, 9.0, 100.0), spent(4, 4))
    costs = profile_of(row, [row], FANOUT, "batched")
    assert (costs.send, costs.step) == (100_000, 200_000)


def test_the_prediction_follows_the_costs() -> None:
    """A single call shares the controller with its own step, and perhaps with the frees of the call before."""
    found = [measured(64)]
    costs = profile_of(found[0], found, FANOUT, "batched")
    dearer = costs.changed(step=costs.step + 1_000_000)
    added = call_ms(64, dearer, calls=4) - call_ms(64, costs, calls=4)
    assert 1.0 - 1e-6 <= added <= 2.0 + 1e-6
    more = gang_ms(64, dearer, nodes=32, calls=2) - gang_ms(64, costs, nodes=32, calls=2)
    assert more == pytest.approx(1.0, rel=0.05)


def test_a_small_cluster_is_measured_over_real_grpc() -> None:
    found = control.one(4, 2)
    assert min(found.single.controller, found.single.agents, found.client, found.latency, found.rate) > 0
