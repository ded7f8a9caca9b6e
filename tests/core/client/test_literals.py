"""Which contents travel in a call: small ones, and as many as fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.client import to_put
from core.model import MAX_LITERALS


@pytest.mark.parametrize(
    ("sizes", "must", "put"),
    [
        ([], [], []),
        ([4096], [], []),
        ([4097], [], [0]),
        ([1000, 4000, 20], [], [1]),
        ([2000, 2000, 2000], [], [2]),
        ([8, 8], [1], [1]),
        ([4000, 4000], [1], [1]),
    ],
)
def test_the_largest_are_put_until_the_others_fit(sizes: list[int], must: list[int], put: list[int]) -> None:
    assert to_put(sizes, must) == put


@given(st.lists(st.integers(0, 3 * MAX_LITERALS), max_size=12))
def test_what_travels_fits_and_nothing_is_put_in_vain(sizes: list[int]) -> None:
    put = to_put(sizes)
    travels = [nbytes for index, nbytes in enumerate(sizes) if index not in put]
    assert sum(travels) <= MAX_LITERALS
    if put:
        assert sum(travels) + min(sizes[index] for index in put) > MAX_LITERALS
        assert min(sizes[index] for index in put) >= max(travels, default=0)
