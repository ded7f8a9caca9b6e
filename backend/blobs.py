"""Code by the hash of its contents: what clients leave with the controller, and what hosts have fetched."""

from __future__ import annotations

import hashlib

LIMIT = 4 << 30  # bytes in all


class Blobs:
    def __init__(self, limit: int = LIMIT) -> None:
        self._all: dict[str, bytes] = {}
        self._limit = limit
        self.nbytes = 0

    def keep(self, code: bytes) -> str:
        """Its name. Raises ValueError where there is no room."""
        name = hash_of(code)
        if name not in self._all:
            if self.nbytes + len(code) > self._limit:
                raise ValueError(
                    f"{len(code):,} bytes of code do not fit: {self.nbytes:,} of {self._limit:,} are taken"
                )
            self._all[name] = code
            self.nbytes += len(code)
        return name

    def find(self, name: str) -> bytes | None:
        return self._all.get(name)

    def __len__(self) -> int:
        return len(self._all)


def hash_of(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest()
