"""This host's shards of logical buffers: when their contents are here, whether they are spoilt, when they
are free.

Names follow the stream: a buffer can be named from the step that makes it until the step that reads it
last, donates it or frees it has been read; its memory follows the devices, and lives until those steps have
ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ...model import Layout
from ...protocol import Blame, Cause, FreeBuffer, Held
from .desk import Desk
from .waits import Causes

Label = tuple[int, int]  # (client, the client's name for it)
Use = tuple[int, Cause]  # (seq, what ends it)


class Shard:
    """`blame`: known when a reader launches, whatever the interleaving. `final`: known when its maker has
    ended.

    A gang that fails while it runs sets only `final`: gangs behind it may have been launched by then, or
    not, and the launch must be the same. They end behind it, and take the blame then."""

    __slots__ = (
        "blame",
        "buffer",
        "final",
        "foreign",
        "labels",
        "layout",
        "made",
        "made_seq",
        "spilled",
        "user",
        "uses",
        "void",
    )

    def __init__(
        self, buffer: int, layout: Layout | None, made: Cause | None, made_seq: int, *,
        foreign: bool = False, user: int = -1,
    ) -> None:  # fmt: skip
        self.buffer = buffer
        self.layout = layout
        self.made = made  # contents are here when this has happened; None: always
        self.made_seq = made_seq
        self.foreign = foreign  # not made by a launch of this host: a launch that reads it waits for `made`
        self.user = (
            user  # last gang in the order that makes or reads it; devices run in order, so it ends last
        )
        self.uses: tuple[Use, ...] = ()  # sends, and copies
        self.blame: Blame | None = None
        self.final: Blame | None = None
        self.labels: tuple[Label, ...] = ()
        self.spilled = False  # in host memory, once the copy that was ordered is over
        self.void = False  # its maker never ran here: there is nothing to free

    def spoil(self, blame: Blame | None) -> None:
        """Its contents have come, or never will. The first blame stays."""
        self.blame = self.final = self.final or blame


class Shards:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.named: dict[int, Shard] = {}
        self.lost: dict[int, Blame] = {}  # dropped with a host; what was ordered before may still name them

    def get(self, buffer: int) -> Shard | None:
        return self.named.get(buffer)

    def add(self, shard: Shard) -> None:
        self.named[shard.buffer] = shard

    def make(self, buffer: int, layout: Layout) -> None:
        """Its contents came with the stream."""
        self.named[buffer] = Shard(buffer, layout, None, -1)

    def read(self, buffer: int, seq: int) -> Shard:
        """For a gang, which launches whatever its inputs are: what is not here is spoilt."""
        shard = self.named.get(buffer)
        if shard is None:
            shard = Shard(buffer, None, None, -1)
            shard.spoil(
                self.missing(buffer, f"gang {seq} reads buffer {buffer}, which is not on this host", seq)
            )
        return shard

    def missing(self, buffer: int, text: str, seq: int) -> Blame:
        """Why it is not here: lost, or a mistake of the controller's."""
        return self.lost.get(buffer) or self._desk.fault(text, seq)

    def here(self, shard: Shard) -> Causes:
        """What its contents still wait for."""
        made = shard.made
        return (made,) if made is not None and self._desk.live(shard.made_seq, made) else ()

    def idle(self, shard: Shard) -> Causes:
        """What ends all use of it that was ordered so far. Every use waits for its contents, so the last
        uses do."""
        live = self._desk.live
        user: Cause = ("done", shard.user)
        causes: Causes = (user,) if shard.user >= 0 and live(shard.user, user) else ()
        causes += tuple(cause for seq, cause in shard.uses if live(seq, cause))
        return causes or self.here(shard)

    def retire(self, shard: Shard, causes: Causes) -> None:
        """Nothing later in the stream names it: free it when it is idle."""
        if self.named.pop(shard.buffer, None) is None:
            return
        idle = tuple(cause for cause in self.idle(shard) if cause not in causes)
        self._desk.waits.when(causes + idle, partial(self.free, shard))

    def free(self, shard: Shard, causes: Causes) -> None:
        if not shard.void:
            self._desk.out.append(FreeBuffer(shard.buffer, causes))

    def drop(self, buffers: tuple[int, ...], blame: Blame) -> None:
        """Lost with a host, or nobody's. A message that was lost with its path may still come and name it."""
        self.lost.update(dict.fromkeys(buffers, blame))
        for buffer in buffers:
            self.retire_lost(buffer)

    def retire_lost(self, buffer: int) -> None:
        """It was made after it was lost."""
        shard = self.named.get(buffer)
        if shard is not None and buffer in self.lost:
            self.retire(shard, (self._desk.order,))

    def new_epoch(self) -> None:
        """All that named them has drained."""
        self.lost.clear()

    def state(self) -> tuple[Any, ...]:
        """What later steps may depend on, in a form that can be compared."""
        live = self._desk.live
        found = []
        for shard in self.named.values():
            made = shard.made if shard.made is not None and live(shard.made_seq, shard.made) else None
            made_seq = shard.made_seq if made is not None or shard.final is not None else -1
            user = shard.user if shard.user >= 0 and live(shard.user, ("done", shard.user)) else -1
            uses = tuple(use for use in shard.uses if live(*use))
            found.append(
                (
                    shard.buffer, shard.layout, made, made_seq, shard.foreign and made is not None, user, uses,
                    shard.blame, shard.final, shard.labels, shard.spilled, shard.void,
                )
            )  # fmt: skip
        return tuple(found), tuple(self.lost.items())

    def held(self) -> Iterator[Held]:
        """Of this a controller that restarts rebuilds what its clients hold; what was promised to nobody (client 0)
        is what runs left behind, whose other steps will never come: it is named so that it can be freed."""
        pending = self._desk.waits.pending
        for shard in self.named.values():
            ready = shard.final is None and not (shard.made is not None and pending(shard.made))
            if shard.layout is not None:
                for client, name in shard.labels or ((0, 0),):
                    yield Held(shard.buffer, client, name, shard.layout, ready, shard.spilled)
