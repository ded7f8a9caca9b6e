"""One client's machines without network: the same calls, whether reports come together or from each root."""

from __future__ import annotations

import pytest

from experiments.bench.control import events


@pytest.mark.parametrize(("hosts", "fanout", "nodes"), [(4, 4, 1), (64, 8, 1), (64, 8, 16)])
def test_every_call_is_a_gang_for_each_node(hosts: int, fanout: int, nodes: int) -> None:
    together = events.called(hosts, fanout, 40, nodes)
    each = events.called(hosts, fanout, 40, nodes, each=True)
    assert together.gangs == each.gangs == 40 * nodes
    assert together.events["executor"] == each.events["executor"]
    assert each.events["controller"] > together.events["controller"]
    assert min(each.spent.values()) > 0
    assert together.controller.left() == each.controller.left()


def test_the_naive_controller_has_a_rate() -> None:
    assert events.naive(2) > 0
