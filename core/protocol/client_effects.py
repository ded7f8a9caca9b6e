"""What a client's machine tells the user's process that it lives in, and what that tells it.

Start with `effects`, which has the words. Neighbours: `core.client`; the drivers.
"""

from __future__ import annotations

from ..model import Layout, Range, SliceSpec
from .effect_base import Command, Event
from .wire import Blame

# --- client -> the user's process it lives in --------------------------------------------------------------------


class RunEnded(Command, frozen=True):
    """A run that was submitted has ended. This comes exactly once for each run."""

    run: int
    blame: Blame | None = None
    lacks: tuple[tuple[int, str], ...] = ()  # (argument, what became of it): why a run could not be retried
    undone: int = 0  # see `Ended`


class ProgramTold(Command, frozen=True):
    """A program that was registered with `tell` is compiled; or, with a blame, it never will be. This comes exactly
    once for each, unless the user unregisters the program first."""

    program: int
    about: bytes = b""  # see `ProgramCompiled`
    blame: Blame | None = None


class RunAgain(Command, frozen=True):
    """The run failed through no fault of its own, and will be submitted again."""

    run: int
    blame: Blame
    number: int  # which retry it will be, from 1
    at: int  # when


class GetAgain(Command, frozen=True):
    """The contents that came as `transfer` are useless; they are asked for again under the same request."""

    request: int
    transfer: int
    blame: Blame


class PutContentsUnneeded(Command, frozen=True):
    """The contents of these puts were kept so that they could be put again; the driver may drop them now."""

    buffers: tuple[int, ...]


class BuffersReady(Command, frozen=True):
    """These buffers have contents now; or, with a blame, they never will. Names, or ranges of them."""

    buffers: tuple[int | Range, ...]
    blame: Blame | None = None


class GetStarted(Command, frozen=True):
    """The hosts that have the shards will send the contents of a Get, as `transfer`. `rows`, `early`: as there."""

    request: int
    transfer: int
    layout: Layout
    rows: int = -1
    shard: int = -1  # see `Get`
    early: bool = False


class PutStarted(Command, frozen=True):
    """The hosts are ready to receive the contents of a Put, as `transfer`."""

    buffer: int
    transfer: int
    layout: Layout


class SlicesRelocated(Command, frozen=True):
    """What the user has asked to be moved, suspended or resumed, is. Else: CallRefused."""

    request: int


class SliceSized(Command, frozen=True):
    """An elastic slice can be this one now. The user moves on to it (`Client.move_on`). Or it stays this one, since
    others need the devices to which the user has not moved on."""

    name: str
    slice: SliceSpec
    why: str


class CallRefused(Command, frozen=True):
    """The controller has refused a call."""

    what: str  # "program", "put", "get", "slice", "relocate", "elastic" or "sending", as in `Refused`
    name: int
    blame: Blame


class Unblocked(Command, frozen=True):
    """The user may repeat a call that was answered with `Blocked`."""


class CallsMade(Event, frozen=True):
    """The user has called methods of the client: return the commands that resulted."""
