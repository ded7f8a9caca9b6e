"""`seaway simulate program.py`: runs a user's unchanged program on a simulated cluster, as one client or many."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from backend.server import HELP, policy_from
from core.schedule.policy import POLICIES, Policy

from ..errors import SessionClosed
from ..wording import duration, plural

if TYPE_CHECKING:
    from ..sessions import Session


# --- copies of a program ----------------------------------------------------------------------------------------------


class Copy:
    """One copy of the program. Call it to run it."""

    def __init__(self, path: Path, code: CodeType, weight: int) -> None:
        self.path, self.weight = path, weight
        self.raised: BaseException | None = None
        self._code = code
        self.module = ModuleType("__main__")
        self.module.__file__ = str(path)
        self.module.__dict__["__builtins__"] = __builtins__

    def __call__(self) -> None:
        try:
            exec(self._code, self.module.__dict__)
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                self.raised = leaving
                raise
        except SessionClosed:
            raise
        except BaseException as error:
            self.raised = error
            raise

    def show(self, error: BaseException) -> None:
        """Print the traceback, from the program's own first line on."""
        where = error.__traceback__
        while where is not None and where.tb_frame.f_code is not self._code:
            where = where.tb_next
        traceback.print_exception(type(error), error, where or error.__traceback__, file=sys.stderr)


def load(path: Path, arguments: list[str], weights: list[int]) -> list[Copy]:
    """Compile the program and make a copy for each weight.

    All copies share sys.argv and sys.path. `sys.modules["__main__"]` is the first copy's module.
    """
    if not path.is_file():
        there = sorted(found.name for found in path.parent.glob("*.py"))[:8]
        raise ValueError(f"there is no program {path}" + (f"; there is {', '.join(there)}" if there else ""))
    code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
    copies = [Copy(path, code, weight) for weight in weights]
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules["__main__"] = copies[0].module
    return copies


MOST = 4096  # copies
WEIGHTED = "stride"  # the policy that uses weights
NOTHING = "no gangs ran in this session; does the program open a session of its own?"


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "simulate",
        help="run a program on a simulated cluster",
        description="Runs PROGRAM as __main__ in a simulated session, and prints what its devices and clients did.",
        epilog="The program's own arguments come after `--`. "
        "Example: seaway simulate step.py --cluster A --policy stride:1,2,4,8",
    )
    parser.add_argument("program", type=Path, help="a Python file")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same trace (default: 0)")
    add_simulated(parser)
    who = parser.add_argument_group("who runs it").add_argument
    who("--clients", type=int, metavar="N", help="run N copies of the program, each as a client")
    who("--policy", default="fifo", help=f"{HELP}; or weights, one for each client (stride:1,2,4,8)")
    out = parser.add_argument_group("what is kept").add_argument
    out("--save", type=Path, metavar="FOLDER", help="save the trace, as Parquet")
    out("--plot", type=Path, metavar="FILE", help="plot the timeline of some devices: .png, .svg, .pdf")
    out("--perfetto", type=Path, metavar="FILE", help="write Chrome trace JSON, for ui.perfetto.dev")
    out("--quiet", action="store_true", help="print only what the program prints")
    parser.set_defaults(run=run)


def add_simulated(parser: argparse.ArgumentParser) -> None:
    """Declare what `opened` reads."""
    where = parser.add_argument_group("what is simulated").add_argument
    where("--cluster", default="A", help="A, B, C, v4-512, 2xv3-1024, ..., or a TOML file (default: A)")
    where("--hosts", type=int, help="hosts on each island, instead of the cluster's")
    where("--islands", type=int, help="islands, instead of the cluster's")
    where("--profile", help="host costs: paper, seaway, ideal, or a TOML file (default: the cluster file's, or paper)")
    where("--fidelity", choices=("cohort", "exact"), default="cohort", help="default: cohort")
    where("--dispatch", choices=("parallel", "sequential"), default="parallel", help="default: parallel")
    where("--noise", default="", metavar="KEY=VALUE,...", help="latency=5us,compute=0.05,stragglers=0.01")
    what = parser.add_argument_group("what it computes").add_argument
    what("--values", choices=("shapes", "compute"), default="shapes",
                      help="contents: none, or computed on this machine's CPU (default: shapes)")  # fmt: skip
    what("--value", action="append", default=[], metavar="NAME=NUMBER",
                      help="a stand-in for a result, by name: train.loss=0.5; may be repeated")  # fmt: skip
    what(
        "--costs",
        default="estimate",
        help="for computations without a cost: estimate, roofline, or a time such as 1ms (default: estimate)",
    )
    what("--sizes", help="rows that irregular computations make: a number, or a fraction like 0.25")


