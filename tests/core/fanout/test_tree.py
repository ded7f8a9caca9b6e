"""A tree reaches every member once, through few and short hops, and names its subtrees briefly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.fanout.tree import CONTROLLER, Tree, fanout_for, tree
from core.model import spans
from core.model.errors import Illegal
from tests.laws import examples


def test_the_controller_writes_to_23_hosts_for_512() -> None:
    assert fanout_for(512) == 23
    made = tree(((0, 512),), fanout_for(512))
    assert len(made.roots) == 23
    assert max(len(made.children(host)) for host in range(512)) == 22
    assert max(made.depth(host) for host in range(512)) == 1


def test_two_levels_of_seven() -> None:
    made = tree(((0, 7),), 3)
    assert made.roots == (0, 3, 5)
    assert made.children(0) == ((1, ((1, 2),)), (2, ((2, 3),)))
    assert made.children(3) == ((4, ((4, 5),)),)
    assert made.children(6) == ()
    assert made.below(0) == ((0, 3),)
    assert [made.parent(host) for host in range(7)] == [CONTROLLER, 0, 0, CONTROLLER, 3, CONTROLLER, 5]


def test_a_tree_is_flat_if_the_fanout_allows_it() -> None:
    made = tree(((4, 8),), 4)
    assert made.roots == (4, 5, 6, 7)
    assert all(made.children(host) == () for host in made.roots)


def test_a_tree_has_more_levels_if_two_are_not_enough() -> None:
    made = tree(((0, 25_000),), 23)
    assert max(made.depth(host) for host in range(25_000)) == 3
    assert len(made.roots) == 23


def test_a_message_for_some_hosts_goes_through_the_roots_above_them() -> None:
    made = tree(((0, 7),), 3)
    assert made.roots_for(((2, 4),)) == (0, 3)
    assert made.roots_for(((0, 7),)) == (0, 3, 5)
    assert made.roots_for(()) == ()


def test_gaps_in_the_member_numbers_are_allowed() -> None:
    made = tree(((0, 2), (5, 8)), 2)
    assert made.roots == (0, 6)
    assert made.below(0) == ((0, 2), (5, 6))


def test_hosts_that_must_not_be_reached_through_others_are_children_of_the_controller() -> None:
    made = tree(((0, 7),), 3, apart=((2, 3), (9, 10)))
    assert made.roots == (0, 2, 3, 5)
    assert made.parent(2) == CONTROLLER
    assert made.children(2) == ()
    assert made.below(0) == ((0, 2),)


def test_no_members_make_an_empty_tree() -> None:
    assert tree((), 3).roots == ()


def test_a_fanout_of_zero_is_illegal() -> None:
    with pytest.raises(Illegal):
        tree(((0, 2),), 0)


def reached(made: Tree, host: int) -> list[int]:
    """Return all hosts that get a message written to `host`, found by following children only."""
    return [host] + [found for child, _ in made.children(host) for found in reached(made, child)]


@examples(150)
@given(st.sets(st.integers(0, 300), max_size=120), st.integers(1, 30), st.sets(st.integers(0, 300), max_size=5))
def test_each_member_is_reached_exactly_once(members: set[int], fanout: int, apart: set[int]) -> None:
    made = tree(spans.of(members), fanout, spans.of(apart))
    heard = [host for root in made.roots for host in reached(made, root)]
    assert sorted(heard) == sorted(members)
    assert len(made.roots) <= fanout + len(apart)
    for host in members:
        assert made.below(host) == spans.of(reached(made, host))
        assert len(made.children(host)) <= fanout
        assert made.depth(host) <= len(members).bit_length() or fanout == 1
        parent = made.parent(host)
        assert host in (made.roots if parent == CONTROLLER else dict(made.children(parent)))


@examples(100)
@given(st.integers(1, 2000))
def test_the_fanout_for_two_levels_is_the_smallest_possible(members: int) -> None:
    fanout = fanout_for(members)

    def depth(width: int) -> int:
        made = tree(((0, members),), width)
        return max(made.depth(host) for host in range(members))

    assert depth(fanout) <= 1
    assert fanout == 1 or depth(fanout - 1) > 1
