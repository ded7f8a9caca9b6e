"""The cases of `prediction` that a seed draws."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from experiments.bench.prediction.cases import CHAINS, DURATIONS, HOSTS, KINDS, SIZES, STAGES, drawn
from tests.laws import examples

SEEDS = st.integers(0, 2**32)


@given(SEEDS)
@examples(20)
def test_a_seed_draws_the_same_cases_each_time_and_more_of_them_begin_alike(seed: int) -> None:
    assert drawn(seed, 30) == drawn(seed, 30)
    assert drawn(seed, 30)[:9] == drawn(seed, 9)


def test_what_a_seed_draws_does_not_change_with_the_process() -> None:
    """Golden: a change of how cases are drawn changes the meaning of published figures of a seed."""
    assert [case.title for case in drawn(1, 4)] == GOLDEN


@given(SEEDS)
def test_what_is_drawn_lies_within_what_was_promised(seed: int) -> None:
    for case in drawn(seed, 14):
        if case.kind == "pipeline":
            assert 1 <= case.hosts <= STAGES[case.platform]
        elif case.kind == "transfer":
            assert SIZES[0] <= case.nbytes <= SIZES[1]
            assert case.chain % 2 == 0  # it comes back
            assert case.hosts == 2
        else:
            assert case.hosts in HOSTS[case.platform]
        assert len(case.works) == {"transfer": 0, "mixed": 2}.get(case.kind, 1)
        assert len(set(case.works)) == len(case.works)
        assert 1 <= len(case.weights) <= 16
        if case.kind in ("Chained", "Fused"):
            assert CHAINS[0] <= case.chain <= CHAINS[1]
        for work in case.works:
            assert (work.op == "timed") == (case.platform == "timed")
            if work.op == "timed":
                assert DURATIONS[0] <= work.size <= DURATIONS[1]


@given(SEEDS)
def test_an_accelerator_is_one_host_without_transfers(seed: int) -> None:
    cases = drawn(seed, 12, ["cuda"])
    assert {case.kind for case in cases} == set(KINDS) - {"transfer"}
    assert {case.hosts for case in cases} == {1}
    assert {work.op for case in cases for work in case.works} == {"matmul"}


GOLDEN = [
    "timed clients 12 2:4:1:2:1:4:1:2:4:4:8:1, 76.546 us, ahead 1, 2 hosts",
    "timed transfer 40,015 bytes, 8 hops, 2 hosts",
    "cpu clients 3 alike, chains of 8, matmul-128, ahead 1, 1 host",
    "timed mixed 2 alike, 57.662 us and 370.393 us, ahead 4, 1 host",
]
