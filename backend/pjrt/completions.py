"""Waits for enqueued programs in order, in one thread, and reports their ends.

Each program has one output that nothing reads or donates: when it is ready, the program has run on all of this
host's devices (`LaunchableCode.launch`). This module also limits how many programs of several devices are outstanding:
JAX hangs or blocks at 32. Neighbours: `launcher`, `store`.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice, repeat
from typing import Any

import numpy as np

from core.protocol import Blame
from core.protocol import effects as e

from ..devices import GangTimes
from . import jax_errors
from .store import is_there, ready
from .stored_buffers import StoredBuffer, StoredOutputs
from .worker_thread import show_name

OUTSTANDING = 31  # most programs of several devices in one process
LOOK = 16  # launches at which `_ended_at` looks, for whether they are over, too


class Flight:
    """One launch. `bounds`: for an irregular one, for each output (rows in all, rows of a shard). `enqueued`: its
    time by the clock of the stamps; -1: no device runs it. `devices`: this host's that run it."""

    __slots__ = (
        "blame", "bounds", "collective", "devices", "enqueued", "multi", "name", "outputs", "run", "seq", "together",
        "token",
    )  # fmt: skip

    def __init__(
        self, seq: int, token: Any, outputs: Sequence[StoredBuffer | StoredOutputs], *, multi: bool,
        together: bool, name: str, blame: Blame | None = None,
        bounds: Sequence[tuple[int, int]] | None = None,
        run: int = -1, enqueued: int = -1, collective: bool = True, devices: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.seq, self.token, self.outputs = seq, token, outputs
        self.multi = multi  # several devices, of this host or others, run it together
        self.together = together  # other hosts take part
        self.name, self.blame, self.bounds = name, blame, bounds
        self.run, self.enqueued, self.collective, self.devices = run, enqueued, collective, devices


class Completions:
    """`pack(buffer, rows)` is told the rows of an output's largest shard. `stamps` records when gangs ended."""

    def __init__(
        self,
        post: Callable[[e.Event], None],
        pack: Callable[[StoredBuffer, int], None] = lambda buffer, rows: None,
        stamps: GangTimes | None = None,
    ) -> None:
        self._post, self._pack = post, pack
        self.stamps = GangTimes() if stamps is None else stamps
        self._lock = threading.Condition()
        self._queue: deque[Flight] = deque()
        self._head: Flight | None = None
        self._outstanding = 0  # programs of several devices
        self._abandoned: set[int] = set()
        self._turn = 0  # number of the current waiting thread; a stuck one is left behind
        self._ended = False
        self._left: list[Flight] = []  # abandoned launches that may be stuck
        self._free_since: dict[int, int] = {}  # device -> when its last launch ended
        self._start()

    # --- the launching thread -------------------------------------------------------------------------------

    def room(self, seq: int) -> bool:
        """Waits until one more program of several devices may be enqueued. False: do not launch it any more."""
        with self._lock:
            self._lock.wait_for(lambda: self._outstanding < OUTSTANDING or seq in self._abandoned or self._ended)
            return seq not in self._abandoned and not self._ended

    def add(self, flight: Flight) -> None:
        """Adds a launch. A small program has often run by now: then it is reported at once, since handing it to
        the other thread would take longer. Posts are made under the lock, and so in the order of the launches."""
        with self._lock:
            if not self._queue and self._head is None and self._over_already(flight):
                self._tell(flight, _outcome(flight), self._ended_at(flight, self.stamps.now()))
                return
            self._outstanding += flight.multi
            self._queue.append(flight)
            self._lock.notify_all()

    def _over_already(self, flight: Flight) -> bool:
        return flight.seq not in self._abandoned and not self._ended and is_there(flight.token)

    def failed(self, seq: int, blame: Blame) -> None:
        """Adds a launch that failed while it was enqueued; it is reported in its turn."""
        self.add(Flight(seq, None, (), multi=False, together=False, name="", blame=blame))

    def given_up(self, seq: int) -> bool:
        with self._lock:
            return seq in self._abandoned

    # --- any thread -------------------------------------------------------------------------------------------

    def abandon(self, seqs: Sequence[int]) -> None:
        """Stops waiting for these launches. If one of them is stuck, those behind it need not wait for it."""
        with self._lock:
            self._abandoned.update(seqs)
            if self._head is not None and self._head.seq in self._abandoned:
                self._leave_behind(self._head)
                self._start()
            self._lock.notify_all()

    def clear(self) -> list[Any]:
        """Drops all launches, since the world has ended. Returns the tokens of those that are stuck."""
        with self._lock:
            if self._head is not None:
                self._leave_behind(self._head)
                self._start()
            while self._queue:
                self._leave_behind(self._queue.popleft())
            left, self._left = self._left, []
            self._abandoned.clear()
            self._lock.notify_all()
        return [flight.token for flight in left if not is_there(flight.token)]

    @property
    def outstanding(self) -> int:
        return len(self._queue) + (self._head is not None)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            self._turn += 1
            self._lock.notify_all()

    # --- the waiting thread -----------------------------------------------------------------------------------

    def _start(self) -> None:
        self._turn += 1
        threading.Thread(target=self._run, args=(self._turn,), name="completions", daemon=True).start()

    def _leave_behind(self, flight: Flight) -> None:
        for buffer in flight.outputs:
            buffer.spoil("its maker was abandoned")
        flight.outputs = ()
        self._outstanding -= flight.multi
        self._left = [each for each in (*self._left, flight) if each.token is not None and not is_there(each.token)]
        if self._head is flight:
            self._head = None

    def _run(self, turn: int) -> None:
        show_name()
        while (flight := self._next(turn)) is not None:
            outcome, seen = _outcome(flight), self.stamps.now()
            with self._lock:
                if self._turn != turn:
                    return
                self._head = None
                self._outstanding -= flight.multi
                told = flight.seq not in self._abandoned
                ended = self._ended_at(flight, seen)
                self._abandoned.discard(flight.seq)
                self._lock.notify_all()
                if told:
                    self._tell(flight, outcome, ended)
            del (flight, outcome)  # so that the wait for the next one keeps nothing of an ended world alive

    def _ended_at(self, flight: Flight, seen: int) -> int:
        """When a launch ended that was seen to be over. This thread shares Python with others and may come late, and
        then it finds several over, which the devices ran one after the other: the time is divided evenly among them.
        """
        more = 0
        for other in islice(self._queue, LOOK):
            if other.devices != flight.devices or not is_there(other.token):
                break
            more += 1
        if more:
            since = max(map(self._free_since.get, flight.devices, repeat(0)), default=0)
            started = min(max(flight.enqueued, since), seen)
            seen = started + (seen - started) // (more + 1)
        self._free_since.update(dict.fromkeys(flight.devices, seen))
        return seen

    def _tell(self, flight: Flight, outcome: e.Finished, ended: int) -> None:
        """Reports an end. Gangs that read the outputs are reported later."""
        if flight.enqueued >= 0:
            self.stamps.took(flight.seq, flight.run, flight.enqueued, ended, flight.collective)
        for buffer, rows in zip(flight.outputs, outcome.sizes, strict=False):
            assert isinstance(buffer, StoredBuffer)  # those of irregular gangs are
            self._pack(buffer, rows)
        self._post(outcome)

    def _next(self, turn: int) -> Flight | None:
        with self._lock:
            while True:
                self._lock.wait_for(lambda: self._turn != turn or bool(self._queue))
                if self._turn != turn:
                    return None
                flight = self._queue.popleft()
                if flight.seq not in self._abandoned:
                    self._head = flight
                    return flight
                self._abandoned.discard(flight.seq)
                self._leave_behind(flight)
                self._lock.notify_all()


def _outcome(flight: Flight) -> e.Finished:
    """Waits for the end of a launch."""
    blame, sizes = flight.blame, tuple[int, ...]()
    try:
        if flight.token is not None:
            ready(flight.token)
        if flight.bounds is not None:
            sizes = _sizes(flight, int(np.asarray(flight.token.addressable_shards[0].data)))
    except Exception as error:
        blame = blame or jax_errors.of(error, together=flight.together)
    if blame is not None:
        for buffer in flight.outputs:  # gangs that are launched with these from now on take placeholders
            buffer.spoil(blame.cause)
    return e.Finished(flight.seq, blame, sizes if blame is None else ())


def _sizes(flight: Flight, count: int) -> tuple[int, ...]:
    """For each output, the rows of its largest shard: valid rows come first."""
    assert flight.bounds is not None
    most = min((whole for whole, _ in flight.bounds), default=count)
    if not 0 <= count <= most:
        raise ValueError(f"{flight.name!r} made {count} rows, but its bound is {most}")
    return tuple(min(count, shard) for _, shard in flight.bounds)
