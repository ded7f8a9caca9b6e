"""`python -m tests.backend.door.checks [NAME ...]`: run the checks on the devices that JAX finds.

A line for each check: `name: ok`, or the error, whose traceback goes to stderr. The exit status is 1 if one failed.
"""

from __future__ import annotations

import faulthandler
import sys
import time
import traceback

from . import arrays, callbacks, parallel, placing, refusals, running
from .registry import CHECKS

MODULES = (arrays, placing, running, parallel, callbacks, refusals)
LONGEST = 120.0  # seconds for a check; then the process ends, and shows where it stood


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        print(f"no check {unknown[0]!r}; there are: {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    failed = 0
    for name in names or CHECKS:
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        begun = time.monotonic()
        try:
            CHECKS[name]()
        except Exception as error:
            failed += 1
            traceback.print_exc()
            said = (str(error).strip() or "no text").splitlines()[0][:200]
            print(f"{name}: {type(error).__name__}: {said}", flush=True)
        else:
            print(f"{name}: ok ({time.monotonic() - begun:.1f} s)", flush=True)
    faulthandler.cancel_dump_traceback_later()
    print(f"{len(names or CHECKS) - failed} of {len(names or CHECKS)} checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
