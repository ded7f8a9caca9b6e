"""Real devices of an agent whose clients are not trusted: `PjrtDevices` with a check before the compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.model import Code, Gang, Layout

from ..auth import Rules
from ..pjrt import PjrtDevices
from .code_gate import CodeGate


class CheckedDevices(PjrtDevices):
    """`cache`: a folder that the checker and the agent share; without it, both compile all code."""

    def __init__(self, rules: Rules, *, cache: Path | None = None, **options: Any) -> None:
        super().__init__(cache=cache, **options)
        self.gate = CodeGate(rules, self.about().platform, cache)
        self._codes.admit = self._admit
        self._compiling.interrupt = self.gate.checkers.interrupt

    def close(self) -> None:
        self.gate.checkers.close()
        super().close()

    def _admit(
        self, code: Code, gang: Gang, inputs: Sequence[Layout], outputs: Sequence[Layout],
        blobs: Mapping[str, bytes], wanted: Callable[[], bool],
    ) -> None:  # fmt: skip
        """Checks code before it is compiled, in a compiling thread."""
        world = self._world
        with world.lock:
            world.changed.wait_for(lambda: world.ready)
            mine = world.mine
        self.gate.check(code, gang, inputs, outputs, blobs, mine, wanted)