def run(given: argparse.Namespace) -> int:
    policy, weights = weights_of(given.policy, given.clients)
    make = policy_from(policy)
    copies = load(given.program, given.own, weights)
    session = opened(given, make)
    failed, interrupted = None, False
    try:
        with session:
            _run_all(session, copies)
    except KeyboardInterrupt:
        interrupted = True
    except SystemExit as leaving:
        failed = leaving.code
    except Exception as error:
        if not any(copy.raised is error for copy in copies):
            raise
        failed = 1
        copies[0].show(error)
    if not given.quiet:
        _report(session, interrupted)
    if not (failed or interrupted or len(session.trace.core)):
        print(f"seaway: {NOTHING}", file=sys.stderr)
    _keep(session, given)
    if interrupted:
        return 130
    return failed if isinstance(failed, int) else int(bool(failed))


def weights_of(policy: str, clients: int | None) -> tuple[str, list[int]]:
    """(policy, weights of clients): `stride:1,2,4,8` has four weights. Other text is the policy's options."""
    if policy.rpartition(":")[0].endswith(".py"):
        return policy, [1] * _many(clients)
    name, _, rest = policy.partition(":")
    numbers = [part.strip() for part in rest.split(",")]
    if not any(part[:1].isdigit() or part[:1] == "-" for part in numbers):
        return policy, [1] * _many(clients)
    if not all(part.isdigit() for part in numbers):
        raise ValueError(
            f"--policy {policy}: after the colon, give weights, whole numbers like {name}:1,2,4, or the policy's "
            f"options, like stride:lead=3"
        )
    if name != WEIGHTED and name in POLICIES:
        raise ValueError(
            f"--policy {policy}: {name} does not use weights, {WEIGHTED} does; for {len(numbers)} equal clients, "
            f"--policy {name} --clients {len(numbers)}"
        )
    weights = [int(part) for part in numbers]
    if 0 in weights:
        raise ValueError(f"--policy {policy}: a weight is at least 1")
    if clients is not None and clients != len(weights):
        raise ValueError(
            f"--policy {policy} has {len(weights)} weights, and --clients is {clients}; leave --clients out"
        )
    return name, weights


def _many(clients: int | None) -> int:
    if clients is not None and not 1 <= clients <= MOST:
        raise ValueError(f"--clients {clients}: from 1 to {MOST}")
    return clients or 1


def opened(given: argparse.Namespace, policy: Callable[[], Policy], progress: bool | None = None) -> Session:
    from ..sessions.simulated import simulate

    changes = {key: getattr(given, key) for key in ("hosts", "islands") if getattr(given, key) is not None}
    values: Any = given.values
    if given.value:
        values = {name: float(value) for name, value in (pair(text, "--value") for text in given.value)}
    pairs = dict(pair(text, "--noise") for text in given.noise.split(",") if text)
    noise: Any = {key: number(value) for key, value in pairs.items()} or None
    sizes = None if given.sizes is None else number(given.sizes)
    return simulate(
        given.cluster, policy=policy, profile=given.profile, values=values, sizes=sizes,
        costs=given.costs, seed=given.seed, fidelity=given.fidelity, dispatch=given.dispatch,
        noise=noise, progress=progress, **changes,
    )  # fmt: skip


def pair(text: str, option: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"{option} {text}: write NAME=VALUE")
    return name.strip(), value.strip()


def number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text  # perhaps with a unit, which the option's reader checks


def _run_all(session: Session, copies: list[Copy]) -> None:
    name = copies[0].path.stem
    names = [name] if len(copies) == 1 else [f"{name}-{at}" for at in range(len(copies))]
    tasks = [session.spawn(copy, name=each, weight=copy.weight) for copy, each in zip(copies, names, strict=True)]
    for task in tasks:
        task.join()


def _report(session: Session, interrupted: bool) -> None:
    print(f"\n{session.driver.title}")
    took = f"simulated {duration(session.driver.now())}"
    print(f"interrupted: what was simulated until then, {took}" if interrupted else took)
    print(session.trace.summary())


def _keep(session: Session, given: argparse.Namespace) -> None:
    trace, kept = session.trace, []
    if (given.plot or given.perfetto) and not len(trace.core):
        print("seaway: no gang ran, so there is nothing to draw", file=sys.stderr)
        return
    if given.save:
        kept.append(trace.save(given.save))
    if given.plot:
        trace.plot().savefig(given.plot)
        kept.append(given.plot)
    if given.perfetto:
        from ..trace import perfetto

        kept.append(trace.perfetto(given.perfetto))
        devices = len(trace.facts().devices)
        if not given.quiet and devices > perfetto.MOST:
            print(f"{given.perfetto} has {perfetto.MOST} of {devices:,} devices, some of every group that ran the same "
                  'gangs; for all: trace.perfetto(..., devices="all")')  # fmt: skip
    if kept and not given.quiet:
        print(f"wrote {plural(len(kept), 'file')}: {', '.join(map(str, kept))}")
