"""Search for seeds with which core breaks an invariant: `python -m tests.fuzz --seeds 10000 [--first S] [-v]`.

The first seed that fails is printed with the smallest list of actions that fails too, and the last lines of its diary.
`--seed N` repeats one seed exactly. `--planted` prints the table of planted bugs, with the number of seeds that it
takes to find each.
"""

from __future__ import annotations

import argparse
import sys
from time import process_time

from . import planted, planted_anew, planted_disks, planted_growth, planted_moves, planted_places, planted_reserving  # noqa: F401
from .case import Case, describe
from .draw import draw
from .planting import table
from .play import Result, play
from .shrink import shrink

TWICE = 20  # every 20th seed is run twice, and must give the same result


def main() -> int:
    args = _arguments()
    if args.planted:
        for line in table(args.seeds):
            print(line, flush=True)
        return 0
    without = frozenset(filter(None, args.without.split(",")))
    if args.seed is not None:
        case = draw(args.seed, without)
        result = play(case, diary=True)
        if args.verbose:
            print("\n".join(result.diary))
        if result.good:
            again = play(case, diary=True)
            print(f"seed {args.seed}: good, {result.events} events, hash {result.digest}")
            return _same(args.seed, result, again)
        report(case, result, args.shrink, args.lines)
        return 1
    return _many(args, without)


def _many(args: argparse.Namespace, without: frozenset[str]) -> int:
    start, failed = process_time(), 0
    kinds: dict[str, list[int]] = {}
    events = 0
    for seed in range(args.first, args.first + args.seeds):
        case = draw(seed, without)
        result = play(case)
        events += result.events
        if result.good and seed % TWICE == 0 and _same(seed, result, play(case)):
            return 1
        if args.verbose:
            print(f"seed {seed}: {result.kind or 'good'}, {result.events} events", flush=True)
        if not result.good:
            failed += 1
            kinds.setdefault(result.kind, []).append(seed)
            if not args.go_on:
                report(case, result, args.shrink, args.lines)
                return 1
    spent = process_time() - start
    print(f"{args.seeds} seeds, {failed} failed, {events} events, {60 * args.seeds / spent:.0f} seeds a minute of CPU")
    for kind, seeds in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"{len(seeds):5}  {kind}: {', '.join(map(str, seeds[:8]))}")
    return 1 if failed else 0


def _same(seed: int, one: Result, other: Result) -> int:
    if one.digest == other.digest:
        return 0
    print(f"seed {seed} is not deterministic: {one.digest}, then {other.digest}")
    return 1


def report(case: Case, result: Result, seconds: float, lines: int) -> None:
    print(f"seed {case.seed}: {result.kind}: {result.text}")
    small = shrink(case, result.kind, seconds) if seconds else case
    result = play(small, diary=True)
    print(
        f"shrunk to {len(small.actions)} of {len(case.actions)} actions; again: python -m tests.fuzz --seed {case.seed}"
    )
    print(f"  {small.setup}")
    used = {action.program for action in small.actions if hasattr(action, "program")}
    for number in sorted(used):
        print(f"  program {number}: {small.programs[number]}")
    for action in small.actions:
        print(f"  {describe(action)}")
    print("then:")
    print("\n".join(result.diary[-lines:] if lines else ()))
    print(f"seed {case.seed}, shrunk: {result.kind}: {result.text}")
    if result.stack:
        print(result.stack)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run only this seed, with its diary")
    parser.add_argument(
        "--planted", action="store_true", help="print the table of planted bugs; search each in --seeds seeds"
    )
    parser.add_argument("--go-on", action="store_true", help="count failures by kind instead of stopping")
    parser.add_argument("--without", default="", help="features and troubles to leave out: names, separated by commas")
    parser.add_argument("--shrink", type=float, default=30.0, help="seconds of CPU for shrinking")
    parser.add_argument("--lines", type=int, default=40, help="lines of the diary to print after a failure")
    parser.add_argument("-v", "--verbose", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
