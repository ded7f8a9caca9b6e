"""`python -m experiments NAME [--option value ...]`: run figures, tables and studies from the command line.

python -m experiments --list
python -m experiments fig5 --hosts 2,8,32 --out results
python -m experiments all
python -m experiments fig5 --help
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from core.model import Impossible
from seaway.tools import sweeping

from .. import fidelity
from . import catalogue
from .catalogue import EXPERIMENTS
from .options import BadOption, Option, Values, nearest, read_all
from .running import run

OURS = (
    Option("out", "results", "folder for data, figures and findings"),
    Option("jobs", 0, "number of processes; 0: one for each CPU core", least=0),
)
DONE, FAILED, WRONG, STOPPED = 0, 1, 2, 130


def main(arguments: Sequence[str]) -> int:
    try:
        return _main(list(arguments))
    except (BadOption, Impossible) as error:
        print(error, file=sys.stderr)
        return WRONG
    except SystemExit as over:  # by the parser
        return int(over.code or DONE)


def _main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "--list"):
        print(*([] if arguments == ["--list"] else [__doc__]), _listing(), sep="\n")
        return DONE
    name, rest = arguments[0], arguments[1:]
    if name == "fidelity":
        ours = read_all(OURS, parsed(name, OURS, rest))
        table = fidelity.run(jobs=int(ours["jobs"][0]) or None)
        _print(fidelity.text(table), fidelity.write(table, Path(str(ours["out"][0]))))
        return DONE
    names = catalogue.names() if name == "all" else [name]
    theirs = [option for each in names for option in catalogue.load(each).OPTIONS]
    asked = parsed(name, [*theirs, *OURS], rest)
    own = {option.name: asked.pop(option.name) for option in OURS if option.name in asked}
    ours = read_all(OURS, own)
    return _each(names, asked, ours, together=name == "all")


def parsed(name: str, options: Sequence[Option], words: Sequence[str]) -> dict[str, str]:
    """What is given, by option. With several experiments, an option of any of them is allowed."""
    parser = argparse.ArgumentParser(
        usage=f"python -m experiments {name} [--option value ...]", description=EXPERIMENTS.get(name),
        allow_abbrev=False, argument_default=argparse.SUPPRESS, formatter_class=argparse.RawTextHelpFormatter,
    )  # fmt: skip
    known = {option.flag: option for option in options}
    for option in known.values():
        choices = f" ({', '.join(option.choices)})" if option.choices else ""
        shown = Option.text(option.values)
        text = f"{option.help}{choices}" + (f" [{shown}]" if shown else "")
        parser.add_argument(f"--{option.flag}", metavar="VALUE", help=text.replace("%", "%%"))
    found, unknown = parser.parse_known_args(words)
    if unknown:
        raise BadOption(f"no option {unknown[0]}; {nearest(unknown[0].strip('-'), list(known), '--')}")
    return vars(found)


def _each(names: list[str], asked: dict[str, str], ours: dict[str, Values], together: bool) -> int:
    chosen = {}
    for name in names:
        options = catalogue.load(name).OPTIONS
        chosen[name] = {option.name: asked[option.name] for option in options if option.name in asked}
        read_all(options, chosen[name])  # refuses what is wrong before anything runs
    code, results = DONE, []
    out, jobs = str(ours["out"][0]), int(ours["jobs"][0]) or sweeping.cores()
    several = jobs > 1 and len(names) > 1
    with sweeping.processes(jobs) if several else nullcontext() as pool:  # one for all: it takes seconds to start
        for name in names:
            result = run(name, chosen[name], out=out, executor=pool, jobs=jobs)
            _print(result.text, result.files)
            print()
            if result.stopped:
                return STOPPED
            if result.failed:
                code = FAILED
            results.append(result)
    if together:
        _print(*fidelity.of(results, Path(out)))
    return code


def _print(text: str, files: Sequence[Path]) -> None:
    print(text, *(f"  {path}" for path in files), sep="\n", flush=True)


def _listing() -> str:
    more = {
        "all": "all of the above, then fidelity",
        "fidelity": "every number printed in the paper: prediction, error, fitted or not",
    }
    named = {name: EXPERIMENTS[name] for name in catalogue.names()} | more
    return "\n".join(f"  {name:10}{words}" for name, words in named.items())
