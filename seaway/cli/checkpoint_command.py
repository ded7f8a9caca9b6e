"""`seaway checkpoint verify FOLDER`: reads all files of a checkpoint, and names those that are damaged or missing."""

import argparse
from pathlib import Path
from typing import Any

from backend.checkpoint import CheckpointError, folders, zarrs

from ..wording import plural


def add(commands: Any) -> None:
    parser = commands.add_parser("checkpoint", help="look after checkpoints")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    verify = actions.add_parser(
        "verify",
        help="find damaged and missing files",
        description="Reads all files of a checkpoint and compares them with their checksums. It needs no cluster and "
        "no devices. It prints one line a step if all is well; else it names each file that is damaged or missing, and "
        "ends with status 1.",
        epilog="Example: seaway checkpoint verify run",
    )
    about = "as given to sw.checkpoint.save: all its steps; or one step, run/99"
    verify.add_argument("folder", type=Path, metavar="FOLDER", help=about)
    verify.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    folder: Path = given.folder
    steps = [folder]
    if not (folder / zarrs.ROOT_FILE).exists():
        try:
            steps = [folder / str(step) for step in folders.steps(folder)]
        except CheckpointError as error:
            raise ValueError(str(error)) from None
    if not steps:
        raise ValueError(f"no step of a checkpoint is complete in {folder}")
    return int(sum([not _verified(step) for step in steps]) > 0)


def _verified(step: Path) -> bool:
    damaged = 0

    def say(name: str, what: str) -> None:
        nonlocal damaged
        damaged += 1
        print(f"{step}/{name} {what}", flush=True)

    try:
        found = zarrs.verify(step, say)
    except zarrs.Damaged as error:  # the list of arrays itself
        say(error.name, error.what)
        return False
    except CheckpointError as error:
        print(error, flush=True)
        return False
    size = f"{plural(found.arrays, 'array')}, {found.nbytes:,} bytes"
    if damaged:
        print(f"{step}: {plural(damaged, 'file')} of {size} damaged or missing", flush=True)
    else:
        print(f"{step}: {size}, all as saved", flush=True)
    return not damaged
