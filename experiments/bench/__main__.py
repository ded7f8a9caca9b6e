"""`python -m experiments.bench [NAME ...]`: print figures, each against a named baseline in the same run.

No names: all of them. Machines are shared and noisy, so figures are medians of CPU time, and ratios.
"""

from __future__ import annotations

import sys
from importlib import import_module

BENCHES = {
    "events": "events handled per CPU second by the controller and by an executor",
    "scheduling": "gangs ordered per CPU second; early dispatch against idle islands",
    "lowering": "a program of 1,000 nodes over 8, 2,048 and 100,000 devices",
    "simulator": "gang steps per CPU second at 64 to 25,000 hosts, against a naive SimPy model",
    "control": "the control plane over real gRPC at 16 to 512 hosts: controller CPU a gang, tree against flat",
    "traces": "what recording costs, and how traces grow",
    "real": "fig 5 on real CPU devices: steps a second against multi-controller JAX, and each thread's CPU time",
    "fuzzing": "fuzz seeds per minute",
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are: {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    for name in names or BENCHES:
        print(f"== {name}: {BENCHES[name]}", flush=True)
        try:
            bench = import_module(f"{__package__}.{name}")
        except ModuleNotFoundError as missing:
            if missing.name is None or missing.name.split(".")[0] != "tests":
                raise
            print("it runs what is in tests/, which is not installed: run it in a checkout", file=sys.stderr)
            return 2
        bench.main()
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
