"""Memory that is kept beside memory that is given back, tiny: agents differ in it, and ratios are right."""

from __future__ import annotations

import os

import pytest

from backend.agent.malloc import OWN, keep_what_is_freed
from experiments.bench.real import pages
from experiments.bench.real.pages import GIVEN, Took, Turn, given_back, table


def test_agents_started_in_the_block_leave_memory_to_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(GIVEN[0], raising=False)
    with given_back():
        assert os.environ[GIVEN[0]] == GIVEN[1]
        assert not keep_what_is_freed()
    assert GIVEN[0] not in os.environ
    monkeypatch.setenv(*GIVEN)
    with given_back():
        pass
    assert os.environ[GIVEN[0]] == GIVEN[1], "as it was before"
    assert GIVEN[0].startswith(OWN)


def test_medians_and_ratios_are_right() -> None:
    back = [Turn({"sum": Took(wall, 100.0)}, 10.0 * wall) for wall in (1_000.0, 2_000.0, 9_000.0)]
    kept = [Turn({"sum": Took(1_500.0, 50.0)}, 7.0)]
    _, row, most = table(back, kept).splitlines()
    assert row.split() == ["sum", "2,000", "1,500", "0.75", "100", "50", "0.50"]
    assert most.endswith("90,000 MB given back, 7 MB kept")


@pytest.mark.full
def test_everything_is_measured_on_real_hosts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pages, "PRODUCTS", (8,))
    monkeypatch.setattr(pages, "SUMS", (1 << 18,))
    monkeypatch.setattr(pages, "MOVED", (1_000_000,))
    pages.main(["--turns", "1"])
    said = capsys.readouterr().out
    rows = {
        line[:26].strip(): [float(each.replace(",", "")) for each in line[26:].split()]
        for line in said.splitlines()[1:-1]
    }
    assert list(rows) == ["product, 8 rows", "sum of arrays, 1 MiB", "hop of 1 MB"]
    for figures in rows.values():
        assert len(figures) == 6
        assert min(figures) > 0
