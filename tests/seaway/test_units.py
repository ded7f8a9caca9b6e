"""Durations and sizes as people write them."""

import pytest

from core.model.errors import Impossible
from seaway.units import duration, nbytes, show_bytes, show_time


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("330us", 330_000),
        ("1.5 ms", 1_500_000),
        ("0.33 ms", 330_000),
        ("2s", 2_000_000_000),
        ("1 min", 60_000_000_000),
        ("7 µs", 7_000),
        ("12ns", 12),
        ("1e3 us", 1_000_000),
        ("1_000us", 1_000_000),
        ("0s", 0),
        (42, 42),
    ],
)
def test_a_duration_is_a_whole_number_of_nanoseconds(text: str | int, ns: int) -> None:
    assert duration(text) == ns


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4B", 4),
        ("64 MiB", 64 * 2**20),
        ("1kB", 1000),
        ("1KiB", 1024),
        ("1.5 GiB", 3 * 2**29),
        ("2 GB", 2 * 10**9),
        (7, 7),
    ],
)
def test_a_size_is_a_whole_number_of_bytes(text: str | int, count: int) -> None:
    assert nbytes(text) == count


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("330", "has no unit"),
        ("330 uss", "did you mean 'us'"),
        ("5 MS", "did you mean 'ms'"),
        ("4B", "'B'"),
        ("-3us", "negative"),
        ("fast", "write a time with its unit"),
        ("0.1ns", "less than one ns"),
        ("1e40s", "too large"),
        (None, "write a time"),
        (True, "write a time"),
        (1.5, "write a time"),
    ],
)
def test_an_invalid_duration_is_refused_with_what_to_write(text: str, says: str) -> None:
    with pytest.raises(Impossible, match=says):
        duration(text, "step")


def test_an_error_names_the_option_it_is_about() -> None:
    with pytest.raises(Impossible, match="bandwidth cannot be 'x'"):
        nbytes("x", "bandwidth")
    with pytest.raises(Impossible, match="did you mean 'MiB'"):
        nbytes("64 mib")


def test_quantities_are_shown_in_the_unit_that_fits() -> None:
    assert [show_time(ns) for ns in (12, 330_000, 1_500_000, 2 * 10**9)] == ["12 ns", "330 us", "1.5 ms", "2 s"]
    assert [show_bytes(n) for n in (4, 2**21, 3 * 2**30)] == ["4 B", "2 MiB", "3 GiB"]
