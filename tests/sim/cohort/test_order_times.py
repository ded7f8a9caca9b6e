"""When hosts have read orders: what is looked up, or worked out for one host alone, is what each takes by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.fanout import tree
from core.model import small, spans
from core.model.spans import Spans
from sim.cohort.host_times import as_vector
from sim.cohort.order_times import OrderTimes
from sim.cohort.routes import CohortTree, rows_of
from sim.hardware.profiles import profile

ISLAND = small(12, 2).islands[0]
EVERYONE = ISLAND.host_span


class OneByOne(OrderTimes):
    """Works out each order down the tree, at all hosts."""

    def send(self, message: Any, route: Any, at: int, nbytes: int) -> tuple[Any, int]:
        self._descend(route, at, nbytes, len(message.steps), message.number)
        read = self._read
        return read, int(read[rows_of(message.hosts, ISLAND)].max())


@st.composite
def orders(draw: st.DrawFn) -> list[tuple[Spans, int, int, int]]:
    """(hosts, bytes, steps, how long after the last one was written) of each order. Orders to the same few hosts come
    again."""
    one = st.integers(0, ISLAND.hosts - 1).map(spans.one)
    several = st.lists(st.integers(0, ISLAND.hosts - 1), min_size=2, max_size=9, unique=True).map(spans.of)
    some = st.sampled_from(draw(st.lists(several, min_size=1, max_size=3)))
    hosts = st.one_of(st.just(EVERYONE), one, some, some)
    sizes, waits = st.sampled_from((64, 300, 5000)), st.sampled_from((0, 0, 700, 60_000, 5_000_000))
    return draw(st.lists(st.tuples(hosts, sizes, st.integers(1, 3), waits), min_size=1, max_size=24))


@given(orders(), st.sampled_from((1, 2, 3, 12)), st.sampled_from(("paper", "seaway")), st.booleans())
def test_an_order_takes_as_long_as_if_it_were_worked_out_at_all_hosts(
    drawn: list[tuple[Spans, int, int, int]], fanout: int, costs: str, looks: bool
) -> None:
    network = SimpleNamespace(jitter=0, latency=40_000, byte_ps=80)
    sim: Any = SimpleNamespace(network=network, profile=profile(costs), seed=0)
    shape = tree(EVERYONE, fanout)
    routes = CohortTree(ISLAND, shape)
    times, each = OrderTimes(sim, ISLAND, EVERYONE), OneByOne(sim, ISLAND, EVERYONE)
    for one in (times, each):
        one.seated(shape)
    at = 0
    for number, (hosts, nbytes, steps, wait) in enumerate(drawn):
        message: Any = SimpleNamespace(hosts=hosts, number=number, steps=(None,) * steps)
        route = routes.route(hosts)
        found, last = times.send(message, route, at, nbytes)
        wanted, wanted_last = each.send(message, route, at, nbytes)
        there = rows_of(hosts, ISLAND)
        assert as_vector(found, ISLAND.hosts)[there].tolist() == wanted[there].tolist()
        assert last == wanted_last
        if looks:
            _same(times, each)
        at += sim.profile.writing(nbytes) * route.number + wait
    _same(times, each)


def _same(times: OrderTimes, each: OrderTimes) -> None:
    """Threads that pass orders on begin with one when it has been read: sooner, it is all the same since when they are
    free."""
    read, write, last = times.threads()
    wanted_read, wanted_write, wanted_last = each.threads()
    assert (read.tolist(), last.tolist()) == (wanted_read.tolist(), wanted_last.tolist())
    assert np.maximum(write, read).tolist() == np.maximum(wanted_write, wanted_read).tolist()
