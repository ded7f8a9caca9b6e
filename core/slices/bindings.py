"""What is known of a slice that is bound, or waits: plain values.

Neighbours: `resources`, which decides.
"""

from typing import Any, Literal

import msgspec

from ..model import Place, SliceSpec
from .subslices import Key


class BoundSlice(msgspec.Struct, frozen=True):
    place: Place


class MustWait(msgspec.Struct, frozen=True):
    """The slice can be bound, but not now."""

    reason: str  # what it waits for
    fails: bool = False  # what needs it is not to wait, but to fail: too few hosts are up (`SliceSpec.absent`)


class Moved(msgspec.Struct, frozen=True):
    """A slice that had to leave its place. If it waits for a new one, `retry` will return it."""

    session: int
    name: str
    old: Place
    new: Place | MustWait


Within = Literal["place", "island", "any"]  # only that place; those on its island; all


class Binding(msgspec.Struct, frozen=True):
    """One slice of one session. It is bound and has a `place`, or waits and has a `reason`."""

    session: int
    spec: SliceSpec
    ticket: int
    place: Place | None = None
    claim: Place | None = None  # while it waits: the place that it will take, if there are enough devices
    reason: str = ""
    home: int = -1  # the island that it had to leave, if it waits for a new place
    held: str = ""  # why what needs it has to wait, though it has a place
    target: Place | None = None  # where its arrays are being copied to; it has both places then
    parked: bool = False  # it does not need the devices of its place now
    back: Place | None = None  # while it waits after that: the place that it may have first
    within: Within = "any"  # of all others: which it may have, too
    rank: int = 0  # slices wait in this order, then in that of tickets
    beside: str = ""  # a slice of its session that it takes the place of: it may have devices of that

    @property
    def key(self) -> Key:
        return self.session, self.spec.name

    @property
    def left(self) -> bool:
        """It stands for arrays whose slice was released: others may have these devices alone by now."""
        return self.spec.name.startswith(LEFT)

    @property
    def places(self) -> list[Place]:
        """Whose devices it has."""
        return [place for place in (None if self.parked else self.place, self.target) if place is not None]

    @property
    def order(self) -> tuple[int, int]:
        """Of those that wait."""
        return self.rank, self.ticket


class Bindings(dict[Key, Binding]):
    """All of them, in order of tickets. It notes which take the place of others, and which have changed if asked to."""

    def __init__(self) -> None:
        self.notes = False
        self.changed: dict[Key, None] = {}
        self._beside: dict[Key, None] = {}

    def __setitem__(self, key: Key, binding: Binding) -> None:
        if self.notes:
            self.changed[key] = None
        if binding.beside:
            self._beside[key] = None
        super().__setitem__(key, binding)

    def pop(self, key: Key, default: Any = None) -> Any:
        if self.notes:
            self.changed[key] = None
        self._beside.pop(key, None)
        return super().pop(key, default)

    def beside(self) -> list[Binding]:
        """Those that take, or took, the place of others; the oldest first."""
        return [self[key] for key in sorted(self._beside, key=lambda key: self[key].ticket)]


FIRST = -(1 << 62)  # the rank of what comes before all others
LEFT = "(of arrays"  # begins the names of slices that stand for arrays of slices which were released
UNDECIDED = "waits for the policy to start it"


def answer(binding: Binding, reason: str) -> BoundSlice | MustWait:
    """Where it is; or, as `reason` says, why it cannot be used."""
    if binding.held:
        return MustWait(binding.held)
    return BoundSlice(binding.place) if binding.place else unbound(binding, reason)


def unbound(binding: Binding, reason: str) -> MustWait:
    """`reason`: why it, or a part of it, has no place."""
    if binding.spec.absent == "fail" and binding.claim is None and binding.reason != UNDECIDED:
        return MustWait(f"is down: it {reason}", fails=True)
    return MustWait(reason)


def reason_of_part(parent: Binding) -> str:
    return f"is a part of slice {parent.spec.name!r}, which {parent.held or parent.reason}"
