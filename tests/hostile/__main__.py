"""`python -m tests.hostile`: look for files that break the law. What is drawn follows from the seed."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from .hunting import hunt, keep_one


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.hostile", description=__doc__)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", default=[], help="only this kind; may be repeated")
    parser.add_argument("--file", type=int, help="open this one again, with the same --seed and --kind")
    parser.add_argument("--keep", type=Path, help="the folder in which --file keeps what it made")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        from .kinds import KINDS
        from .opening import play

        play(given.seed, iter(range(given.first, given.first + given.files)), given.kind or list(KINDS), given.keep)
        return 0
    if given.file is not None:
        keep_one(given.seed, given.file, given.kind, given.keep or Path(f"hostile-{given.seed}-{given.file}"))
        return 0
    begun, counts = time.monotonic(), Counter[str]()
    for found in hunt(given.seed, given.first, given.files, given.kind):
        counts[found.how] += 1
        if found.wrong:
            counts["wrong"] += 1
            print(f"file {found.number} of seed {given.seed}, {found.kind}: {found.wrong}", flush=True)
    print(
        f"{given.files} files: {counts['opened']} opened, {counts['refused']} refused, {counts['wrong']} dealt with "
        f"wrongly; {time.monotonic() - begun:.0f} s"
    )
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
