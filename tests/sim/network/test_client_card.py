"""A client's network card: the order of what passes, and its bandwidth."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sim.network.bulk import ClientCard


def test_hosts_take_turns_in_the_order_in_which_the_transfer_names_them() -> None:
    card = ClientCard()
    card.begin(1, {5: 10, 3: 20}, now=100)
    assert card.wait(1, 3, 20, now=100) == 10
    assert card.wait(1, 5, 10, now=100) == 0


def test_transfers_take_turns_in_the_order_in_which_they_begin() -> None:
    card = ClientCard()
    card.begin(1, {0: 10}, now=0)
    card.begin(2, {0: 10}, now=3)
    assert card.wait(2, 0, 10, now=3) == 7
    card.begin(3, {0: 10}, now=50)
    assert card.wait(3, 0, 10, now=50) == 0


def test_what_comes_after_its_turn_passes_at_once() -> None:
    card = ClientCard()
    card.begin(1, {0: 10}, now=0)
    card.begin(2, {0: 10}, now=0)
    assert card.wait(2, 0, 10, now=30) == 0
    assert card.wait(1, 0, 10, now=31) == 0


def test_chunks_of_one_host_pass_one_after_another() -> None:
    card = ClientCard()
    card.begin(1, {0: 10}, now=0)
    assert [card.wait(1, 0, 4, now=2), card.wait(1, 0, 6, now=2)] == [0, 4]


def test_a_transfer_that_is_over_is_forgotten() -> None:
    card = ClientCard()
    card.begin(1, {0: 10, 1: 10}, now=0)
    card.over(1)
    assert card.wait(1, 1, 10, now=0) == 0


@given(st.lists(st.tuples(st.integers(0, 50), st.lists(st.integers(1, 20), min_size=1, max_size=5)), max_size=8))
def test_what_comes_in_time_keeps_to_the_bandwidth(transfers: list[tuple[int, list[int]]]) -> None:
    """(pause before it begins, how long each host's contents take): no two pass at the same time, none waits idly."""
    card, now, passages = ClientCard(), 0, []
    for transfer, (pause, took) in enumerate(transfers):
        now += pause
        card.begin(transfer, dict(enumerate(took)), now)
        for host, time in enumerate(took):
            start = now + card.wait(transfer, host, time, now)
            passages.append((start, start + time))
    free = 0
    for start, end in passages:
        assert start >= free
        free = end
    begun = sum([pause for pause, _ in transfers])
    assert free <= begun + sum([sum(took) for _, took in transfers])
