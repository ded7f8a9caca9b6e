"""Measures fuzz seeds per minute of CPU, and the cost of checking every invariant after every event.

The baseline runs the same seeds without the checkers, but with the checks at the end.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ..frame.measuring import cpu_seconds, medians
from ..frame.table import Table

FIRST, SEEDS, ROUNDS = 0, 60, 3


def main() -> None:
    try:
        from tests.fuzz.draw import draw
        from tests.fuzz.play import play
    except ModuleNotFoundError:
        print(f"the fuzzer is in tests/, which is not at {Path.cwd()}: run this from a checkout")
        return
    cases = [draw(seed) for seed in range(FIRST, FIRST + SEEDS)]
    results = [play(case, check=True) for case in cases]
    events = sum(result.events for result in results)
    if failed := [case.seed for case, result in zip(cases, results, strict=True) if not result.good]:
        print(f"seeds {failed} fail: python -m tests.fuzz --seed {failed[0]}")

    def seconds(check: bool) -> float:
        return cpu_seconds(lambda: [play(case, check=check) for case in cases])

    took = medians(ROUNDS, {check: partial(seconds, check) for check in (False, True)})
    table = Table(" <34", "seeds/min >10,.0f", "events/s >10,.0f", "x checks off >14.2f")
    table.begin(f"seeds {FIRST}-{FIRST + SEEDS - 1}, median of {ROUNDS}; a minute is one of CPU")
    for name, check in (("checks off", False), ("all invariants, every event", True)):
        table.row(name, 60 * SEEDS / took[check], events / took[check], took[check] / took[False])
