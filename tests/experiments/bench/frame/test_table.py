"""Tables: columns stand under their titles, in their formats."""

from __future__ import annotations

from experiments.bench.frame.options import Table
from experiments.bench.frame.processes import in_turns

FIGURES = Table("name <8", "gangs >8,", "CPU us >9.1f", "x naive >9,.0fx", "change >+8.1%", "aim >6g")


def test_figures_stand_under_their_titles_with_their_units() -> None:
    assert FIGURES.head() == "name       gangs   CPU us  x naive  change   aim"
    assert FIGURES.line("ours", 12_345, 1.26, 1_001.2, -0.5, 0.3) == "ours      12,345      1.3   1,001x  -50.0%   0.3"


def test_text_stands_as_it_is_and_none_is_empty() -> None:
    assert FIGURES.line("ours", "-", None, 2) == "ours           -                2x"


def test_works_take_turns() -> None:
    order: list[str] = []

    def work(name: str) -> int:
        order.append(name)
        return len(order)

    assert in_turns(2, {name: lambda name=name: work(name) for name in "ab"}) == {"a": [1, 3], "b": [2, 4]}  # type: ignore[misc]
    assert order == ["a", "b", "a", "b"]
