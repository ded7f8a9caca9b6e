"""What clients have called, and how each call ended: lines that a client's process writes and the judge reads.

Times are of `time.monotonic()`, which is one clock for all processes of a machine.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import IO

import msgspec


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    at: float
    pid: int
    call: int
    what: str = ""  # of the beginning of the call
    end: str = ""  # "ok", "wrong" or "error"; "paused" has no call
    kind: str = ""  # of an error: its class, all of its base classes that are ours, its code, its text
    ours: bool = False
    code: str = ""
    text: str = ""
    tries: int = 0


class Call(msgspec.Struct):
    """A call, as far as it has come."""

    client: str
    pid: int
    number: int
    what: str
    begun: float
    ended: float | None = None
    end: str = ""
    kind: str = ""
    ours: bool = False
    code: str = ""
    text: str = ""

    @property
    def good(self) -> bool:
        return self.end == "ok"


class Writer:
    """Writes a client's journal. Each line is whole in the file as soon as it is written, so that a client may be
    killed."""

    def __init__(self, path: Path, pid: int) -> None:
        self._file: IO[bytes] = path.open("ab", buffering=0)
        self._pid, self._number = pid, 0

    def begin(self, what: str) -> None:
        self._number += 1
        self._write(Line(time.monotonic(), self._pid, self._number, what))

    def end(self, end: str, **options: object) -> None:
        self._write(Line(time.monotonic(), self._pid, self._number, end=end, **options))  # type: ignore[arg-type]

    def paused(self) -> None:
        self._write(Line(time.monotonic(), self._pid, 0, end="paused"))

    def close(self) -> None:
        self._file.close()

    def _write(self, line: Line) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")


class Reader:
    """Reads all calls of one client, including those of its later processes."""

    def __init__(self, client: str, path: Path) -> None:
        self.client, self.calls = client, list[Call]()
        self.paused: dict[int, float] = {}  # when a process last wrote "paused"
        self._path, self._at, self._rest = path, 0, b""
        self._open: dict[int, Call] = {}

    def read(self) -> None:
        """Read the new lines."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                new = file.read()
        except FileNotFoundError:
            return
        self._at += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            self._take(line)

    def _take(self, data: bytes) -> None:
        try:
            line = msgspec.json.decode(data, type=Line)
        except msgspec.DecodeError:
            return  # a client was killed while it wrote; the next one's line follows in the same line
        if line.end == "paused":
            self.paused[line.pid] = line.at
        elif not line.end:
            call = Call(self.client, line.pid, line.call, line.what, line.at)
            self.calls.append(call)
            self._open[line.pid] = call
        elif (call := self._open.get(line.pid)) is not None and call.number == line.call:  # type: ignore[assignment]
            call.ended, call.end, call.kind, call.ours = line.at, line.end, line.kind, line.ours
            call.code, call.text = line.code, line.text
            del self._open[line.pid]

    def open(self, pid: int) -> Call | None:
        """The call that this process is making."""
        return self._open.get(pid)
