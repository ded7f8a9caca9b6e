"""What a session hears from core's client, and contents that it reads.

    fetch       Get of the whole array, once for all who read it or its shards; or of a shard, if that saves much
    began       a run, which is over when that is heard
    noted       waits of the program for runs, of which `tell_waited` tells core with the next call
    HEARD       what is done for each command of core's client

Neighbours: `cluster_calls` makes the calls; `cluster_buffers` has what becomes of buffers; `cluster_devices`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from core.client import Blocked, Client
from core.model import Value, ranges
from core.protocol import Blame, Command
from core.protocol import effects as e

from ..session import StatusError, invalid
from .cluster_arrays import Awaited, ClusterArray, Ref, ShardedContents, ShardOfArray, Token
from .cluster_buffers import BufferOutcome, SessionBuffers
from .cluster_calls import ClusterCalls
from .cluster_executables import ClusterPrograms
from .cluster_layouts import value_of
from .cluster_link import CallWatch, ClusterLink, fault_of_blame

T = TypeVar("T")
Contents = np.ndarray[Any, Any]
WhenRead = Callable[[Contents | StatusError], None]
FEW = 8  # shards of an array that are fetched one by one
SAVED = 4 << 20  # bytes that need not be moved if a shard is fetched alone: for less it is not worth a request more
WHOLE = -1  # instead of core's number of a shard


class WantedRead:
    """An array that somebody reads, or the shard `at` of its `parts`."""

    __slots__ = ("array", "at", "done", "number", "parts")

    def __init__(self, array: ClusterArray, parts: ShardedContents | None, at: int) -> None:
        self.array, self.parts, self.at = array, parts, at
        self.number = WHOLE if parts is None else parts.number(at)
        self.done: list[WhenRead] = []

    @property
    def value(self) -> Value:
        return value_of(self.array.type, 0) if self.parts is None else self.parts.shard_value(self.at)

    def here(self) -> Contents | None:
        """If the array is in this process."""
        found = self.array.here
        return found if found is None or self.parts is None else found[self.parts.boxes[self.at]]


class ClusterAnswers:
    def __init__(
        self, link: ClusterLink, calls: ClusterCalls, buffers: SessionBuffers, programs: ClusterPrograms,
        watch: CallWatch | None,
    ) -> None:  # fmt: skip
        self._link, self._calls, self._buffers, self._programs = link, calls, buffers, programs
        self._watch = watch
        self._runs: dict[int, BufferOutcome] = {}
        self.called = 0  # how often the program has called
        self._waited: dict[BufferOutcome, None] = {}  # runs for which it has waited since its last call
        self._wanted: dict[tuple[ClusterArray, int], WantedRead] = {}  # by core's number of the shard
        self._gets: dict[int, WantedRead] = {}  # by request
        link.heard, link.failed = self._heard, self._fail

    def began(self, run: int, outcome: BufferOutcome) -> None:
        self._runs[run], outcome.run = outcome, run

    # --- what the program waits for ------------------------------------------------------------------------

    def noted(self, refs: Sequence[Awaited], done: Callable[[T], None]) -> Callable[[T], None]:
        """`done`, for which the program waits; unless it calls meanwhile, for then it goes on without."""
        called = self.called

        def over(found: T) -> None:
            if self.called == called:
                made_by = [each.outcome for each in refs]
                self._waited.update((each, None) for each in made_by if each is not None and each.run)
            done(found)

        return over

    def tell_waited(self, client: Client) -> None:
        """A recorded session can be simulated under other settings only if its log says which calls wait for which
        runs."""
        for outcome in [each for each in self._waited if each.over]:
            del self._waited[outcome]
            client.waited(outcome.run, outcome.ended_at)

    # --- reading -------------------------------------------------------------------------------------------

    def fetch(self, ref: Ref, done: WhenRead) -> None:
        if isinstance(ref, Token):
            done(invalid("a token has no contents"))
        elif isinstance(ref, ClusterArray):
            self._want(ref, done)
        elif ref.alone is not None and ref.alone.settled:
            self._want(ref.alone, done)
        elif ref.parts.contents is not None:
            done(ref.parts.read(ref.at))
        elif self._goes_alone(ref.parts, ref.at):
            ref.parts.alone.add(ref.parts.number(ref.at))
            self._want(ref.parts.array, done, ref.parts, ref.at)
        else:
            self._want(ref.parts.array, partial(_came, ref, done))

    def _goes_alone(self, parts: ShardedContents, at: int) -> bool:
        """Whoever reads more than a few shards gets the whole array at once."""
        if parts.array.here is not None or (parts.array, WHOLE) in self._wanted:
            return False
        if parts.number(at) in parts.alone:
            return True
        return len(parts.alone) < FEW and parts.value.nbytes - parts.shard_value(at).nbytes >= SAVED

    def _want(self, array: ClusterArray, done: WhenRead, parts: ShardedContents | None = None, at: int = 0) -> None:
        read = WantedRead(array, parts, at)
        if parts is None and array.here is not None:
            done(array.here)
            return
        wanted = self._wanted.setdefault((array, read.number), read)
        wanted.done.append(done)
        if wanted is read:
            self._calls.order.do(partial(self._get, read))

    def _get(self, read: WantedRead) -> bool:
        if not self._calls.ready_to_be_read(read.array):
            return False
        found = read.array.wrong or read.here()
        if found is not None:
            self._brought(read, found)
            return True

        def act(client: Client, now: int) -> bool:
            request = client.get(read.array.name, now, read.number)
            if isinstance(request, Blocked):
                return False
            self._gets[request] = read
            if self._watch is not None:
                self._watch.got(request, read.value.nbytes, now)
            return True

        return self._calls.attempt(act, partial(self._brought, read))

    def _brought(self, read: WantedRead, found: Contents | StatusError) -> None:
        if read.parts is not None and not isinstance(found, StatusError):
            found = read.parts.shaped(found)
        self._wanted.pop((read.array, read.number), None)
        over, read.done = read.done, []
        for done in over:
            done(found)

    # --- what is heard -------------------------------------------------------------------------------------

    def _heard(self, command: Command) -> None:
        act = HEARD.get(type(command))
        if act is not None:
            act(self, command)
        if self._watch is not None:
            self._watch.hears(command)

    def _ended(self, said: e.RunEnded) -> None:
        outcome = self._runs.pop(said.run, None)
        if outcome is not None:
            outcome.ended_at = self._link.now()
            outcome.end(None if said.blame is None else fault_of_blame(said.blame))

    def _settled(self, said: e.BuffersReady) -> None:
        fault = None if said.blame is None else fault_of_blame(said.blame)
        for outcome, names in self._buffers.outcomes.covering(ranges.folded(said.buffers, few=2)):
            outcome.settle(names, fault)

    def _refused(self, said: e.CallRefused) -> None:
        if said.what == "get":
            self._got(said.name, said.blame)
        elif said.what == "program":
            self._programs.told(said.name, b"", said.blame)

    def _got(self, request: int, blame: Blame | None) -> None:
        read = self._gets.pop(request, None)
        if read is not None:
            self._brought(read, self._link.taken(request, read.value) if blame is None else fault_of_blame(blame))

    def _unblocked(self, said: e.Unblocked) -> None:
        self._programs.unblocked()
        self._calls.order.go_on()

    def _fail(self, fault: StatusError) -> None:
        """The session's client is lost: nothing will be heard any more."""
        if self._calls.over is None:
            self._calls.over, self._buffers.over = fault, True
            for outcome in [*self._runs.values(), *self._buffers.outcomes.values()]:
                outcome.end(fault)
            for read in list(self._wanted.values()):
                self._brought(read, fault)
            self._programs.lost(fault)
            self._calls.order.go_on()
            self._link.close()


def _came(shard: ShardOfArray, done: WhenRead, found: Contents | StatusError) -> None:
    """The array has been read of which this is a shard."""
    if not isinstance(found, StatusError):
        if shard.parts.contents is None:
            shard.parts.came(found)
        found = shard.parts.read(shard.at)
    done(found)


HEARD: Mapping[type, Callable[[ClusterAnswers, Any], None]] = {
    e.RunEnded: ClusterAnswers._ended,
    e.BuffersReady: ClusterAnswers._settled,
    e.Received: lambda answers, said: answers._got(said.request, said.blame),
    e.CallRefused: ClusterAnswers._refused,
    e.ProgramTold: lambda answers, said: answers._programs.told(said.program, said.about, said.blame),
    e.Unblocked: ClusterAnswers._unblocked,
}
