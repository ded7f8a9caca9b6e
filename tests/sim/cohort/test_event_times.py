"""When events happened: what is kept of some hosts says the same as a table of each host by itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.model import small, spans
from core.model.spans import Spans
from sim.cohort.event_times import EventTimes
from sim.cohort.host_times import TimePatterns, as_vector
from sim.cohort.routes import rows_of

ISLAND = small(6, 1).islands[0]
HOSTS = ISLAND.hosts
SOME = st.sampled_from([((0, 6),), ((1, 4),), ((2, 3),), ((0, 1), (4, 6))])
TIMES = st.one_of(st.integers(1, 99), st.lists(st.integers(1, 99), min_size=HOSTS, max_size=HOSTS))


@given(st.lists(st.tuples(st.integers(0, 3), SOME, TIMES), max_size=8), st.sets(st.integers(0, 3)), SOME)
def test_hosts_go_on_after_the_last_of_several_events(
    happened: list[tuple[int, Spans, int | list[int]]], causes: set[int], asked: Spans
) -> None:
    times, each = EventTimes(HOSTS, TimePatterns(HOSTS)), [[0] * HOSTS for _ in range(4)]
    for event, hosts, at in happened:
        rows, number = rows_of(hosts, ISLAND), spans.count(hosts)
        if all(each[event][host] == 0 for host in spans.items(hosts)):  # it happens once at each host
            when = at if isinstance(at, int) else np.array(at, dtype=np.int64)[rows]
            times.put(("e", event), rows, number, when, 0)
            for index, host in enumerate(spans.items(hosts)):
                each[event][host] = as_vector(when, number)[index]
    number = spans.count(asked)
    found = times.latest([("e", event) for event in causes], rows_of(asked, ISLAND), number)
    wanted = [max([each[event][host] for event in causes], default=0) for host in spans.items(asked)]
    assert as_vector(found, number).tolist() == wanted
    for event in causes:
        last = max(each[event])
        assert times.past(("e", event), last)
        assert not times.past(("e", event), last - 1)
