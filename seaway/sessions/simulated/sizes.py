"""Decides how many rows irregular computations make in a simulation, up to the bound that each declares.

The number is known from contents (`values="compute"`), or given by the user (`sizes=`), or else the bound. Rows are
those of the whole array.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np

from core.model import Gang, Plan
from sim.simulation import Simulation, bounds_of

from ...errors import nearest
from .values import Values

OURS = "checkpoint."  # name prefix of Seaway's own irregular computations, which always make their bound
STREAM = 0x51E5  # keeps these random draws apart from all others that use the seed


class Sizes:
    """`given`: one size for all computations, or a dict by computation name.

    A whole number is rows; a fraction is that part of the bound; a list has one entry a run and starts again at its
    end; a function draws: `lambda rng, bound: rng.integers(bound)`.
    """

    def __init__(self, given: Any, simulation: Simulation, values: Values, seed: int) -> None:
        every = {} if given is None else {"*": given}
        self._given: dict[str, Any] = dict(given) if isinstance(given, Mapping) else every
        self._sim, self._values, self._seed = simulation, values, seed
        self._counts: dict[str, int] = {}
        self._seen: dict[str, None] = {}
        self._last: tuple[int, tuple[int, ...]] = (-1, ())  # a gang's seq, and the rows it made
        for name, size in self._given.items():
            _check(name, size)
        simulation.sizes = self.of

    def of(self, plan: Plan, gang: Gang, seq: int) -> tuple[int, ...]:
        """The rows a gang makes, by output. Asked once a gang or once a host, and drawn once."""
        if self._last[0] != seq:
            self._last = (seq, self._draw(plan, gang, seq))
        return self._last[1]

    def _draw(self, plan: Plan, gang: Gang, seq: int) -> tuple[int, ...]:
        bounds = bounds_of(plan, gang, seq)
        name = plan.codes[gang.computation].name
        if name.startswith(OURS):
            return bounds
        self._seen[name] = None
        key = name if name in self._given else "*"
        count = self._counts[name] = self._counts.get(name, -1) + 1
        call = self._sim.controller.call_at(seq)
        known = None if call is None else self._values.sizes(*call, gang.node)
        found = []
        for number, slot in enumerate(gang.outputs):
            layout = plan.slots[slot].layout
            whole = layout.shape[0] if layout.shape else 0
            rows = whole if known is None else known[number]
            if known is None and key in self._given:
                rows = self._rows(name, self._given[key], count, whole)
            shard = bounds[number]
            found.append(min(shard, ceil(rows * shard / whole)) if whole else 0)
        return tuple(found)

    def _rows(self, name: str, size: Any, count: int, bound: int) -> int:
        if callable(size):
            rows = int(size(np.random.default_rng([self._seed, STREAM, *name.encode(), count]), bound))
        elif isinstance(size, float):
            rows = round(size * bound)
        elif isinstance(size, Sequence):
            rows = int(size[count % len(size)])
        else:
            rows = int(size)
        if not 0 <= rows <= bound:
            raise ValueError(f"sizes[{name!r}] gave {rows} rows at run {count}; its bound is {bound}")
        return rows

    def unknown(self) -> str:
        """A message if `sizes` has a name that no irregular computation had; else ""."""
        for name in self._given:
            if name not in self._seen and name != "*":
                return f"sizes has {name!r}, but no irregular computation has that name{nearest(name, self._seen)}"
        return ""


def _check(name: str, size: Any) -> None:
    kind = callable(size) or isinstance(size, int | float | Sequence)
    if not kind or isinstance(size, bool | str | bytes):
        raise ValueError(f"sizes[{name!r}]={size!r}: rows, a fraction, a list of rows, or a function of (rng, bound)")
    if isinstance(size, int) and size < 0:
        raise ValueError(f"sizes[{name!r}]={size!r}: a number of rows is not negative")
    if isinstance(size, float) and not 0 <= size <= 1:
        raise ValueError(f"sizes[{name!r}]={size!r}: a fraction is from 0.0 to 1.0; rows are whole numbers")
    if isinstance(size, Sequence) and not size:
        raise ValueError(f"sizes[{name!r}] is an empty list")
