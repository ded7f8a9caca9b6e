"""Executables that a door keeps over its sessions: a second session's compilation of the same program is a lookup.

    find(key), keep(key, found, nbytes)      `key`: `key_of` all that it was made of

All sessions of a door are under the same rules, so a program that was checked for one of them is checked for all. The
least used go first. A cluster's agents keep theirs in files (`backend.pjrt.code`). Neighbour: `local_devices`.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
MOST = 1024
MOST_BYTES = 1 << 30


def key_of(program: bytes, options: bytes, devices: Sequence[int]) -> bytes:
    found = hashlib.sha256(repr((len(program), len(options), tuple(devices))).encode())
    found.update(program)
    found.update(options)
    return found.digest()


class KeptExecutables(Generic[T]):
    """Thread-safe. `most_bytes`: of all of them, as they are told."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: bytes) -> T | None:
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def keep(self, key: bytes, found: T, nbytes: int) -> None:
        with self._lock:
            self.nbytes += nbytes - self._kept.pop(key, (found, 0))[1]
            self._kept[key] = found, nbytes
            while self.nbytes > self._most_bytes or len(self._kept) > self._most:
                self.nbytes -= self._kept.popitem(last=False)[1][1]
