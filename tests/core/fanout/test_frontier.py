"""Checks the frontier against the simplest model: two numbers for each root."""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from core.fanout import frontier
from core.fanout.frontier import Frontier
from core.fanout.tree import Tree, tree
from core.model import spans
from core.model.spans import Spans

MEMBERS: Spans = ((0, 7), (9, 12))


class PlainFrontier:
    def __init__(self, shape: Tree, fence: int) -> None:
        self.shape = shape
        self.written = dict.fromkeys(shape.roots, fence)
        self.seen = dict.fromkeys(shape.roots, fence)

    def hear(self, hosts: Spans, number: int) -> None:
        for root in self.shape.roots:
            if not spans.minus(self.shape.below(root), hosts):
                self.seen[root] = max(self.seen[root], number)

    def low(self, newest: int) -> int:
        return min([newest, *(s for root, s in self.seen.items() if s < self.written[root])])


members = st.sets(st.sampled_from(list(spans.items(MEMBERS))), min_size=1).map(spans.of)
hosts = st.one_of(st.just(MEMBERS), members)
events = st.lists(st.tuples(st.sampled_from(["write", "beat", "one", "low"]), hosts, st.integers(0, 30)))


@given(st.integers(1, 10), members, events, st.integers(1, 3))
def test_the_frontier_is_the_least_that_a_root_with_missing_messages_has_seen(
    fanout: int, apart: Spans, told: list[tuple[str, Spans, int]], kept: int
) -> None:
    shape = tree(MEMBERS, fanout, apart)
    real, plain, newest = Frontier(shape, 3), PlainFrontier(shape, 3), 3
    with patch.object(frontier, "KEPT", kept):  # so that entries are dropped, which must not change the result
        for what, who, number in told:
            if what == "write":
                newest += 1
                real.written[who] = newest
                if len(real.written) > frontier.KEPT:
                    real.fold()
                for root in shape.roots_for(who):
                    plain.written[root] = newest
            elif what == "low":
                assert real.low(newest) == plain.low(newest)
            else:
                said = who if what == "beat" else shape.below(shape.roots[number % len(shape.roots)])
                real.seen(said, number)
                plain.hear(said, number)
        assert real.low(newest) == plain.low(newest)


def test_the_roots_of_a_set_are_those_above_any_of_its_hosts() -> None:
    shape = tree(((0, 8),), 3)
    assert shape.roots == (0, 3, 6)
    assert Frontier(shape, 0).roots(((2, 4),)) == (0, 3)
    assert shape.roots_within(((2, 8),)) == (3, 6)
