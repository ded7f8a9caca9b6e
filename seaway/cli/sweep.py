"""`seaway sweep program.py`: measures a program under policies, options and seeds, and says how sure the means are."""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from math import isfinite
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from backend.server import HELP, policy_from

from .. import __version__
from ..tools import sweeping
from ..tools.sweeping import Point, Row
from ..wording import plural
from .simulate import add_simulated, number, opened, pair

if TYPE_CHECKING:
    from concurrent.futures import Executor

OURS = ("policy", "seed")  # columns of each table, besides options and numbers
PICTURES = (".png", ".svg", ".pdf")
MOST = 1_000_000  # points


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "sweep",
        help="measure a program under policies, options and seeds",
        description="Calls `measure(seed=, ...)` of PROGRAM in a simulated session of its own for each combination of "
        "policies, options and seeds. It returns numbers: a dict, a job report, or a table of one row. Prints their "
        "means over seeds with 95 % confidence intervals, and the differences to the first policy, seed by seed.",
        epilog="Example: seaway sweep jobs.py --cluster A --policy in_turn,first_fit --set load=0.5,1 --seeds 10",
    )
    parser.add_argument("program", type=Path, help="a Python file that defines `measure`")
    what = parser.add_argument_group("what is varied").add_argument
    what("--policy", default="fifo", metavar="NAME,...", help=HELP.replace("%", "%%"))
    what("--set", action="append", default=[], metavar="NAME=VALUE,...", help="options of `measure`; may be repeated")
    what("--seeds", default="5", metavar="N", help="how many, from 0 on; or which ones: 3,5,8 (default: 5)")
    add_simulated(parser)
    how = parser.add_argument_group("where it runs").add_argument
    how("--jobs", type=int, default=0, metavar="N", help="processes (default: one for each CPU core)")
    how("--dask", default="", metavar="ADDRESS", help="the scheduler of a Dask cluster that runs it instead; its "
        "workers need Seaway and the same files")  # fmt: skip
    out = parser.add_argument_group("what is kept").add_argument
    out("--out", type=Path, metavar="FOLDER", help="rows as they come, which are not measured again when this command "
        "is given again; and table.csv and summary.csv")  # fmt: skip
    out("--show", default="", metavar="NAME,...", help="the numbers to print and plot (default: all)")
    out("--plot", type=Path, metavar="FILE", help="plot means by the first option: .png, .svg, .pdf")
    parser.set_defaults(run=run)


# --- in whichever process measures ------------------------------------------------------------------------------------


class Swept(NamedTuple):
    """What is the same for all points."""

    path: str
    program: str  # its text: it may be edited meanwhile
    simulated: dict[str, Any]  # options of the session
    policies: dict[str, str]  # by what users call them


def measured(swept: Swept, point: Point) -> Row:
    from ..sessions import text_of

    try:
        measure = _loaded(swept.path, swept.program).measure
        policy = policy_from(swept.policies[point["policy"]])
        session = opened(Namespace(**swept.simulated, seed=point["seed"]), policy, progress=False)
        with session:
            found = _numbers(measure(**{name: value for name, value in point.items() if name != "policy"}))
    except Exception as error:
        lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == swept.path]
        if lines:
            error.add_note(f"in line {lines[-1]} of {Path(swept.path).name}")
        raise
    if replaced := text_of(session.simulation.replaced):
        raise RuntimeError(replaced)
    if taken := sorted(found.keys() & point.keys()):
        raise ValueError(f"measure() returned {taken[0]!r}, which is an option: give the number another name")
    return found


