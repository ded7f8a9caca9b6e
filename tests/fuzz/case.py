"""A case as data: the set-up, the programs, and what happens when. A seed draws it, `play` runs it, `shrink` cuts it.

Actions name one another by `key`, never by position, so that any of them can be deleted: what refers to one that
is not there does nothing (a run then takes a literal for the argument that was to be its result).
"""

from __future__ import annotations

import msgspec

from core.controller import Config
from core.controller.watch import Bounds
from core.model.program import Program, SliceSpec, Value

US, MS, S = 1_000, 1_000_000, 1_000_000_000

Source = tuple[int, int]  # (key of a submit or put, number of its result); (-1, 0) is a literal
LITERAL: Source = (-1, 0)


class Person(msgspec.Struct, frozen=True):
    name: str
    weight: int
    priority: int
    at: int  # when it comes


class Setup(msgspec.Struct, frozen=True):
    """All that is fixed for a case."""

    islands: tuple[dict[str, int], ...]  # hosts, per_host, memory, host_memory, spares
    people: tuple[Person, ...]
    policy: str = "fifo"
    window: int = 8
    max_passes: int = 8
    early: str = "idle"
    fanout: int = 23
    fuse: bool = False
    lane: str = "host"
    pool: int = 1 << 20
    chunk: int = 1 << 12
    latency: int = 50 * US
    jitter: int = 0
    compile: int = 1 * MS
    slow_codes: tuple[str, ...] = ()
    span: int = 0  # nanoseconds: of the dispatch window
    reach: int = 0  # nanoseconds: a process that begins anew is found again within so long
    roomy: bool = True  # memory is no matter: no run may fail for want of it

    def config(self) -> Config:
        return Config(
            window=self.window, window_span=self.span, max_passes=self.max_passes, early=self.early,  # type: ignore[arg-type]
            fanout=self.fanout, fuse=self.fuse, bounds=Bounds(floor=200 * MS, factor=10, hard=3),
            recovery=600 * MS, lease=80 * MS,
        )  # fmt: skip


class Action(msgspec.Struct, frozen=True, kw_only=True):
    at: int


class Submit(Action, frozen=True):
    key: int
    client: int
    program: int
    args: tuple[Source, ...]
    keep: tuple[bool, ...] = ()
    dispatch: str = "parallel"
    deadline: int = 0


class Put(Action, frozen=True):
    key: int
    client: int
    value: Value
    slice: SliceSpec


class Get(Action, frozen=True):
    client: int
    of: Source


class Release(Action, frozen=True):
    client: int
    of: Source


class Cancel(Action, frozen=True):
    client: int
    key: int


class Close(Action, frozen=True):
    client: int


class CrashClient(Action, frozen=True):
    client: int


class CrashHost(Action, frozen=True):
    host: int
    back: int = 0  # after so long; 0: not before all is mended


class LeaveHost(Action, frozen=True):
    host: int


class LoseDevice(Action, frozen=True):
    device: int


class Cut(Action, frozen=True):
    one: str
    other: str
    silent: bool
    mend: int = 0  # after so long; 0: not before all is mended


class Slow(Action, frozen=True):
    host: int
    factor: float
    lag: int


class StandStill(Action, frozen=True):
    """A process is stopped, and goes on later: perhaps beyond every lease."""

    who: str
    length: int


ALL = -1  # hosts


class BreakGang(Action, frozen=True):
    """The next gang of this name fails on this host, or on each: as it is launched, or as it runs."""

    host: int
    name: str
    when: str


class BreakWorld(Action, frozen=True):
    """The connections between an island's hosts break, and nobody dies."""

    island: int


class BreakCode(Action, frozen=True):
    name: str


class Restart(Action, frozen=True):
    """Of the controller."""


class Case(msgspec.Struct, frozen=True):
    seed: int
    setup: Setup
    programs: tuple[Program, ...]
    actions: tuple[Action, ...]


def describe(action: Action) -> str:
    """One line."""
    fields = ", ".join(
        f"{name}={getattr(action, name)!r}" for name in action.__struct_fields__ if name != "at"
    )
    return f"{action.at / MS:9.3f} ms  {type(action).__name__}({fields})"
