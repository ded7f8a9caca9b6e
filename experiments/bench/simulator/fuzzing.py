"""Measures fuzz seeds per minute of CPU, and the cost of checking every invariant after every event.

The baseline runs the same seeds without the checkers, but with the checks at the end.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

FIRST, SEEDS, ROUNDS = 0, 60, 3


def main() -> None:
    try:
        from tests.fuzz.draw import draw
        from tests.fuzz.play import play
    except ModuleNotFoundError:
        print(f"the fuzzer is in tests/, which is not at {Path.cwd()}: run this from a checkout")
        return
    cases = [draw(seed) for seed in range(FIRST, FIRST + SEEDS)]
    spent: dict[bool, list[float]] = {False: [], True: []}
    events = 0
    for _ in range(ROUNDS):
        for check, found in spent.items():
            start = time.process_time()
            results = [play(case, check=check) for case in cases]
            found.append(time.process_time() - start)
            events = sum(result.events for result in results)
            failed = [case.seed for case, result in zip(cases, results, strict=True) if not result.good]
            if failed:
                print(f"seeds {failed} fail: python -m tests.fuzz --seed {failed[0]}")
    base = median(spent[False])
    print(f"seeds {FIRST}-{FIRST + SEEDS - 1}, median of {ROUNDS}; a minute is one of CPU")
    print(f"{'':34}{'seeds/min':>10}{'events/s':>10}{'x checks off':>14}")
    for name, check in (("checks off", False), ("all invariants, every event", True)):
        took = median(spent[check])
        print(f"{name:34}{60 * SEEDS / took:>10,.0f}{events / took:>10,.0f}{took / base:>14.2f}")
