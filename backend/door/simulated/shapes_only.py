"""Contents of a session of which only shapes are simulated: what the program has put itself, as far as it is small.

All else has none; to read it is an error that says so, and what to do. Neighbours: `simulated_devices`, which asks
`local_devices` instead where contents are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from core.model import MAX_LITERALS

from ..session import ArrayType, StatusError, unsupported

UNREADABLE = (
    "this door simulates shapes only, so arrays have no contents: start it with --values compute to read contents, "
    "which this machine's CPU then computes"
)
Shards = tuple[np.ndarray[Any, Any], ...]  # the contents of an array, for each device


class ShapesOnly:
    """Implements `simulated_devices.SessionContents`. A reference is an array's shards; None: it has no contents."""

    def put(self, array_type: ArrayType, shards: Sequence[np.ndarray[Any, Any]]) -> Shards | None:
        if sum(each.nbytes for each in shards) > MAX_LITERALS:
            return None
        return tuple([np.array(each) for each in shards])

    def assemble(self, array_type: ArrayType, shards: Sequence[Shards | None]) -> Shards | None:
        known = [shard for shard in shards if shard is not None]
        return None if len(known) < len(shards) else tuple([each for shard in known for each in shard])

    def shards(self, ref: Shards | None) -> Iterable[Shards | None]:
        return repeat(None) if ref is None else [(each,) for each in ref]

    def copy(
        self, arrays: Sequence[tuple[ArrayType, Shards | None]], always: bool
    ) -> Iterable[Shards | None]:
        return [ref for _, ref in arrays]

    def compile(
        self, program: bytes, options: bytes, devices: Sequence[int], done: Callable[[Any, Any], None]
    ) -> None:
        done(None, None)

    def execute(
        self, executable: None, arguments: Sequence[Shards | None], keep: Sequence[int], launch: int
    ) -> Iterable[None]:
        return repeat(None)

    def fetch(self, ref: Shards | None, done: Callable[[np.ndarray[Any, Any] | StatusError], None]) -> None:
        done(unsupported(UNREADABLE) if ref is None else ref[0])

    def delete(self, ref: Shards | None) -> None:
        """Nothing: they go when the session forgets them."""

    def crowded(self, resume: Callable[[], None]) -> bool:
        return False

    def close(self) -> None:
        pass
