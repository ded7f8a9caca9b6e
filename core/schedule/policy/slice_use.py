"""What policies see of a slice: what its client asks for, and what has become of it.

Neighbours: the controller's `placements` makes them and keeps them true; `Policy.slice_rank` and `Placement` read them.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from ...model import Island, Spans

NEVER = 1 << 62  # later than any time
EIGHTH = 8  # what is late is expected to need at least this part of its time again


class SliceUse(msgspec.Struct, eq=False):
    """A slice that a client asks for, and what has become of it. Times are nanoseconds."""

    client: int
    name: str
    devices: int
    exclusive: bool
    weight: int
    priority: int
    client_name: str = ""
    kind: str = ""  # that it asks for; "": any
    island: str = ""  # likewise
    mesh: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()  # that it may have, if several
    expected: Mapping[str, int] = {}  # for how long it needs its devices, by their kind, or by "" for any other
    deadline: int = 0  # when that should be over, absolute; 0: not said
    number: int = 0  # increasing, in the order in which slices were asked for
    asked: int = 0  # when
    began: int = -1  # when it had devices first; -1: not yet
    # "leaving": its arrays go to host memory, because it was told so; it waits when they are there
    state: Literal["waiting", "running", "leaving"] = "waiting"
    at: Island | None = None  # where it is
    where: Spans = ()  # its devices
    since: int = 0  # there, or without devices
    had: dict[str, int] = {}  # for how long it had devices before that, by their kind

    def until(self, now: int) -> dict[str, int]:
        """For how long it has had devices, by their kind."""
        if self.at is None:
            return self.had
        return {**self.had, self.at.kind: self.had.get(self.at.kind, 0) + now - self.since}

    def served(self, now: int) -> int:
        """For how long it has had devices."""
        return sum(self.until(now).values())

    def needs(self, kind: str) -> int:
        """How long it needs devices of this kind, from beginning to end; 0: nobody said."""
        return self.expected.get(kind) or self.expected.get("", 0)

    def left(self, kind: str, now: int) -> int:
        """How long it should need devices of this kind, after what it has had; 0: nobody said how long.

        One that is late is expected to need as much time again as it is late.
        """
        whole = self.needs(kind)
        if not whole:
            return 0
        done = sum(time if (other := self.needs(on)) == whole else time * whole // (other or whole)
                   for on, time in self.until(now).items())  # fmt: skip
        return whole - done if done < whole else max(done - whole, whole // EIGHTH, 1)

    def ends(self, now: int) -> int:
        """When it should release its devices, if it has some, and somebody said how long it needs them; else never."""
        left = self.left(self.at.kind, now) if self.at is not None else 0
        return now + left if left else NEVER
