"""Code by the hash of its contents: code that clients leave with the controller, and code that hosts have fetched."""

import hashlib
import time
from collections.abc import Callable, Collection

LIMIT = 4 << 30  # bytes in all
LATELY = 600.0  # seconds: a message under way may name code that was left since then
InUse = Callable[[], Collection[str]]


class Blobs:
    """A bounded store of code. `in_use`: hashes that are never dropped, however old; None: all of them."""

    def __init__(self, limit: int = LIMIT, in_use: InUse | None = None, lately: float = LATELY) -> None:
        self._all: dict[str, bytes] = {}
        self._left: dict[str, float] = {}  # when each was left, the latest last
        self._limit, self._in_use, self._lately = limit, in_use, lately
        self.nbytes = 0

    def _make_room(self, nbytes: int) -> None:
        """Drops the oldest code until `nbytes` fit."""
        assert self._in_use is not None
        used, before = self._in_use(), time.monotonic() - self._lately
        for name in [each for each, left in self._left.items() if left < before and each not in used]:
            if self.nbytes + nbytes <= self._limit:
                return
            self.nbytes -= len(self._all.pop(name))
            del self._left[name]

    def keep(self, code: bytes) -> str:
        """Stores code; returns its hash. Raises ValueError if there is no room."""
        name = hash_of(code)
        if name not in self._all:
            if self.nbytes + len(code) > self._limit and self._in_use is not None:
                self._make_room(len(code))
            if self.nbytes + len(code) > self._limit:
                raise ValueError(
                    f"{len(code):,} bytes of code do not fit: {self.nbytes:,} of {self._limit:,} are taken"
                )
            self._all[name] = code
            self.nbytes += len(code)
        self._left.pop(name, None)
        self._left[name] = time.monotonic()
        return name

    def find(self, name: str) -> bytes | None:
        return self._all.get(name)

    def __len__(self) -> int:
        return len(self._all)


def hash_of(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest()
