"""`python -m tests.backend.door.libraries [NAME ...]`: programs of libraries from PyPI, local and through a door.

A line for each: whether both print the same, and what the door's run took of the local one's, imports left out. What is
not installed is left out, by name; `--pip` prints what to install (add `--no-deps` to keep JAX's version). The exit
status is 1 if a program failed, or printed something else.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from importlib.util import find_spec

from experiments.bench.frame import processes
from experiments.bench.frame.door_server import on_cluster, opened

from ..program_runs import Ended, python
from .programs import PACKAGES, PROGRAMS

DEVICES = 8
PROGRAM = "tests.backend.door.libraries.programs"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.backend.door.libraries")
    parser.add_argument("names", nargs="*", choices=[[], *PROGRAMS])
    parser.add_argument("--cluster", action="store_true", help="the door's devices are those of two hosts")
    parser.add_argument("--pip", action="store_true", help="print what to install")
    given = parser.parse_args()
    if given.pip:
        print(" ".join(sorted({*PACKAGES.values()})))
        return 0
    failed = ran = 0
    with ExitStack() as stack:
        door = stack.enter_context(on_cluster()).door if given.cluster else stack.enter_context(opened(DEVICES))
        for name in given.names or PROGRAMS:
            if find_spec(name) is None:
                print(f"{name}: not installed (pip install {PACKAGES[name]})")
                continue
            here, there = (python("-m", PROGRAM, name, env=env) for env in (processes.environment(DEVICES), door.env))
            said = _compared(here, there)
            print(f"{name}: {said}", flush=True)
            ran, failed = ran + 1, failed + (not said.startswith("the same"))
    print(f"{ran - failed} of {ran} libraries print the same through a door")
    return 1 if failed or not ran else 0


def _compared(here: Ended, there: Ended) -> str:
    for where, ended in (("on local devices", here), ("through the door", there)):
        if ended.code:
            return f"fails {where}: {(ended.err.strip() or 'no text').splitlines()[-1][:300]}"
    (printed, took), (also, later) = (each.out.rsplit("\n", 2)[:2] for each in (here, there))
    if printed != also:
        return f"prints {also[:200]!r}, and {printed[:200]!r} on local devices"
    return f"the same; {float(later) / float(took):.1f} times as long ({later} s)"


if __name__ == "__main__":
    sys.exit(main())
