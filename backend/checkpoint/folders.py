"""The folders of checkpoints: where a checkpoint may be, when it is complete, and which is the latest.

    folder/12/                     step 12: a zarr group, complete
    folder/13.partial-8f3a.../     step 13, being written; `leftovers` says what becomes of it if its writer dies

A step gets its own name only when all of it is on disk, so a folder with a number is reliable.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from ..plain_files import settle
from .documents import LAST, CheckpointError, Request
from .leftovers import unmark
from .metadata import ROOT_FILE, saved_step


def below(root: Path | None, folder: str, option: str = "--checkpoints") -> Path:
    """The real path of a requested folder, if this process may write there, which was started with this option. Raises
    CheckpointError."""
    if root is None:
        raise CheckpointError(
            f"checkpoint {folder}: this host was given no folder for checkpoints; start its agent with --checkpoints "
            f"DIR, a folder that all hosts see"
        )
    plain(folder)
    real_root = os.path.realpath(root)
    real = os.path.realpath(root / folder)  # an absolute path replaces the root
    if os.path.commonpath((real_root, real)) != real_root:
        led = f" (it leads to {real})" if real != folder else ""
        raise CheckpointError(
            f"checkpoint {folder}{led}: files are written below {root} alone; give a folder there, or another {option}"
        )
    return Path(real)


def plain(folder: str) -> None:
    """Raises CheckpointError if it names no folder, or one above another."""
    if not folder or "\0" in folder or ".." in Path(folder).parts:
        raise CheckpointError(f"checkpoint {folder!r}: name a folder, without '..'")


def whole(folder: Path, step: int) -> Path:
    return folder / str(step)


def partial(folder: Path, request: Request) -> Path:
    return folder / f"{request.step}.partial-{request.nonce}"


def is_whole(folder: Path, step: int) -> bool:
    return (whole(folder, step) / ROOT_FILE).is_file()


def latest(folder: Path) -> int | None:
    """The last complete step. Raises CheckpointError if the folder cannot be read."""
    return max(steps(folder), default=None)


def steps(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder}: {error.strerror}") from None
    numbers = [int(name) for name in names if name.isascii() and name.isdigit() and name == str(int(name))]
    return sorted(number for number in numbers if number <= LAST and is_whole(folder, number))


def found(folder: Path, step: int) -> Path:
    """The folder of a complete step. Raises CheckpointError, which lists the steps that exist."""
    if is_whole(folder, step):
        return whole(folder, step)
    there = steps(folder)
    begun = []
    with suppress(OSError):
        begun = sorted(name for name in os.listdir(folder) if name.startswith(f"{step}.partial-"))
    if begun:
        raise CheckpointError(
            f"checkpoint {folder}: step {step} is not complete: its save has not finished ({begun[0]}){_others(there)}"
        )
    raise CheckpointError(f"checkpoint {folder}: there is no step {step}{_others(there)}")


def _others(there: list[int]) -> str:
    last = ", ".join(map(str, there[-5:]))
    return f"; complete: {last}" if there else "; no step is complete there"


def saved_already(folder: Path, request: Request) -> bool:
    """Whether this very save is complete: it may be requested again if its end was not received. Raises
    CheckpointError if the step exists and may not be overwritten."""
    if not is_whole(folder, request.step):
        return False
    if _nonce(whole(folder, request.step)) == request.nonce:
        return True
    if not request.overwrite:
        raise CheckpointError(
            f"checkpoint {folder}: step {request.step} exists already; save another step, or pass overwrite=True"
        )
    return False


def _nonce(step: Path) -> str:
    try:
        return saved_step(step).save
    except CheckpointError:  # it is damaged: it is not that save
        return ""


def complete(folder: Path, request: Request) -> None:
    """Renames a step that is all on disk, and deletes the steps that it replaces. Raises CheckpointError."""
    target, source = whole(folder, request.step), partial(folder, request)
    others = [step for step in steps(folder) if step != request.step]
    gone = others[: max(0, len(others) - request.keep + 1)] if request.keep else []
    replaced = folder / f"{request.step}.replaced-{request.nonce}"
    try:
        unmark(source)
        if target.exists():
            target.rename(replaced)
        try:
            source.rename(target)
        except FileNotFoundError:
            if _nonce(target) != request.nonce:  # else another save, which tidied up, has done it
                raise
        settle(folder)
        for step in gone:
            whole(folder, step).rename(_old(folder, step, request))
    except OSError as error:
        raise CheckpointError(f"checkpoint {target}: {error.strerror}") from None
    for each in [replaced, *(_old(folder, step, request) for step in gone)]:
        shutil.rmtree(each, ignore_errors=True)


def _old(folder: Path, step: int, request: Request) -> Path:
    """The name of a step that is being deleted: it is no number, so the step does not count as complete."""
    return folder / f"{step}.old-{request.nonce}"


def discard(folder: Path, request: Request) -> None:
    """Deletes the files of a failed save, as far as possible."""
    shutil.rmtree(partial(folder, request), ignore_errors=True)
