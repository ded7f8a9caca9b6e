"""The fuzzer: fifty seeds each time, and twenty of each kind; more under `full`; and it finds the planted bugs.

Longer hunts: `python -m tests.fuzz --seeds 10000`. docs/testing.md explains it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fuzz import (  # noqa: F401
    planted,
    planted_anew,
    planted_disks,
    planted_growth,
    planted_moves,
    planted_places,
    planted_reserving,
)
from tests.fuzz.case import Action, Case, CrashHost, Restart
from tests.fuzz.draw import (
    ACCOUNTS,
    ANEW,
    DAMAGED,
    DISKS,
    FEATURES,
    GROWING,
    OLD_STATES,
    ONE_WAY,
    OPERATED,
    PARTS,
    PLACES,
    PREEMPTS,
    RESERVES,
    RESHARDS,
    RESTED,
    TROUBLES,
    VIEWS,
    draw,
)
from tests.fuzz.planting import BUGS, plant, search
from tests.fuzz.play import Result, play
from tests.fuzz.shrink import shrink

SEEDS, FEWER, CHUNK = 50, 20, 10
KINDS = (
    ANEW,
    PARTS,
    RESERVES,
    VIEWS,
    OLD_STATES,
    ONE_WAY,
    RESHARDS,
    OPERATED,
    ACCOUNTS,
    PREEMPTS,
    GROWING,
    RESTED,
    DISKS,
    DAMAGED,
    PLACES,
)
FIRSTS = [*range(0, SEEDS, CHUNK), *[first for kind in KINDS for first in range(kind, kind + FEWER, CHUNK)]]
FOUND = {  # a seed that failed once, and what was wrong
    3474: "a second name for a result that was taken back, and made elsewhere",
    20468: "bytes that stayed counted when a client died while its island changed its epoch",
    100544: "credits promised to a sender that is gone",
    102560: "a launch that was abandoned while it was held",
    400075: "a put that waited for memory on a host that left meanwhile",
    2000025: "two names of one buffer, of both of which a view is made",
    2000036: "a second name that its client had released, for which only a view waits",
    17322995: "an array that was freed after a restart, and a view of it that its client did not name any more",
    17300637: "an array that was given away in the turn in which a view of it was freed",
    17300930: "an array that was lost with a host, and a view of it whose free was lost, too",
    103465: "a buffer in host memory, of which a restarted controller thought that it was on the devices",
    31000446: "an array that only a view kept when its name had got a copy, and that was to be copied once more",
    18200292: "an array that a restarted controller gave its client when a host that has it had just left",
    34020042: "an array that came back after its slice was released, and that a drain had go elsewhere meanwhile",
}
PAGE = Path(__file__).parent / "fuzz" / "planted.md"
ROW = re.compile(r"^\| ([^|]+?)(?: \(from seed \d+\))? \| ([^|]+?) \| (\d+) \|$", re.MULTILINE)
FOUND_BY = {name: (kind, int(seeds)) for name, kind, seeds in ROW.findall(PAGE.read_text())}


def judge(case: Case) -> Result:
    result = play(case)
    told = f"{result.kind}: {result.text}\n{result.stack}"
    assert result.good, f"`python -m tests.fuzz --seed {case.seed}` says: {told}"
    return result


@pytest.mark.parametrize("first", FIRSTS)
def test_no_seed_breaks_a_promise(first: int) -> None:
    for seed in range(first, first + CHUNK):
        judge(draw(seed))


@pytest.mark.parametrize("seed", FOUND, ids=FOUND.values())
def test_bugs_that_were_found_once_stay_fixed(seed: int) -> None:
    judge(draw(seed))


@pytest.mark.full
@pytest.mark.parametrize("first", [start for first in (10_000, *KINDS) for start in range(first, first + 4_000, 100)])
def test_no_seed_of_many_breaks_a_promise(first: int) -> None:
    for seed in range(first, first + 100):
        judge(draw(seed))


@pytest.mark.parametrize("seed", range(0, 100, 20))
def test_a_seed_is_one_case_and_a_case_is_one_history(seed: int) -> None:
    """To the last line of the diary, and to one more random draw."""
    assert draw(seed) == draw(seed)
    one, other = play(draw(seed), diary=True), play(draw(seed), diary=True)
    assert one.digest == other.digest
    assert one.diary == other.diary


def test_some_seeds_have_no_faults_and_others_have_many() -> None:
    firsts = (*range(0, 200, 50), ANEW, PARTS, VIEWS, OLD_STATES, OPERATED, GROWING)
    cases = [draw(seed) for first in firsts for seed in range(first, first + 50)]
    weather = [{type(action).__name__ for action in case.actions} for case in cases]
    kinds = set.union(*weather)
    assert kinds == {kind.__name__ for kind in Action.__subclasses__()}
    troubled = sum(CrashHost.__name__ in each or Restart.__name__ in each for each in weather)
    assert 30 < troubled < 150
    assert len(TROUBLES) >= 10
    assert len(FEATURES) >= 10


def test_a_failing_case_is_shrunk_to_the_actions_that_make_it_fail() -> None:
    case = draw(0)
    assert len(case.actions) > 10

    def runs(smaller: Case) -> Result:
        """Fails if and only if the third and the fifth action are both there."""
        needed = {case.actions[2], case.actions[4]}
        return Result("broken") if needed <= set(smaller.actions) else Result()

    assert shrink(case, "broken", runs=runs).actions == (case.actions[2], case.actions[4])


@pytest.mark.parametrize("name", BUGS)
def test_the_seed_that_the_page_names_finds_the_planted_bug(name: str) -> None:
    """The line at which an exception comes may move."""
    kind, seeds = FOUND_BY[name]
    case = draw(BUGS[name].first + seeds - 1)
    with plant(name):
        assert play(case).kind.partition(":")[0] == kind.partition(":")[0]
    if case.seed - case.seed % CHUNK not in FIRSTS:  # else it is judged above, without the bug
        judge(case)


@pytest.mark.full
@pytest.mark.parametrize("name", BUGS)
def test_every_planted_bug_is_found_within_600_seeds(name: str) -> None:
    needed, _ = search(name, seeds=600)
    assert needed


def test_a_planted_bug_is_gone_afterwards() -> None:
    with plant("lost free"):
        assert not play(draw(0)).good
    judge(draw(0))


def test_there_are_many_planted_bugs_and_each_has_a_description() -> None:
    assert len(BUGS) >= 20
    assert all(bug.sentence for bug in BUGS.values())
    assert set(FOUND_BY) == set(BUGS)
