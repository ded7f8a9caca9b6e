"""`KeptRows`: the finished rows of a sweep in a file, a line each, so that a sweep that ended early can be resumed.

A line is written at once, so a kill in the middle loses at most that one. Each says what its row was made of (checksums
of the program, the policy and the options): rows that were made of something else are refused, and not mixed in.
"""

import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec

from ...file_reading import MOST, plain_bytes
from .gathering import Point, Row

Value = int | float | str | None


class _KeptRow(msgspec.Struct):
    point: dict[str, Value]
    made_of: dict[str, str]
    row: dict[str, int | float | None]


def checksum(content: bytes | object) -> str:
    data = content if isinstance(content, bytes) else repr(content).encode()
    return blake2b(data, digest_size=6).hexdigest()


class KeptRows:
    def __init__(self, folder: Path, points: Sequence[Point], made_of: Sequence[Mapping[str, str]]) -> None:
        """`made_of`: of each point, what its row depends on, by what users call it."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"--out {folder}: {error.strerror}") from None
        path = self._path = folder / "points.jsonl"
        self._points, self._made_of = points, made_of
        self.rows: dict[int, Row] = {}  # by the point's index: those that were there
        data = plain_bytes(path, MOST) if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        indices = {_key(point): at for at, point in enumerate(points)}
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                self._read(msgspec.json.decode(line, type=_KeptRow), indices)
            except msgspec.MsgspecError as error:
                raise ValueError(f"{path}, line {number} is no row of a sweep: {error}; remove the line") from None
        if len(whole) < len(data):  # the last line was not written to its end
            os.truncate(path, len(whole))

    def _read(self, line: _KeptRow, indices: Mapping[bytes, int]) -> None:
        at = indices.get(_key(line.point))
        if at is None:  # of a larger sweep
            return
        wanted = self._made_of[at]
        if changed := [what for what in wanted if wanted[what] != line.made_of.get(what)]:
            raise ValueError(
                f"{self._path} has rows that were made with another {' and '.join(changed)}: choose another --out, or "
                f"remove that file to measure all again"
            )
        self.rows[at] = line.row

    def keep(self, at: int, row: Row) -> None:
        line = msgspec.json.encode(_KeptRow(self._points[at], dict(self._made_of[at]), row)) + b"\n"
        with open(self._path, "ab", buffering=0) as file:
            file.write(line)


def _key(point: Mapping[str, Value]) -> bytes:
    return msgspec.json.encode(point, order="sorted")
