"""`python -m experiments NAME [--option value ...]`: run figures, tables and studies from the command line.

python -m experiments --list
python -m experiments fig5 --hosts 2,8,32 --out results
python -m experiments all --without tables
python -m experiments fig5 --help
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from core.model import Impossible

from .. import fidelity
from . import catalogue, sweeping
from .catalogue import EXPERIMENTS, GROUPS
from .options import BadOption, Option, nearest
from .running import Result, run

OURS = (
    Option("out", "results", "folder for data, figures and findings"),
    Option("jobs", 0, "number of processes; 0: one for each CPU core", least=0),
    Option("sensitivity", True, "compute the conclusions also with each fitted value x 1/2 and x 2"),
    Option("without", "", "experiments that `all` leaves out; `tables` means " + ", ".join(GROUPS["tables"])),
)
DONE, FAILED, WRONG, STOPPED = 0, 1, 2, 130


def main(arguments: Sequence[str]) -> int:
    try:
        return _main(list(arguments))
    except (BadOption, Impossible) as error:
        print(error, file=sys.stderr)
        return WRONG


def _main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        print(_listing())
        return DONE
    if arguments[0] == "--list":
        print(_listing())
        return DONE
    name, rest = arguments[0], arguments[1:]
    if name == "fidelity":
        return _fidelity(parse(rest))
    names = catalogue.names() if name == "all" else catalogue.known([name])
    if {"-h", "--help"} & set(rest):
        print("\n\n".join(_help(each) for each in names))
        return DONE
    asked = parse(rest)
    ours = {option.name: option.values for option in OURS}
    for option in OURS:
        if option.name in asked:
            ours[option.name] = option.read(asked.pop(option.name))
    without = catalogue.known([each for each in map(str, ours["without"]) if each])
    names = [each for each in names if each not in without]
    _check(names, asked)
    settings = str(ours["out"][0]), int(ours["jobs"][0]) or None, bool(ours["sensitivity"][0])
    return _each(names, asked, *settings, together=name == "all")


def _each(
    names: list[str], asked: dict[str, str], out: str, jobs: int | None, sensitive: bool, together: bool
) -> int:
    code, results = DONE, []
    jobs = jobs or sweeping.cores()
    several = jobs > 1 and len(names) > 1
    with (
        sweeping.processes(jobs) if several else nullcontext() as pool
    ):  # one for all: it takes seconds to start
        for name in names:
            mine = {option.name for option in catalogue.load(name).OPTIONS}
            chosen = {key: value for key, value in asked.items() if key in mine}
            result = run(name, chosen, out=out, executor=pool, jobs=jobs, sensitive=sensitive)
            _print(result)
            if result.stopped:
                return STOPPED
            if result.failed:
                code = FAILED
            results.append(result)
    if together:
        _print_fidelity(*fidelity.of(results, Path(out)))
    return code


def _fidelity(asked: dict[str, str]) -> int:
    known = {option.name: option for option in OURS if option.name in ("out", "jobs")}
    for key in asked:
        if key not in known:
            raise BadOption(f"no option --{key}; {nearest(key, list(known), '--')}")
    found = {
        name: option.read(asked[name]) if name in asked else option.values for name, option in known.items()
    }
    table = fidelity.run(jobs=int(found["jobs"][0]) or None)
    _print_fidelity(fidelity.text(table), fidelity.write(table, Path(str(found["out"][0]))))
    return DONE


def _print_fidelity(text: str, files: Sequence[Path]) -> None:
    print(text)
    for path in files:
        print(f"  {path}")


def _print(result: Result) -> None:
    print(result.text)
    for path in result.files:
        print(f"  {path}")
    print(flush=True)


def parse(arguments: Sequence[str]) -> dict[str, str]:
    """Parse `--name value` and `--name=value`. An option may be given once."""
    found: dict[str, str] = {}
    left = list(arguments)
    while left:
        word = left.pop(0)
        if not word.startswith("--"):
            raise BadOption(f"{word!r} is not an option; options are written --name value")
        name, equals, value = word[2:].partition("=")
        if not equals:
            if not left:
                raise BadOption(f"--{name} has no value; write --{name} VALUE")
            value = left.pop(0)
        key = name.replace("-", "_")
        if key in found:
            raise BadOption(f"--{name} is given twice; several values are written --{name} 1,2,3")
        found[key] = value
    return found


def _check(names: list[str], asked: dict[str, str]) -> None:
    """Check options before anything runs. With several experiments, an option of any of them is allowed."""
    known: dict[str, None] = {}
    for name in names:
        for option in catalogue.load(name).OPTIONS:
            known[option.name] = None
            if option.name in asked:
                option.read(asked[option.name])
    for key in asked:
        if key not in known:
            raise BadOption(
                f"no option --{key.replace('_', '-')}; {nearest(key, [*known, *_names(OURS)], '--')}"
            )


def _names(options: Sequence[Option]) -> list[str]:
    return [option.name for option in options]


def _listing() -> str:
    width = max(map(len, EXPERIMENTS))
    lines = [f"  {name:{width}}  {EXPERIMENTS[name]}" for name in catalogue.names()]
    more = {
        "all": "all of the above, then fidelity",
        "fidelity": "every number printed in the paper: prediction, error, fitted or not",
    }
    return "\n".join([*lines, *(f"  {name:{width}}  {words}" for name, words in more.items())])


def _help(name: str) -> str:
    lines = [f"{name}: {EXPERIMENTS[name]}", ""]
    for option in (*catalogue.load(name).OPTIONS, *OURS):
        extra = f" ({', '.join(option.choices)})" if option.choices else ""
        shown = Option.text(option.values)
        lines.append(f"  --{option.flag:18} {option.help}{extra}" + (f" [{shown}]" if shown else ""))
    return "\n".join(lines)
