"""Processes of a world in a benchmark: how each ended is reported, and none is waited for without a bound."""

from __future__ import annotations

import sys
import time

from experiments.bench import members

HERE = "tests.experiments.test_bench_members"
BOUND = 60.0


def test_processes_that_end_well_are_reported_with_their_output() -> None:
    found = members.played(HERE, 2, {}, ["ends"], bound=BOUND)
    assert [each.code for each in found] == [0, 0]
    assert [each.said for each in found] == [[{"rank": 0, "of": 2}], [{"rank": 1, "of": 2}]]


def test_a_process_that_fails_ends_the_others_and_its_output_is_kept() -> None:
    first, second = members.played(HERE, 2, {}, ["fails"], bound=BOUND)
    assert first.code is None
    assert second.code == 3
    assert "this is why" in second.words


def test_silent_processes_are_ended_long_before_the_bound() -> None:
    begun = time.monotonic()
    found = members.played(HERE, 2, {}, ["hangs"], bound=BOUND, silence=0.5)
    assert [each.code for each in found] == [None, None]
    assert [each.said for each in found] == [[{"rank": 0, "of": 2}], [{"rank": 1, "of": 2}]]
    assert time.monotonic() - begun < BOUND / 2


def member(rank: int, count: int, how: str) -> None:
    print("what others print is left out")
    members.say(rank=rank, of=count)
    if how == "fails" and rank == 1:
        print("this is why", file=sys.stderr)
        raise SystemExit(3)
    if how in ("hangs", "fails"):
        time.sleep(BOUND)
    members.leave()


if __name__ == "__main__":
    _, _, _, its_rank, its_count, its_end = sys.argv
    member(int(its_rank), int(its_count), its_end)
