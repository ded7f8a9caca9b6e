"""Where a checkpoint may lie, when it is whole, and which is the latest.

    folder/12/                     step 12: a zarr group, whole
    folder/13.partial-8f3a.../     step 13, while it is being written; or for ever, if whoever wrote it is gone

A step has its own name only when all of it is on disk, so what is found under a number can be relied on.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

from .documents import CheckpointError, Request

ROOT_FILE = "zarr.json"  # of the group: written last but for the name


def below(root: Path | None, folder: str) -> Path:
    """The folder that is meant, if this process may write there. Raises CheckpointError."""
    if root is None:
        raise CheckpointError(
            f"checkpoint {folder}: this host was given no folder for checkpoints; start its agent with --checkpoints "
            f"DIR, a folder that all hosts see"
        )
    asked = Path(folder)
    if not folder or "\0" in folder or ".." in asked.parts:
        raise CheckpointError(f"checkpoint {folder!r}: name a folder, without '..'")
    real_root = os.path.realpath(root)
    real = os.path.realpath(root / asked)  # an absolute one stands for itself
    if os.path.commonpath((real_root, real)) != real_root:
        led = f" (it leads to {real})" if Path(real) != asked else ""
        raise CheckpointError(
            f"checkpoint {folder}{led}: agents write below {root} alone; give a folder there, or start them with "
            f"another --checkpoints"
        )
    return Path(real)


def whole(folder: Path, step: int) -> Path:
    return folder / str(step)


def partial(folder: Path, request: Request) -> Path:
    return folder / f"{request.step}.partial-{request.nonce}"


def is_whole(folder: Path, step: int) -> bool:
    return (whole(folder, step) / ROOT_FILE).is_file()


def latest(folder: Path) -> int | None:
    """The last step that is whole. Raises CheckpointError where the folder cannot be read."""
    return max(steps(folder), default=None)


def steps(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder}: {error.strerror}") from None
    numbers = [int(name) for name in names if name.isascii() and name.isdigit() and name == str(int(name))]
    return sorted(number for number in numbers if is_whole(folder, number))


def found(folder: Path, step: int) -> Path:
    """The folder of a step that is whole. Raises CheckpointError, and says what there is instead."""
    if is_whole(folder, step):
        return whole(folder, step)
    there = steps(folder)
    begun = []
    with suppress(OSError):
        begun = sorted(name for name in os.listdir(folder) if name.startswith(f"{step}.partial-"))
    if begun:
        raise CheckpointError(
            f"checkpoint {folder}: step {step} is not complete: whoever saved it has not come to the end "
            f"({begun[0]}){_others(there)}"
        )
    raise CheckpointError(f"checkpoint {folder}: there is no step {step}{_others(there)}")


def _others(there: list[int]) -> str:
    last = ", ".join(map(str, there[-5:]))
    return f"; complete: {last}" if there else "; no step is complete there"


def saved_already(folder: Path, request: Request) -> bool:
    """Whether this very save is complete: it may be asked for again, when its end was not heard. Raises
    CheckpointError where the step is there, and may not be overwritten."""
    if not is_whole(folder, request.step):
        return False
    if _nonce(whole(folder, request.step)) == request.nonce:
        return True
    if not request.overwrite:
        raise CheckpointError(
            f"checkpoint {folder}: step {request.step} is there already; save another step, or say overwrite=True"
        )
    return False


def _nonce(step: Path) -> str:
    try:
        return str(json.loads((step / ROOT_FILE).read_bytes())["attributes"]["seaway"]["save"])
    except (OSError, KeyError, TypeError, ValueError):
        return ""


def complete(folder: Path, request: Request) -> None:
    """All is on disk: give it its name, and let go of what it takes the place of. Raises CheckpointError."""
    target, source = whole(folder, request.step), partial(folder, request)
    others = [step for step in steps(folder) if step != request.step]
    gone = [request.step, *(others[: max(0, len(others) - request.keep + 1)] if request.keep else ())]
    try:
        if target.exists():
            target.rename(_old(folder, request.step, request))
        source.rename(target)
        settle(folder)
        for step in gone[1:]:
            whole(folder, step).rename(_old(folder, step, request))
    except OSError as error:
        raise CheckpointError(f"checkpoint {target}: {error.strerror}") from None
    for step in gone:
        shutil.rmtree(_old(folder, step, request), ignore_errors=True)


def _old(folder: Path, step: int, request: Request) -> Path:
    """What is being deleted has no number any more, so nobody takes it for whole."""
    return folder / f"{step}.old-{request.nonce}"


def discard(folder: Path, request: Request) -> None:
    """A save that has failed leaves nothing behind, as far as that can be done."""
    shutil.rmtree(partial(folder, request), ignore_errors=True)


def settle(folder: Path) -> None:
    """Names in it are on disk, too."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
