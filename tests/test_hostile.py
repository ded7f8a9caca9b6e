"""The law on files from strangers: some hundreds each time, always the same; ten thousand new ones under `full`; and it
notices each reader that breaks it. Longer hunts: `python -m tests.hostile --files 100000 --seed 7`."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections import Counter

import pytest

from tests.hostile.hunting import hunt
from tests.hostile.kinds import KINDS
from tests.hostile.planted import PLANTED
from tests.hostile.watching import ROOT

FILES, FULL, PARTS = 10 * len(KINDS), 10_000, 4


def judged(seed: int, files: int) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for found in hunt(seed, 0, files):
        assert not found.wrong, (
            f"`python -m tests.hostile --seed {seed} --file {found.number}`, {found.kind}: {found.wrong}"
        )
        counts[found.kind][found.how] += 1
    return counts


def test_a_file_gives_one_error_that_names_it_or_what_it_says_and_nothing_else_happens() -> None:
    for kind, counts in judged(1, FILES).items():
        assert counts.total() == FILES // len(KINDS)
        assert counts["opened" if KINDS[kind].ignored else "refused"] > 2, f"{kind}: {counts}"


@pytest.mark.full
@pytest.mark.parametrize("part", range(PARTS))
def test_ten_thousand_new_files(part: int) -> None:
    judged(secrets.randbelow(10**9), FULL // PARTS)


def test_each_reader_that_breaks_the_law_is_noticed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.planted"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == set(PLANTED)
    for name, (_, said) in PLANTED.items():
        assert found[name].startswith(said), f"{name}: {found[name]}"
