"""A fuzz case as data: the set-up, the programs, and the actions. `draw` makes it, `play` runs it, `shrink` reduces it.

Actions refer to one another by `key`, not by position, so that any of them can be deleted. An action that refers to a
deleted one does nothing; a run takes a literal in place of an argument that is not made.
"""

from __future__ import annotations

import msgspec

from core.controller import Config
from core.controller.watch import Bounds
from core.model import Account
from core.model.program import Program, SliceSpec, Value

US, MS, S = 1_000, 1_000_000, 1_000_000_000

Source = tuple[int, int]  # (key of a submit or put, number of its result); (-1, 0) is a literal
LITERAL: Source = (-1, 0)
Begin = tuple[int, int]  # so many islands, and so many hosts of the last one of them


class ClientSpec(msgspec.Struct, frozen=True):
    name: str
    weight: int
    priority: int
    at: int  # when the client connects


class Setup(msgspec.Struct, frozen=True):
    """The settings of a case."""

    islands: tuple[dict[str, int], ...]  # hosts, devices_per_host, memory, host_memory, host_disk, spares
    people: tuple[ClientSpec, ...]
    policy: str = "fifo"
    window: int = 8
    max_passes: int = 8
    early: str = "idle"
    fanout: int = 23
    lane: str = "host"
    pool: int = 1 << 20
    chunk: int = 1 << 12
    latency: int = 50 * US
    jitter: int = 0
    compile: int = 1 * MS
    span: int = 0  # nanoseconds, see `Window.span`
    reach: int = 0  # nanoseconds, see `Timing.reach`
    max_reserved: int = 20 * MS  # for policies that reserve
    accounts: int = 0  # to so many accounts the clients belong; 0: there are none
    preempt: tuple[int, int] = (10_000, 600_000)  # milliseconds, see `Config.preempt_keep` and `preempt_longest`
    roomy: bool = True  # there is plenty of memory: no run may fail for lack of it
    disk_fails: int = 0  # the disk of each second host fails from this write on; 0: never
    damaged: int = 0  # files of each so manieth buffer cannot be read; 0: of none
    begins: Begin = (0, 0)  # with what the cluster begins; (0, 0): with all of it

    def accounts_of(self) -> dict[str, Account]:
        """By the names of clients."""
        if not self.accounts:
            return {}
        names = [*(each.name for each in self.people), "new"]  # who comes when an old state is tried
        return {name: Account(f"x{at % self.accounts}", "user") for at, name in enumerate(names)}

    def config(self) -> Config:
        return Config(
            window=self.window, window_span=self.span, max_passes=self.max_passes, early=self.early,  # type: ignore[arg-type]
            max_reserved=self.max_reserved, preempt_keep=self.preempt[0] * MS, preempt_longest=self.preempt[1] * MS,
            fanout=self.fanout, bounds=Bounds(floor=200 * MS, factor=10, hard=3),
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


class Register(Action, frozen=True):
    """The client registers the program once more, and asks to be told when it is compiled."""

    key: int
    client: int
    program: int


class Unregister(Action, frozen=True):
    """The client takes such a registration back, perhaps before it is told."""

    client: int
    key: int


class Put(Action, frozen=True):
    key: int
    client: int
    value: Value
    slice: SliceSpec
    parent: SliceSpec | None = None  # of a sub-slice: the client's slice, which must be bound


class View(Action, frozen=True):
    """An array of shards of others: of each device, a source, and which of its shards is there."""

    key: int
    client: int
    value: Value
    slice: SliceSpec
    of: tuple[tuple[Source, int], ...]


class Get(Action, frozen=True):
    client: int
    of: Source


class Release(Action, frozen=True):
    client: int
    of: Source


class Cancel(Action, frozen=True):
    client: int
    key: int


class Stop(Action, frozen=True):
    """The run's gangs of several steps are to end early."""

    client: int
    key: int


class Close(Action, frozen=True):
    client: int


class CrashClient(Action, frozen=True):
    client: int


class CrashHost(Action, frozen=True):
    host: int
    back: int = 0  # restarted after so many nanoseconds; 0: when all faults end


class LeaveHost(Action, frozen=True):
    host: int
    patience: int = 0


class LoseDevice(Action, frozen=True):
    device: int


class Cut(Action, frozen=True):
    one: str
    other: str
    silent: bool
    mend: int = 0  # mended after so many nanoseconds; 0: when all faults end
    one_way: bool = False  # only what `one` says is cut off


class Slow(Action, frozen=True):
    host: int
    factor: float
    lag: int


class StandStill(Action, frozen=True):
    """A process is stopped and goes on later, perhaps after all leases have run out."""

    who: str
    length: int


ALL = -1  # all hosts


class BreakGang(Action, frozen=True):
    """The next gang of this name fails on this host, or on all hosts, at its launch or while it runs."""

    host: int
    name: str
    when: str


class BreakWorld(Action, frozen=True):
    """The connections between an island's hosts break, but no host dies."""

    island: int


class BreakCode(Action, frozen=True):
    name: str


class Restart(Action, frozen=True):
    """The controller is restarted."""


class Operate(Action, frozen=True):
    """An operator has all slices of a client moved, suspended or resumed; or the client itself does."""

    of: int  # the client
    what: str
    itself: bool = False
    away: int = -1  # of a move: a host whose devices are not to be had


class AskElastic(Action, frozen=True):
    """A client asks for an elastic slice, and moves on after a while when it hears of another size."""

    client: int
    sizes: tuple[int, ...]
    like: SliceSpec
    after: int


class OperateHost(Action, frozen=True):
    """An operator cordons or drains a host, or lifts the cordon."""

    host: int
    what: str
    patience: int = 0


class Grow(Action, frozen=True):
    """An operator lets the cluster grow to this. The new hosts come one after another."""

    to: Begin
    come: int  # nanoseconds between them


class OldState(Action, frozen=True):
    """The controller is started with a copy of its state that is so many starts old. Then the operator starts it with
    the newest state, or tells it to forget everything."""

    behind: int
    forget: bool
    mend: int = 0  # the operator acts after so many nanoseconds; 0: when all faults end


class Case(msgspec.Struct, frozen=True):
    seed: int
    setup: Setup
    programs: tuple[Program, ...]
    actions: tuple[Action, ...]


def describe(action: Action) -> str:
    """Return the action as one line of text."""
    fields = ", ".join(f"{name}={getattr(action, name)!r}" for name in action.__struct_fields__ if name != "at")
    return f"{action.at / MS:9.3f} ms  {type(action).__name__}({fields})"
