"""Checks that no buffer is freed while it is held or used, that none is kept without a holder, and none freed twice."""

from __future__ import annotations

from core.model import Spans, spans

from . import observations as o
from .checker_base import Checker

Shards = tuple[int, int]  # (host, buffer)


class BufferChecker(Checker):
    name = "buffers"
    sees = (o.HostLost, o.Launched, o.FinishedSeen, o.BufferMade, o.BufferFreed, o.BufferUsed, o.BufferUnused,
            o.BufferHeld, o.BufferLetGo, o.BufferLost, o.ViewFolded)  # fmt: skip

    def __init__(self) -> None:
        # shards that are on a host -> user -> number of its uses
        self._users: dict[Shards, dict[str, int]] = {}
        self._holders: dict[int, dict[str, int]] = {}  # buffer -> holder -> number of its references
        self._lost: dict[int, None] = {}
        self._folded: dict[int, None] = {}  # views that hosts are to forget, though they are held
        self._to_fold: dict[Shards, None] = {}  # of views that are to be made again: hosts that have yet to forget them
        # (host, seq) -> devices, buffers
        self._gangs: dict[tuple[int, int], tuple[Spans, tuple[int, ...]]] = {}

    def saw(self, seen: o.Observation, now: int) -> None:
        match seen:
            case o.Launched():
                self._launched(seen)
            case o.FinishedSeen():
                self._finished(seen)
            case o.BufferMade(host=host, buffer=buffer):
                self._make(host, buffer, "")
            case o.BufferFreed(host=host, buffer=buffer):
                self._free(host, buffer)
            case o.BufferUsed(host=host, buffer=buffer, by=by):
                self._use(host, buffer, by)
            case o.BufferUnused(host=host, buffer=buffer, by=by):
                self._unuse(host, buffer, by)
            case o.BufferHeld(buffer=buffer, holder=holder):
                holders = self._holders.setdefault(buffer, {})
                holders[holder] = holders.get(holder, 0) + 1
            case o.BufferLetGo(buffer=buffer, holder=holder):
                self._let_go(buffer, holder)
            case o.ViewFolded(buffer=buffer, folded=folded):
                self._fold(buffer, folded)
            case o.BufferLost(buffer=buffer):
                self._lost[buffer] = None
            case o.HostLost(host=lost):
                self._users = {shards: users for shards, users in self._users.items() if shards[0] != lost}
                self._gangs = {key: gang for key, gang in self._gangs.items() if key[0] != lost}
            case _:
                pass

    def _launched(self, seen: o.Launched) -> None:
        host, by = seen.host, f"gang {seen.seq}"
        kept = tuple(dict.fromkeys(b for b in seen.inputs if b not in seen.donated))
        for buffer in dict.fromkeys(seen.inputs):
            if (host, buffer) in self._users:
                self._use(host, buffer, by)
            elif not seen.placeholders:
                self.fail(f"{by} reads buffer {buffer} on host {host}, where it is not")
        for buffer in seen.donated:
            if (host, buffer) in self._users:
                self._free(host, buffer, by_gang=True)
        for buffer in seen.outputs:
            self._make(host, buffer, by)
        self._gangs[host, seen.seq] = (seen.devices, kept + seen.outputs)

    def _finished(self, seen: o.FinishedSeen) -> None:
        devices, buffers = self._gangs.get((seen.host, seen.seq), (spans.EMPTY, ()))
        devices = spans.minus(devices, seen.devices)
        if devices:
            self._gangs[seen.host, seen.seq] = (devices, buffers)
            return
        self._gangs.pop((seen.host, seen.seq), None)
        for buffer in buffers:
            if f"gang {seen.seq}" in self._users.get((seen.host, buffer), {}):
                self._unuse(seen.host, buffer, f"gang {seen.seq}")

    def _make(self, host: int, buffer: int, by: str) -> None:
        if (host, buffer) in self._users:
            self.fail(f"buffer {buffer} was made twice on host {host}")
        self._users[host, buffer] = {by: 1} if by else {}

    def _use(self, host: int, buffer: int, by: str) -> None:
        users = self._users.get((host, buffer))
        if users is None:
            self.fail(f"{by} uses buffer {buffer} on host {host}, where it is not")
        users[by] = users.get(by, 0) + 1

    def _unuse(self, host: int, buffer: int, by: str) -> None:
        users = self._users.get((host, buffer), {})
        if by not in users:
            self.fail(f"{by} stopped using buffer {buffer} on host {host}, which it did not use")
        users[by] -= 1
        if not users[by]:
            del users[by]

    def _free(self, host: int, buffer: int, by_gang: bool = False) -> None:
        """Remove the shards. With `by_gang`, a gang to which the buffer is donated takes them.

        Earlier gangs may still be entered as users then, but they have ended on their devices by the time it runs. So
        may a view that only such gangs use, and that nobody holds.
        """
        users = self._users.pop((host, buffer), None)
        if users is None:
            self.fail(f"host {host} freed buffer {buffer}, which it does not have (or freed before)")
        busy = [by for by in users if not (by_gang and self._ends_first(host, by))]
        if busy:
            self.fail(f"host {host} freed buffer {buffer} while {', '.join(busy)} uses it")
        folded = buffer in self._folded or (host, buffer) in self._to_fold
        self._to_fold.pop((host, buffer), None)
        if self._holders.get(buffer) and buffer not in self._lost and not folded:
            self.fail(f"host {host} freed buffer {buffer}, held by {', '.join(self._holders[buffer])}")

    def _ends_first(self, host: int, by: str) -> bool:
        """Whether this user of a buffer has ended when a gang runs that is launched now."""
        kind, _, number = by.partition(" ")
        if kind != "view":
            return kind == "gang"
        used = all(self._ends_first(host, each) for each in self._users.get((host, int(number)), {}))
        return used and not self._holders.get(int(number))

    def _fold(self, view: int, folded: bool) -> None:
        self._folded = {each: None for each in (*self._folded, view) if folded or each != view}
        if not folded:
            self._to_fold.update((shards, None) for shards in self._users if shards[1] == view)

    def _let_go(self, buffer: int, holder: str) -> None:
        holders = self._holders.get(buffer, {})
        if holder not in holders:
            self.fail(f"{holder} let go of buffer {buffer}, which it does not hold")
        holders[holder] -= 1
        if not holders[holder]:
            del holders[holder]

    def at_rest(self, now: int) -> None:
        for (host, buffer), users in self._users.items():
            if users:
                self.fail(f"buffer {buffer} on host {host} is still used by {', '.join(users)}")
            if not self._holders.get(buffer):
                self.fail(f"buffer {buffer} is on host {host}, but has no holder")
