"""What accounts have used, by the hour, in a file for the controller's next start.

It is written every minute and at the end, so a process that is killed loses the last minute. The file has hours of the
calendar, and core those of this process's clock; a row is at most an hour off after a restart.
Neighbours: `server`; `core.controller.usage`, which counts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from core.controller import HOUR
from core.protocol import effects as e

from ..plain_files import plain_bytes
from .state_folder import replace_file

if TYPE_CHECKING:
    from .server import Server

EVERY = 60.0  # seconds
LARGEST = 1 << 60
log = logging.getLogger("seaway.controller")


def read_usage(path: Path) -> tuple[e.UsageRow, ...]:
    """What the file has; nothing, with a warning, if it is damaged."""
    try:
        found = msgspec.json.decode(plain_bytes(path), type=tuple[e.UsageRow, ...])
        numbers = [(row.hour, row.device_time, row.bytes_in, row.bytes_out, row.runs) for row in found]
        if any(not 0 <= number <= LARGEST for row in numbers for number in row):
            raise ValueError("a number is too large, or negative")
        return found
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, RecursionError) as error:  # msgspec's are ValueErrors
        log.warning("what accounts have used is counted from 0: %s: %s", path, error)
        return ()


class UsageFile:
    def __init__(self, path: Path, server: Server) -> None:
        self._path, self._server, self._told = path, server, False

    def restore(self) -> None:
        """Tells core what the file has."""
        ahead = self._ahead()
        rows = tuple([msgspec.structs.replace(row, hour=row.hour - ahead) for row in read_usage(self._path)])
        if rows:
            self._server.node.feed(e.UsageKnown(rows))

    def _ahead(self) -> int:
        """How many hours the calendar, since 1970, is ahead of this process's clock."""
        return time.time_ns() // HOUR - self._server.node.now() // HOUR

    async def keep(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            self.write()

    def write(self) -> None:
        ahead = self._ahead()
        with self._server.node.lock:
            rows = self._server.controller.accounts.rows()
        rows = [msgspec.structs.replace(row, hour=row.hour + ahead) for row in rows]
        try:
            replace_file(self._path, msgspec.json.encode(rows), durable=False)
        except OSError as error:
            if not self._told:
                self._told = True
                log.warning("a later start will not know what accounts have used: %s: %s", self._path, error.strerror)
