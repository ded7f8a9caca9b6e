"""What is known of slices that are moved, suspended or resumed: facts, and the table of their phases.

Neighbours: `relocation`, which decides; `preemption` says for whom a slice gives way; `suspensions` tells later starts.
"""

import msgspec

from ..model import Place
from .plan_rows import PlanRows
from .records import ClientRecord, RunRecord

# (phase, what happened) -> the next phase. "detached": its slices were released, or a device was lost.
PHASES: dict[tuple[str, str], str] = {
    ("preparing", "compiled"): "emptying",  # its programs can run at the target
    ("preparing", "lost"): "emptying",  # which is not there any more
    ("preparing", "still parked"): "parked",
    ("emptying", "empty"): "copying",  # nothing is made there any more, ...
    ("emptying", "idle"): "spilling",  # ... nor used
    ("emptying", "still parked"): "parked",
    ("copying", "over"): "emptying",  # and then to host memory again
    ("copying", "still parked"): "spilling",
    ("spilling", "away"): "parked",  # all of it is in host memory
    ("spilling", "resumed"): "returning",
    ("parked", "moved"): "preparing",
    ("parked", "resumed"): "returning",
    ("returning", "there"): "filling",  # it has its devices
    ("returning", "moved"): "preparing",  # it has others
    ("returning", "suspended"): "spilling",
    ("filling", "suspended"): "emptying",
    **{
        (phase, "detached"): "filling"
        for phase in ("preparing", "emptying", "copying", "spilling", "parked", "returning", "filling")
    },
}


class OnTheWay(msgspec.Struct, eq=False):
    """Slices of a client that lie at one place, and are on their way."""

    session: ClientRecord
    names: tuple[str, ...]
    place: Place
    since: int
    tickets: dict[str, int]  # of the slices: another one may be bound by the same name
    target: Place | None = None  # of a move
    asleep: bool = False  # they are to be in host memory
    phase: str = "emptying"
    run: RunRecord | None = None  # that copies
    mine: set[int] | None = None  # the buffers that go with them, since they are held
    runs: frozenset[int] = frozenset()  # that had been admitted then, and have something there
    resident: set[int] = set()  # of these buffers: those that were on the devices, and come back together
    line: int = 0  # its number among those that wait for memory
    why: str = ""  # what it waits for, if that is nothing that the phase says
    again: int = 0  # while it waits for that: when to look next
    seen: tuple[int, ...] = ()  # what can change what buffers are like, as of the last look at them
    detached: bool = False  # its slices are not here any more; its arrays may be
    ahead: list[PlanRows] = []  # of a move: what is compiled for the target
    tried: int = -1  # `Ledger.eased` when there was no room for all of its arrays
    settled: bool = False  # it comes back only where it was: there was no way to copy its arrays
    gives_way_to: tuple[int, str] | None = None  # a policy has said so, and for which slice
    cause: str = ""  # that slice, in words

    def turn(self, happened: str) -> None:
        self.phase, self.seen = PHASES[self.phase, happened], ()

    @property
    def words(self) -> str:
        """What goes on, for those who wait for it."""
        why = f": it gives way to {self.cause}" if self.cause else ""
        if self.target:
            return f"is being moved{why}"
        if not self.asleep:
            return "is being resumed"
        return f"is suspended{why}" if self.phase == "parked" else f"is being suspended{why}"
