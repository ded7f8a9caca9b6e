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
log = logging.getLogger("seaway.controller")


class UsageFile:
    def __init__(self, path: Path, server: Server) -> None:
        self._path, self._server, self._told = path, server, False

    def restore(self) -> None:
        """Tells core what the file has, if it is there and sound."""
        try:
            found = msgspec.json.decode(plain_bytes(self._path), type=tuple[e.UsageRow, ...])
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            log.warning("what accounts have used is counted from 0: %s: %s", self._path, error)
            return
        ahead = self._ahead()
        self._server.node.feed(
            e.UsageKnown(tuple([msgspec.structs.replace(row, hour=row.hour - ahead) for row in found]))
        )

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
