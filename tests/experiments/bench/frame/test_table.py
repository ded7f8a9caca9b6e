"""Tables: columns stand under their titles, in their formats."""

from __future__ import annotations

from experiments.bench.frame.options import Table

FIGURES = Table("name <8", "gangs >8,", "CPU us >9.1f", "x naive >9,.0fx", "change >+8.1%", "aim >6g")


def test_figures_stand_under_their_titles_with_their_units() -> None:
    assert FIGURES.head() == "name       gangs   CPU us  x naive  change   aim"
    assert FIGURES.line("ours", 12_345, 1.26, 1_001.2, -0.5, 0.3) == "ours      12,345      1.3   1,001x  -50.0%   0.3"


def test_text_stands_as_it_is_and_none_is_empty() -> None:
    assert FIGURES.line("ours", "-", None, 2) == "ours           -                2x"
