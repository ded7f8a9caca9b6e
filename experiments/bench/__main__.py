"""`python -m experiments.bench [NAME ...]`: print figures, each against a named baseline in the same run.

No names: all of them. Machines are shared and noisy, so figures are medians of CPU time, and ratios.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from . import events, fuzzing, lowering, scheduling

BENCHES: dict[str, tuple[str, Callable[[], None]]] = {
    "events": ("events handled per CPU second by the controller and by an executor", events.main),
    "scheduling": ("gangs ordered per CPU second; early dispatch against idle islands", scheduling.main),
    "lowering": ("a program of 1,000 nodes over 8, 2,048 and 100,000 devices", lowering.main),
    "fuzzing": ("fuzz seeds per minute", fuzzing.main),
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are: {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    for name in names or BENCHES:
        title, run = BENCHES[name]
        print(f"== {name}: {title}", flush=True)
        run()
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
