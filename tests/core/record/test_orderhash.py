"""The order hash is the same for the same order, and different for any other order."""

from hypothesis import assume, given
from hypothesis import strategies as st

from core.record.orderhash import OrderHash, token

Gang = tuple[int, str, str, int, str]  # island, client, program, run, step

gangs = st.tuples(
    st.integers(0, 2), st.sampled_from("ab"), st.sampled_from(["p", "q"]), st.integers(1, 3), st.sampled_from("xyz")
)


def hashed(order: list[Gang]) -> OrderHash:
    found = OrderHash()
    for island, client, program, run, step in order:
        found.entered(island, run, token(client, program, step))
    return found


def test_the_same_order_has_the_same_hash() -> None:
    order: list[Gang] = [(0, "ann", "train", 1, "forward"), (0, "bob", "train", 1, "forward")]
    assert hashed(order).island(0) == hashed(order).island(0)
    assert hashed(order).whole() == hashed(order).whole()


def test_hashes_do_not_change_between_versions() -> None:
    order: list[Gang] = [(0, "ann", "train", 1, "forward"), (1, "bob", "train", 7, "back")]
    assert [hashed(order).island(0), hashed(order).island(1)] == ["3936a740a7d7d953", "bac636c8ead21cf8"]


def test_concatenated_names_are_told_apart() -> None:
    assert token("a", "bc") != token("ab", "c")
    assert token("", "a") != token("a", "")


@given(st.lists(gangs, min_size=2, max_size=12), st.data())
def test_two_gangs_swapped_on_an_island_are_seen(order: list[Gang], data: st.DataObject) -> None:
    one = data.draw(st.integers(0, len(order) - 1))
    other = data.draw(st.integers(0, len(order) - 1))
    swapped = list(order)
    swapped[one], swapped[other] = swapped[other], swapped[one]

    def by_island(gangs: list[Gang]) -> list[list[Gang]]:
        return [[gang for gang in gangs if gang[0] == island] for island in range(3)]

    for island in range(3):
        same = by_island(order)[island] == by_island(swapped)[island]
        assert (hashed(order).island(island) == hashed(swapped).island(island)) == same


@given(st.lists(gangs, max_size=8), st.lists(gangs, max_size=8))
def test_different_orders_differ(order: list[Gang], other: list[Gang]) -> None:
    assume(any([g for g in order if g[0] == i] != [g for g in other if g[0] == i] for i in range(3)))
    assert hashed(order).whole() != hashed(other).whole()


def test_the_order_of_one_island_does_not_affect_the_hash_of_another() -> None:
    here: Gang = (0, "ann", "train", 1, "forward")
    there: Gang = (1, "ann", "train", 1, "back")
    assert hashed([here, there]).island(0) == hashed([here]).island(0)