def _loaded(path: str, text: str) -> ModuleType:
    """A module of its own for each point: what the program remembers is of no other."""
    folder = str(Path(path).parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = f"swept_{Path(path).stem}"
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = path
    exec(compile(text, path, "exec"), module.__dict__)
    return module


def _numbers(found: Any) -> Row:
    import numpy as np
    import pandas as pd

    from ..workload import JobReport

    found = found.summary() if isinstance(found, JobReport) else found
    if isinstance(found, pd.DataFrame) and len(found) == 1:
        found = {name: column.iloc[0] for name, column in found.select_dtypes(["number", "bool"]).items()}
    if not isinstance(found, Mapping):
        raise TypeError(
            f"measure() returned {found!r:.60}: return a dict of numbers, a job report or a table of one row"
        )
    row = {str(name): value.item() if isinstance(value, np.generic) else value for name, value in found.items()}
    for name, value in row.items():
        if not isinstance(value, int | float):
            raise TypeError(f"measure() returned {name}={value!r:.60}, which is no number")
        row[name] = +value if isfinite(value) else None
    return row


# --- the command ------------------------------------------------------------------------------------------------------


def run(given: Namespace) -> int:
    import pandas as pd

    policies = _several("--policy", re.split(r",(?![^,:]*=)", given.policy))  # not before an option of a policy
    options = dict(map(_option, given.set))
    across = next(iter(options.values()), [""])
    if given.plot and (given.plot.suffix not in PICTURES or any(isinstance(value, str) for value in across)):
        raise ValueError(f"--plot {given.plot}: a file such as means{PICTURES[0]}, by the numbers of the first --set")
    points = [dict(zip((*options, "policy", "seed"), each, strict=True))
              for each in product(*options.values(), policies, _seeds(given.seeds))]  # fmt: skip
    swept, made_of = _prepared(given, policies)
    _check_measure(swept, options)
    kept = given.out and sweeping.KeptRows(given.out, points, [made_of[point["policy"]] for point in points])
    known = kept.rows if kept else {}
    if known:
        print(f"{given.out}: {len(known)} of {plural(len(points), 'point')} are there already", file=sys.stderr)
    todo = [at for at in range(len(points)) if at not in known]
    with _executor(given.dask) as executor:
        found = sweeping.gather(
            [points[at] for at in todo], partial(measured, swept), executor, jobs=given.jobs, title=given.program.stem,
            keep=lambda at, row: kept.keep(todo[at], row) if kept else None,
        )  # fmt: skip
    rows = known | {todo[at]: row for at, row in found.rows.items()}
    for at, why in sorted(found.failed.items()):
        point = ", ".join(f"{name}={value}" for name, value in points[todo[at]].items())
        print(f"failed: {point}: {why}", file=sys.stderr)
    if rows:
        _report(given, pd.DataFrame([points[at] | rows[at] for at in sorted(rows)]), policies[0], [*points[0]])
    return 130 if found.stopped else int(bool(found.failed))


def _report(given: Namespace, table: Any, first: str, asked: list[str]) -> None:
    numbers = [name for name in table.columns if name not in asked]
    shown = _several("--show", given.show.split(",")) if given.show else numbers
    if missing := [name for name in shown if name not in numbers]:
        raise ValueError(f"--show {missing[0]}: measure() returned {', '.join(numbers)}")
    summary = sweeping.summarised(table, numbers, first)
    files = []
    if given.out:
        files = [given.out / "table.csv", given.out / "summary.csv"]
        for frame, file in zip((table, summary), files, strict=True):
            frame.to_csv(file, index=False, lineterminator="\n")
    summary = summary[summary["number"].isin(shown)]
    print(sweeping.text(summary, first))
    if given.plot:
        sweeping.picture(summary, asked[0]).savefig(given.plot)
        files.append(given.plot)
    if files:
        print(f"\nwrote {', '.join(map(str, files))}")


def _several(option: str, parts: Sequence[Any]) -> list[Any]:
    found = [part.strip() if isinstance(part, str) else part for part in parts]
    if "" in found or len({*found}) < len(found):
        raise ValueError(f"{option} {','.join(map(str, found))}: values that differ, with a comma between them")
    return found


def _option(text: str) -> tuple[str, list[Any]]:
    name, values = pair(text, "--set")
    if name in OURS:
        raise ValueError(f"--set {text}: that is --{name if name == 'policy' else 'seeds'}")
    return name, _several("--set", [number(value.strip()) for value in values.split(",")])


def _seeds(text: str) -> list[int]:
    parts = text.rstrip(",").split(",")
    if not all(part.strip().isdecimal() for part in parts) or (text.isdecimal() and not 1 <= int(text) <= MOST):
        raise ValueError(f"--seeds {text}: how many, at least 1, or whole numbers with commas between: 3,5,8")
    return list(range(int(text))) if text.isdecimal() else _several("--seeds", [int(part) for part in parts])


def _prepared(given: Namespace, policies: Sequence[str]) -> tuple[Swept, dict[str, dict[str, str]]]:
    """What is swept; and by policy, checksums of all that a row is made of."""
    from sim.hardware import load, profile

    if not given.program.is_file():
        raise ValueError(f"there is no program {given.program}")
    shape = {key: getattr(given, key) for key in ("hosts", "islands") if getattr(given, key) is not None}
    names = ("fidelity", "dispatch", "noise", "values", "value", "costs", "sizes")
    simulated = {"cluster": load(given.cluster, **shape), "profile": given.profile and profile(given.profile),
                 **{name: getattr(given, name) for name in names}}  # fmt: skip
    path, text = given.program.resolve(), given.program.read_text(encoding="utf-8")
    common = {"program": sweeping.checksum(text), "version of Seaway": __version__}
    common |= {f"--{name}": sweeping.checksum(value) for name, value in simulated.items()}
    places, made_of = {}, {}
    for policy in policies:
        policy_from(policy)  # raises what is wrong with it
        before, _, name = policy.rpartition(":")
        file = before if before.endswith(".py") else getattr(sys.modules.get(before), "__file__", None)
        places[policy] = f"{Path(before).resolve()}:{name}" if before.endswith(".py") else policy
        made_of[policy] = common | {f"policy {policy}": sweeping.checksum(Path(file).read_bytes()) if file else ""}
    return Swept(str(path), text, {**simulated, "hosts": None, "islands": None}, places), made_of


def _check_measure(swept: Swept, options: Mapping[str, Sequence[Any]]) -> None:
    name = Path(swept.path).name
    try:
        measure = getattr(_loaded(swept.path, swept.program), "measure", None)
    except (Exception, SystemExit) as error:
        why = f"{name} raises {type(error).__name__}: {error}"
        raise ValueError(f"{why}\nWhat a program that is swept does, it does in `measure`.") from error
    if not callable(measure):
        raise ValueError(
            f"{name} defines no `measure`: write `def measure(seed, ...)`, which returns a dict of numbers"
        )
    known = inspect.signature(measure)
    try:
        known.bind(seed=0, **{option: values[0] for option, values in options.items()})
    except TypeError as error:
        raise ValueError(f"{name}: measure{known} is called with seed= and the names of --set: {error}") from None


@contextmanager
def _executor(address: str) -> Iterator[Executor | None]:
    if not address:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        raise ValueError("--dask needs Dask: pip install 'seaway[dask]'") from None
    try:
        client = Client(address)
    except (OSError, ValueError) as error:
        raise ValueError(f"--dask {address}: {error}") from None
    with client:
        yield client.get_executor()
