"""Parts of an island are found by their hosts, divided by messages, and merged when their states are equal."""

from __future__ import annotations

import itertools

from core.model import spans
from core.model.place import line
from core.protocol.effects import Reformed
from core.protocol.messages import GangStep, Ordered, RunHeader, Seat
from sim.cohort import AlikeHosts
from sim.cohort.parts import FIRST, Parts
from sim.hardware import load
from tests.core.hostworld import SAME, gang, layout, plan
from tests.sim.cohort.alike_hosts import nothing_is_past, ordered

CLUSTER = load("B", hosts=8, devices_per_host=2).cluster
EVERYONE = CLUSTER.islands[0].host_span
WHOLE = line(0, 0, 16)


def seated() -> Parts:
    executor = AlikeHosts(EVERYONE, CLUSTER)
    executor.handle(Seat(0, 0, 0, 0, -1, (), EVERYONE, 0), 0)
    executor.handle(Reformed(0), 0)
    return Parts(CLUSTER.islands[0], [executor])


def tell(parts: Parts, message: Ordered) -> int:
    """Returns how many parts were told."""
    parts.divide(message)
    told = parts.among(message.hosts)
    for part in told:
        part.executor.handle(message, 0)
    parts.told(len(told))
    return len(told)


def for_each_host(parts: Parts, first: int) -> None:
    """A message for each host by itself."""
    for host in range(8):
        assert tell(parts, ordered(first + host, hosts=spans.one(host))) == 1


def a_gang(number: int) -> Ordered:
    made = plan(1, [layout(WHOLE, 16, SAME)], [gang("g", WHOLE, (), (0,))], keep=(0,))
    runs = (RunHeader(1, 1, 100, ()),)
    return ordered(number, GangStep(1, 1, 0, EVERYONE), hosts=EVERYONE, plans=(made,), runs=runs)


def test_a_message_for_some_hosts_is_told_to_their_part_alone() -> None:
    parts = seated()
    for_each_host(parts, 1)
    assert [part.members for part in parts.all] == [spans.one(host) for host in range(8)]
    assert parts.of_host(5).members == spans.one(5)
    assert [part.host for part in parts.among(((2, 4), (7, 8)))] == [2, 3, 7]
    assert parts.together(parts.among(((2, 4), (7, 8)))).members == ((2, 4), (7, 8))


def test_parts_of_one_state_merge_at_once_while_a_gang_is_under_way() -> None:
    parts = seated()
    for_each_host(parts, 1)
    assert tell(parts, a_gang(9)) == 8
    parts.merge(9, 0, nothing_is_past)
    assert [part.members for part in parts.all] == [EVERYONE]
    assert parts.of_host(5) is parts.all[0]
    assert tell(parts, ordered(10, hosts=EVERYONE)) == 1


def test_a_part_with_contents_under_way_stays_apart() -> None:
    parts = seated()
    for_each_host(parts, 1)
    parts.of_host(3).open = 1
    parts.merge(8, 0, nothing_is_past)
    assert [part.members for part in parts.all] == [((0, 3), (4, 8)), spans.one(3)]


def test_slices_that_share_no_host_are_never_compared() -> None:
    parts = seated()
    for turn in range(20 * FIRST):
        for_each_host(parts, 1 + 8 * turn)
        assert not parts.due


def test_parts_are_compared_more_and_more_rarely_where_that_finds_nothing() -> None:
    parts = seated()
    for_each_host(parts, 1)
    for host in range(8):
        parts.of_host(host).open = 1
    compared = []
    for number in range(9, 9 + 40 * FIRST):
        if parts.due:
            compared.append(number)
            parts.merge(number - 1, 0, nothing_is_past)
        tell(parts, ordered(number, hosts=EVERYONE))
    gaps = [after - before for before, after in itertools.pairwise(compared)]
    assert len(gaps) > 2
    assert all(after > 1.5 * before for before, after in itertools.pairwise(gaps))


def test_parts_that_are_divided_as_soon_as_they_are_merged_are_merged_more_and_more_rarely() -> None:
    parts = seated()
    merged, number = 0, 1
    for _turn in range(100):
        if parts.due:
            merged += 1
            parts.merge(number - 1, 0, nothing_is_past)
            assert len(parts.all) == 1
        for_each_host(parts, number)
        for more in range(4):
            tell(parts, ordered(number + 8 + more, hosts=EVERYONE))
        number += 12
    assert 2 < merged < 12  # of 100 turns; every third if it were as often as at first
