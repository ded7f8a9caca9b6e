"""What the options of benchmarks have in common: how they are read, and how a wrong one is refused.

Each benchmark that has options takes them as `main(arguments)`, and says in `--help` what they are. `--full` is there
for those whose default run is shorter than the whole.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable


def parser(name: str, text: str | None, *, full: str = "") -> argparse.ArgumentParser:
    """`text`: the module's docstring, whose first line is shown. `full`: what `--full` adds; "" for no such option."""
    found = argparse.ArgumentParser(
        prog=f"python -m experiments.bench {name}",
        description=(text or "").partition("\n")[0],
        allow_abbrev=False,
    )
    if full:
        found.add_argument("--full", action="store_true", help=full)
    return found


def least(bound: int) -> Callable[[str], int]:
    """A whole number, not below this."""

    def whole(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if number < bound:
            raise argparse.ArgumentTypeError(f"{number} is too few: at least {bound}")
        return number

    return whole


def seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} s: more than 0")
    return found
