"""Transfers against a raw stream, tiny: as many hops as requested, and arrays arrive unchanged."""

import pytest

from experiments.bench.real import transfers


def test_the_raw_stream_makes_every_hop_of_every_size() -> None:
    found = transfers.raw([1, 1_000, 2_500], chunk=1_000, times=3)
    assert list(found) == [1, 1_000, 2_500]
    assert all(len(each) == 3 and min(each) > 0 for each in found.values())


@pytest.mark.full
def test_arrays_return_unchanged() -> None:
    """`rows` raises if they do not. One of them has several chunks."""
    found = list(transfers.rows([10, 2_500_000], hops=2, times=1))
    assert [row.size for row in found] == [10, 2_500_000]
    assert all(min(row.seaway, row.raw) > 0 for row in found)
