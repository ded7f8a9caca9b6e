"""Executables in a folder, for the next process with the same program: an agent after its checker, or after a restart.

A file is named by all that it was made of: program, options, number and kind of devices, compiler, processor, flags.
Loading an executable may run anything that is in it, so the folder is only this user's. Neighbours: `stablehlo_codes`,
`verdicts`, which keeps its files beside these.
"""

import hashlib
import logging
import os
import platform
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...contents import StableHLOCode
from ...plain_files import own_folder, plain_bytes, replace_file
from ...xla import xla_flags

log = logging.getLogger("seaway.pjrt")
FOLDER = "executables"  # beside what JAX itself keeps
DIGEST = 32  # bytes ahead of the executable


class ExecutableCache:
    """`folder`: of compiled code; None: nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else own_folder(folder / FOLDER)

    @property
    def open(self) -> bool:
        return self._folder is not None

    def name_of(self, asked: StableHLOCode, devices: Sequence[Any]) -> str:
        found = hashlib.sha256()
        for part in (
            asked.program, asked.options, str(len(devices)).encode(), str(devices[0].device_kind).encode(),
            _this_machine().encode(),
        ):  # fmt: skip
            found.update(len(part).to_bytes(8) + part)
        return found.hexdigest()

    def find(self, name: str) -> bytes | None:
        """None too if it is not as it was kept: loading it could end the process."""
        try:
            data = b"" if self._folder is None else plain_bytes(self._folder / name)
        except OSError:
            return None
        digest, executable = data[:DIGEST], data[DIGEST:]
        return executable if executable and digest == hashlib.sha256(executable).digest() else None

    def keep(self, name: str, executable: bytes) -> None:
        """Whole or not at all: a reader never sees half a file."""
        if self._folder is None or not executable:
            return
        try:
            replace_file(self._folder / name, hashlib.sha256(executable).digest() + executable, durable=False)
        except OSError as error:
            log.warning("an executable is not kept in %s: %s", self._folder, error.strerror)

    def drop(self, name: str, why: BaseException) -> None:
        """It could not be loaded."""
        log.info("an executable that was kept cannot be loaded, and is compiled again: %.300s", why)
        if self._folder is not None:
            (self._folder / name).unlink(missing_ok=True)


@lru_cache(maxsize=1)
def _this_machine() -> str:
    return "\n".join((version("jaxlib"), platform.machine(), _processor(), *sorted(xla_flags(os.environ))))


def _processor() -> str:
    """What the processor can do, where the system says so."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
