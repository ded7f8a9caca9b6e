"""Header blocks of HTTP/2, read and written by `hpack`, which is not asked again for what it has said before.

A client's requests name the same headers again and again, by numbers in a table that both ends keep. A run of such
numbers means the same until the table changes; so does a block of ours that is all numbers. What changes the table
clears what is remembered. Neighbour: `http2`.
"""

import re
from collections.abc import Sequence

from hpack import Decoder, Encoder
from hpack.table import HeaderTable

from .http2_frames import Headers

KEPT = 64  # blocks that are remembered
LONGEST = 256  # bytes of one
NUMBERS = re.compile(rb"[\x81-\xfe]*")  # headers that are one byte each: their numbers in the table
RESIZE = 1  # in the first three bits: the table's size changes, which only a whole block may say


class _Changes:
    """Whether a table has changed since it was looked at last."""

    def __init__(self, table: HeaderTable) -> None:
        self._table = table
        self._seen: tuple[int, int, object] = self._now()

    def _now(self) -> tuple[int, int, object]:
        entries = self._table.dynamic_entries
        return self._table.maxsize, len(entries), entries[0] if entries else None

    def any(self) -> bool:
        now, before = self._now(), self._seen
        self._seen = now
        return now[:2] != before[:2] or now[2] is not before[2]


class HeaderReader:
    def __init__(self, most: int) -> None:
        self._decoder = Decoder(most)
        self._changes = _Changes(self._decoder.header_table)
        self._known: dict[bytes, Headers] = {}

    def read(self, block: bytes) -> Headers:
        """Raises HPACKError."""
        head = block[: NUMBERS.match(block).end()]  # type: ignore[union-attr]  # it may be empty
        rest = block[len(head) :]
        if rest and rest[0] >> 5 == RESIZE:
            return self._decoded(block)
        found = self._known.get(head)
        if found is None:
            found = self._decoded(head)
            if len(head) <= LONGEST and len(self._known) < KEPT:
                self._known[head] = found
        return found + self._decoded(rest) if rest else found

    def _decoded(self, block: bytes) -> Headers:
        try:
            return [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        finally:
            if self._changes.any():
                self._known.clear()


class HeaderWriter:
    def __init__(self) -> None:
        self._encoder = Encoder()
        self._changes = _Changes(self._encoder.header_table)
        self._known: dict[tuple[tuple[bytes, bytes], ...], bytes] = {}

    def resize(self, size: int) -> None:
        """The peer's table is of this size."""
        self._encoder.header_table_size = size
        self._known.clear()

    def write(self, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        key = tuple(headers)
        found = self._known.get(key)
        if found is None:
            found = self._encoder.encode(key, huffman=False)
            if self._changes.any():
                self._known.clear()
            elif len(found) <= LONGEST and len(self._known) < KEPT:
                self._known[key] = found
        return found
