"""One client's machines without network: every call is done by every host, and nothing is left over."""

from __future__ import annotations

import pytest

from experiments.bench.control import events


@pytest.mark.parametrize(("hosts", "fanout", "nodes"), [(4, 4, 1), (64, 8, 1), (64, 8, 16)])
def test_every_call_is_a_gang_for_each_node(hosts: int, fanout: int, nodes: int) -> None:
    found = events.called(hosts, fanout, 40, nodes)
    assert found.gangs == 40 * nodes
    assert found.controller.left()["runs"] == 0
    assert found.events["controller"] >= 40 / 8 * min(hosts, fanout), (
        "each root of the tree reports by itself"
    )
    assert min(found.spent.values()) > 0


def test_the_naive_controller_has_a_rate() -> None:
    assert events.naive(2) > 0
