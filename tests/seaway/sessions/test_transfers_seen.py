"""A placement sees which islands are sending to which, while they do."""

from __future__ import annotations

from typing import Any

import numpy as np

import seaway as sw

TWO = {"name": "two", "island": [{"name": name, "hosts": 1, "devices_per_host": 4, "kind": "v3"} for name in "ab"]}
on_a, on_b = (sw.slice(devices=4, island=name, name=name) for name in "ab")
add = sw.jit(lambda x: x + 1, devices=on_a)
double = sw.jit(lambda x: x * 2, devices=on_b)


class Looking(sw.policies.FirstFit):
    def __init__(self) -> None:
        self.seen: list[tuple[int, dict[tuple[str, str], int]]] = []

    def decide(self, cluster: sw.policies.ClusterView) -> None:
        super().decide(cluster)
        self.seen.append((cluster.now, dict(cluster.transfers)))
        cluster.wake(cluster.now + 100_000)


@sw.program
def both(x: Any) -> Any:
    return double(add(x))


def test_a_placement_sees_bytes_under_way_between_islands() -> None:
    policy = Looking()
    with sw.simulate(TWO, policy=lambda: policy, profile="ideal") as s:
        both(sw.put(np.ones((4, 1 << 20), np.float32), on_a)).block_until_ready()
        both(sw.put(np.ones((4, 1 << 18), np.float32), on_a)).block_until_ready()
        moves = s.trace.transfers()
    moves = moves[moves["source"] != "client"]
    seen = [(at, found) for at, found in policy.seen if found]
    assert {tuple(found.items()) for _, found in seen} == {((("a", "b"), size),) for size in moves["nbytes"]}
    assert sorted(moves["nbytes"]) == [16 << 20, 64 << 20], "each of four devices gets all of it"
    for at, found in seen:
        assert ((moves["entered_us"] <= at / 1e3) & (at / 1e3 <= moves["ended_us"])).any(), found
    between = [found for at, found in policy.seen if moves["ended_us"].min() < at / 1e3 < moves["entered_us"].max()]
    assert between
    assert not any(between), "the first is over, and the second is not ordered"
