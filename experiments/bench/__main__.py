"""`python -m experiments.bench [NAME ...] [OPTIONS]`: run benchmarks and print figures, each beside a named baseline.

Without names all benchmarks run. After one name, options are that benchmark's (`python -m experiments.bench order
--help`). Baselines run in the same run. Machines are shared and noisy, so figures are medians of CPU time, and ratios.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import takewhile
from types import ModuleType

PACKAGES = {  # each benchmark's module has its name
    "real": {
        "real": "fig 5 on CPU devices: steps a second against multi-controller JAX",
        "order": "why gangs need one order: collectives without it, and 10,000 gangs of 4 clients with it",
        "elastic": "a client moves to other devices, is suspended and resumed: against copying its arrays",
        "transfers": "an array from host to host and back, against a raw socket",
    },
    "simulator": {
        "simulator": "gang steps per CPU second at 64 to 25,000 hosts, against a naive SimPy model",
        "jobs": "policies of jobs, against pools that are simulated on their own; and CPU time, against its aims",
    },
    "prediction": {
        "prediction": "the calibrated simulator's predictions, against real runs that it has not seen",
        "whatif": "changes that `seaway whatif` foretells from a record, against real runs under both settings",
    },
    "door": {"door": "an unmodified JAX program through the door: calls, contents, compilation, against local devices"},
}
REFUSED = 2  # the exit status
BENCHES = {name: what for benches in PACKAGES.values() for name, what in benches.items()}


def main(words: Sequence[str]) -> int:
    names = list(takewhile(lambda word: not word.startswith("-"), words))
    options = list(words[len(names) :])
    if options in (["-h"], ["--help"]) and not names:
        print(__doc__)
        print("\n".join(f"  {name:12}{what}" for name, what in BENCHES.items()))
        return 0
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        return _refused(f"no benchmark {unknown[0]!r}; there are: {', '.join(BENCHES)}")
    if options and len(names) != 1:
        return _refused(f"{options[0]}: name one benchmark to use its options")
    for name in names or BENCHES:
        print(f"== {name}: {BENCHES[name]}", flush=True)
        module(name).main(options)
        print()
    return 0


def module(name: str) -> ModuleType:
    package = next(package for package, benches in PACKAGES.items() if name in benches)
    return import_module(f"{__package__}.{package}.{name}")


def _refused(why: str) -> int:
    print(why, file=sys.stderr)
    return REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
