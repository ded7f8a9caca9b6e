"""The benchmark that counts a call's hands: the same counts each time, for each machine that takes part."""

from __future__ import annotations

from experiments.bench.control import hops


def counted(hosts: int, chained: bool = False) -> dict[str, tuple[float, float, float]]:
    found = hops.measured(hosts, chained)
    return {part: (row["calls"], row["files"], row["again"]) for part, row in found.items()}


def test_each_part_is_counted_and_counts_are_repeatable() -> None:
    first = counted(2)
    assert list(first) == list(hops.PARTS)
    assert all(calls >= files > 0 for calls, files, _ in first.values())
    assert counted(2) == first


def test_with_more_hosts_the_controller_gets_more_reports_and_the_client_does_no_more() -> None:
    few, many = counted(2), counted(64)
    assert many["done"][0] > few["done"][0]
    assert many["call"] == few["call"]


def test_a_chain_of_calls_lets_go_of_each_result_when_the_next_call_has_taken_it() -> None:
    machines = hops.Machines(2, chained=True)
    left = []
    for _ in range(40):
        machines.call()
        left.append(machines.controller.left()["buffers"])
    assert max(left) <= left[0] + 1, "the last result, and one whose release has not left yet"
