"""`python -m experiments.gpu [--out FILE.json]`: runs on the GPUs of this machine what docs/gpus.md tells of.

It measures products of matrices, three clients that share a GPU by weights, an agent that is killed and started again,
the door, fig 5 beside JAX, a calibration, and predictions of real runs. Figures go into one JSON file, from which
`--show FILE.json` prints the page's table. Where there is no GPU it says so. `--platform cpu` tries the parts on a CPU.
"""

import argparse
import json
import os
import platform as machine
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import seaway as sw
from backend.devices import accelerators_here
from seaway.tools.calibrating import calibrate

from .bench.door import door
from .bench.frame import processes
from .bench.frame.deployed import deployed
from .bench.frame.options import Options, Platform
from .bench.prediction import prediction
from .bench.prediction.table import distribution
from .bench.real import real

WEIGHTS = {"ann": 1, "bob": 2, "cat": 1}
AHEAD = 6  # calls of a client that it does not wait for
PRODUCTS = 200
BOUND = 300.0  # seconds for a process of plain JAX
SHARE = "0.3"  # of a GPU's memory, for each process that has it at once: a door, an agent and a program
Figures = dict[str, float | str]


class Given(argparse.Namespace):
    out: Path
    show: Path | None
    platform: Platform
    seconds: float
    rows: int
    cases: int
    only: list[str] | None


