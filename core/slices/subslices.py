"""Sub-slices of all sessions: which devices of which slice each of them is.

A sub-slice has no devices of its own. Its place follows from the place of the slice that it is a part of, its
*parent*, whenever somebody asks. So it is not placed, waits for nothing but its parent, and adds no load.

Neighbours: `resources` keeps the parents, and asks here for the parts. The functions that matter: `part` and
`refuse_part`.
"""

from functools import lru_cache

from ..model import Impossible, Place, SliceSpec
from .grids import compact
from .refusal_texts import some

Key = tuple[int, str]  # (session, name of the slice)


class SubSlices:
    def __init__(self) -> None:
        self._specs: dict[Key, SliceSpec] = {}
        # parent -> its sub-slices by name, the oldest first
        self._parts: dict[Key, dict[str, SliceSpec]] = {}

    def get(self, session: int, name: str) -> SliceSpec | None:
        return self._specs.get((session, name))

    def of(self, session: int, parent: str) -> tuple[SliceSpec, ...]:
        """The sub-slices of this slice, the oldest first."""
        found = self._parts.get((session, parent))
        return tuple(found.values()) if found else ()

    def add(self, session: int, spec: SliceSpec) -> None:
        self._specs[session, spec.name] = spec
        self._parts.setdefault((session, spec.of), {})[spec.name] = spec

    def drop(self, session: int, spec: SliceSpec) -> None:
        del self._specs[session, spec.name]
        others = self._parts[session, spec.of]
        del others[spec.name]
        if not others:
            del self._parts[session, spec.of]


@lru_cache(maxsize=1024)
def part(place: Place, picks: tuple[int, ...]) -> Place:
    """The place of a sub-slice of the slice that lies at `place`."""
    devices = list(place.devices())
    return Place(place.island, compact([devices[pick] for pick in picks]))


def refuse_part(spec: SliceSpec, parent: SliceSpec | None, others: list[str]) -> None:
    """Raise Impossible unless it can be a part of this parent. `others`: names of slices that the session has."""
    name = f"slice {spec.name!r}"
    if parent is None:
        has = f"it has bound {some([repr(other) for other in others])}" if others else "it has bound none"
        raise Impossible(
            f"{name} is a part of slice {spec.of!r}, which this session has not bound; {has}: list slice {spec.of!r} "
            f"before {name} in the program's slices"
        )
    if parent.of:
        raise Impossible(
            f"{name} is a part of slice {spec.of!r}, which is itself a part of slice {parent.of!r}: say which devices "
            f"of slice {parent.of!r} it has"
        )
    beyond = [pick for pick in spec.picks if not 0 <= pick < parent.devices]
    if beyond:
        picked = some([str(pick) for pick in beyond])
        raise Impossible(
            f"{name} picks devices {picked} of slice {spec.of!r}, which has devices 0 to {parent.devices - 1}"
        )
