"""`JAX_TESTS=FOLDER python -m tests.backend.door.jax_suite [FILE ...]`: JAX's own tests, through the door.

FOLDER has the files, or a folder of them for each version. What does not pass through the door is run again on local
devices; only tests that pass there count. The exit status is 1 if a test fails that is not in `expected_failures.toml`,
or if a test in there passes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax

from . import files, outcomes
from .files import Unusable


def folder(version: str = jax.__version__) -> Path:
    """The folder with the tests of this version of JAX, as the variable JAX_TESTS names it."""
    given = os.environ.get("JAX_TESTS", "")
    if not given:
        raise Unusable("JAX_TESTS names no folder: it must have JAX's files *_test.py of the installed version")
    found = Path(given).resolve()
    fitting = [each for each in found.glob("*/") if version == each.name or version.startswith(f"{each.name}.")]
    found = max([found, *fitting], key=lambda each: len(each.parts))
    if not any(found.glob("*_test.py")):
        raise Unusable(f"JAX_TESTS={given}: no files *_test.py there, nor in a folder {version}")
    return found


def run(file: Path, every: int, cluster: bool = False) -> outcomes.Judged:
    """Run the tests of a file through a door (cluster: to a cluster), and locally those that did not pass there."""
    through = files.run(file, through=True, cluster=cluster, every=every)
    open_ = [each.test for each in through if each.kind != "passed"]
    local = files.run(file, through=False, wanted=open_) if open_ else []
    patterns = outcomes.patterns_of(outcomes.entries(), jax.__version__)
    return outcomes.judge(file.name, through, local, patterns, complete=every == 1)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.backend.door.jax_suite", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="FILE", help="files to run, such as array_test.py (all)")
    parser.add_argument("--every", type=int, default=1, help="run every k-th test (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="files at a time (%(default)s)")
    parser.add_argument("--cluster", action="store_true", help="a cluster of two hosts is behind the door")
    chosen = parser.parse_args(words)
    try:
        there = folder()
        paths = sorted(there.glob("*_test.py"))
        if unknown := set(chosen.names) - {path.name for path in paths}:
            raise Unusable(f"{there} has no {sorted(unknown)[0]}; it has {', '.join(path.name for path in paths)}")
        paths = [path for path in paths if not chosen.names or path.name in chosen.names]
        judged = []
        with ThreadPoolExecutor(chosen.jobs) as pool:
            for each in [pool.submit(run, path, chosen.every, chosen.cluster) for path in paths]:
                judged.append(each.result())
                print(f"{each.result().file}: {each.result().passed} of {each.result().counts}", flush=True)
    except Unusable as why:
        print(why, file=sys.stderr)
        return 2
    print("\n".join(outcomes.report(judged, outcomes.entries())))
    return 1 if any(each.unexpected or each.idle for each in judged) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