def main(words: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(words, Given())
    if given.show is not None:
        print(table(json.loads(given.show.read_text(encoding="utf-8"))))
        return 0
    about = accelerators_here(given.platform)
    if about is None:
        print(f"JAX finds no {given.platform} devices on this machine: nothing was measured, and nothing was written")
        return 0
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", SHARE)
    found = {"machine": _machine(about.kind, about.devices)}
    for name in given.only or PARTS:
        print(f"== {name}", flush=True)
        begun = time.perf_counter()
        try:
            found[name] = PARTS[name](given) | {"seconds": round(time.perf_counter() - begun, 1)}
        except Exception as error:  # the other parts are worth having
            found[name] = {"failed": f"{type(error).__name__}: {error}"}
        given.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(f"{table(found)}\nwrote {given.out}")
    return int(any("failed" in part for part in found.values()))


def _parser() -> Options:
    assert __doc__
    parser = Options(prog="python -m experiments.gpu", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--out", type=Path, default=Path("gpu.json"), metavar="FILE", help="the figures (%(default)s)")
    add("--show", type=Path, metavar="FILE", help="print the table of such a file, and run nothing")
    add("--platform", choices=("cuda", "cpu"), default="cuda", help="kind of devices (%(default)s)")
    add("--seconds", type=float, default=20.0, help="that the three clients call (%(default)g)")
    parser.number("--rows", 4096, "rows of matrices")
    parser.number("--cases", 12, "predicted runs")
    add("--only", nargs="+", choices=list(PARTS), metavar="PART", help=f"of {', '.join(PARTS)}")
    return parser


def _machine(kind: str, devices: int) -> Figures:
    versions = {name: metadata.version(name) for name in ("jax", "jaxlib")}
    return {
        "date": time.strftime("%Y-%m-%d"), "devices": f"{devices} x {kind}", "cores": os.cpu_count() or 1,
        "python": machine.python_version(), **versions,
    }  # fmt: skip


def table(found: dict[str, Figures]) -> str:
    """A Markdown table of all figures."""
    lines = [f"| {' | '.join(row)} |" for row in (("part", "figure", ""), ("---", "---", "---:"))]
    for part, figures in found.items():
        for name, value in figures.items():
            lines.append(f"| {part} | {name} | {value if isinstance(value, str) else f'{value:,.5g}'} |")
    return "\n".join(lines)


# --- the parts --------------------------------------------------------------------------------------------------------


def multiplied(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.tanh(x @ x)


def products(given: Given) -> Figures:
    """One after another, in a session and in plain JAX."""
    x = np.eye(given.rows, dtype=np.float32)
    with sw.local(platform=given.platform):
        ours = timed_products(sw.jit(multiplied, devices=1), x)
    env = processes.environment(1, given.platform)
    return {"Seaway, ms": ours, "JAX, ms": processes.answer(plain_products, given.rows, env=env, bound=BOUND)["ms"]}


def plain_products(rows: int) -> dict[str, float]:
    import jax

    return {"ms": timed_products(jax.jit(multiplied), np.eye(rows, dtype=np.float32))}


def timed_products(step: Callable[[Any], Any], x: Any) -> float:
    """Milliseconds of PRODUCTS calls, each with the last one's result."""
    x = step(step(x))
    x.block_until_ready()
    begun = time.perf_counter()
    for _ in range(PRODUCTS):
        x = step(x)
    x.block_until_ready()
    return 1e3 * (time.perf_counter() - begun)


def clients(given: Given) -> Figures:
    """Shares of the time in which all of them have work."""
    step = sw.jit(multiplied, devices=1)
    with sw.local(platform=given.platform, policy="stride") as s:

        def calls(name: str, weight: int) -> None:
            with s.client(name, weight=weight):
                x: Any = np.eye(given.rows // 2, dtype=np.float32)
                ahead, until = deque[sw.Array](), time.monotonic() + given.seconds
                while time.monotonic() < until:
                    x = step(x)
                    ahead.append(x)
                    if len(ahead) > AHEAD:
                        ahead.popleft().block_until_ready()

        threads = [threading.Thread(target=calls, args=each) for each in WEIGHTS.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        trace = s.trace
        together = trace.contended
        busy = trace.utilization("total", window=together).iloc[0]["busy_fraction"]
        shares = {
            f"{row['client']}, weight {row['weight']}": row["got_share"]
            for row in trace.clients(together).to_dict("records")
        }
    return {"gangs": float(len(trace.gangs())), "busy": busy, **shares}


def healing(given: Given) -> Figures:
    """The agent is killed under a program, which hears of it, and started again."""
    x: Any = np.eye(given.rows, dtype=np.float32)
    with deployed(1, controller=("--lease", "10"), platform=given.platform) as cluster, sw.connect(cluster.address):
        step = sw.jit(multiplied, devices=1)
        step(x).block_until_ready()
        cluster.agents[0].process.kill()
        heard = "nothing"
        begun = time.perf_counter()
        try:
            while True:
                x = step(x)
                x.block_until_ready()
        except sw.errors.RunError as error:
            heard = f"[{error.code}]"
        told = time.perf_counter() - begun
        cluster.again(0)
        cluster.wait()
        step(np.eye(given.rows, dtype=np.float32)).block_until_ready()
        return {"error": heard, "told after, s": told, "runs again after, s": time.perf_counter() - begun}


def through_the_door(given: Given) -> Figures:
    found = door.main(["--platform", given.platform, "--devices", "1", "--hosts", "1", "--rounds", "1"])
    return {f"{name}: {where}": value for where, each in found.items() for name, value in each.items()}


def fig5(given: Given) -> Figures:
    return {**real.shown(1, 1, 3, platform=given.platform)}


def calibration(given: Given) -> Figures:
    hosts = 1 if given.platform == "cuda" else 2
    found = calibrate(platform=given.platform, hosts=hosts, quick=given.platform == "cpu")
    return {f"{figure.name} (spread {figure.spread:.0%})": figure.text for figure in found.figures}


def predictions(given: Given) -> Figures:
    """Errors at the speed that the machine had, of figures whose repeats are within 10 %."""
    with TemporaryDirectory() as folder:
        quick = ["--quick"] if given.platform == "cpu" else []
        rows = prediction.main(["--platform", given.platform, "--cases", str(given.cases), "--out", folder, *quick])
    found = distribution([row.off for row in rows if not row.noisy])
    if found is None:
        return {"figures": float(len(rows)), "quiet": 0.0}
    return {"figures": float(len(rows)), "quiet": float(found.rows), "median": found.median, "95 %": found.last}


PARTS: dict[str, Callable[[Given], Figures]] = {
    "products": products, "clients": clients, "healing": healing, "door": through_the_door, "real": fig5,
    "calibration": calibration, "prediction": predictions,
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())
