"""User threads take turns: one runs, all others wait in simulated time, and simulated time moves while all wait.

A thread that waits drives the simulation itself until some thread is ready, and hands the turn over if that is another
one. Threads that become ready at one time resume after all events of that time, lowest number first. So the same
program takes the same turns each time.

Threads that the session did not start (`threading.Thread`) join in with their first call. This module does not see what
such a thread, or the main one, does elsewhere. If it blocked there, in `join` say, while it had the turn, no thread
could go on. So a watcher thread checks every few milliseconds whether the thread with the turn has ended or is blocked
inside `threading` or a similar module. If so, the next thread gets the turn, and the blocked one waits for another turn
when it calls again.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty
from typing import Any, TypeVar

from sim.engine import LATE, Stuck, Unannounced
from sim.simulation import Simulation

from ...errors import SessionClosed, Stalled
from .turn_signal import TurnSignal

LOOK = 0.005  # seconds between two checks of the thread that has the turn
LOOKS = 6  # checks in a row that find it blocked at the same place before it loses the turn
WAITING = tuple(  # where Python's own library blocks
    str(Path(threading.__file__).with_name(name))
    for name in ("threading.py", "queue.py", "selectors.py", "concurrent", "asyncio", "multiprocessing")
)
GRACE = 1.0  # seconds that a thread has to end with its session
LAST = sys.maxsize  # the number of a visitor: others that are ready go first
PATIENCE = 20.0  # seconds before a message that a thread waits for its turn in vain


T = TypeVar("T")


class TurnThread:
    """A user's thread. `ready`: it has the turn or is in line for it; if not, it waits, for a time or for `over()`,
    which only changes when `source` pokes."""

    __slots__ = ("ended", "number", "over", "ready", "signal", "source", "thread", "what")

    def __init__(self, number: int, thread: threading.Thread) -> None:
        self.number, self.thread = number, thread
        self.signal = TurnSignal()  # that it is handed the turn
        self.ready = True
        self.ended = False
        self.over: Callable[[], bool] | None = None
        self.source: object = None
        self.what = ""


class ThreadTurns:
    """The turns of one session. Its state is changed only by the thread that has the turn, or under the lock."""

    def __init__(self, simulation: Simulation) -> None:
        self._sim = simulation
        self._parties: dict[int, TurnThread] = {}  # by the thread's identity
        self._line: list[TurnThread] = []  # ready, without the turn
        self._holder: TurnThread | None = None
        self._inside = False  # the holder runs code of this module, not the user's
        self._timed = 0  # threads that wait for what happens in simulated time, not for other threads
        self._count = 0
        self._switches = 0
        self._lock = threading.RLock()
        self._mine = threading.local()  # each thread's `party`
        self._watcher: threading.Thread | None = None
        self.stopped = False
        self.visited = False  # visitors may come while one thread sleeps

    # --- waiting ------------------------------------------------------------------------------------------

    def until(self, when: int, what: str) -> None:
        """Sleep until this time."""
        me = self._enter()
        if self._line or self._timed or self.visited:
            self._wait(me, None, what, when)
        else:  # no other thread can go on meanwhile
            try:
                self._sim.clock.run_to(when)
            except Unannounced as trouble:
                raise Stalled(str(trouble)) from None
        self._inside = False

    def wait(self, over: Callable[[], bool], what: str, source: object = None) -> None:
        """Until `over()`. `source`: who pokes when that may have changed."""
        me = self._enter()
        if not over():
            me.source = source
            self._wait(me, over, what)
        self._inside = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the turn for code that takes no simulated time."""
        self._enter()
        try:
            yield
        finally:
            self._inside = False

    def poke(self, source: object = None) -> None:
        """Make ready all threads that wait for this source, and whose condition now holds."""
        for party in self._parties.values():
            if party.over is not None and party.source is source and party.over():
                self._rouse(party)

    def _rouse(self, party: TurnThread) -> None:
        if not party.ready:
            party.ready, party.over = True, None
            self._line.append(party)

    def _wait(self, me: TurnThread, over: Callable[[], bool] | None, what: str, when: int = -1) -> None:
        me.ready, me.over, me.what = False, over, what
        if when >= 0:
            self._sim.clock.at(max(when, self._sim.now), self._rouse, me, priority=LATE)
        timed = over is None or me.source is not None
        self._timed += timed
        try:
            self._drive(me)
        finally:
            self._timed -= timed
            me.ready, me.over = True, None

    def _drive(self, me: TurnThread) -> None:
        """Let time pass, and hand the turn to threads that become ready, until this one is."""
        while True:
            if not self._line:
                self._pass_time()
            if self.stopped:
                self._check()
            following = self._next()
            if following is me:
                return
            self._hand_to(following)
            self._pause(me)
            if me.ready:
                return

    def _pass_time(self) -> None:
        sim = self._sim
        try:
            sim.run(until=self._line)
        except Stuck as stuck:
            waits = [each.what for each in self._parties.values() if not each.ready]
            raise Stalled(f"{'; '.join(waits)}: {stuck}") from None
        except Unannounced as trouble:
            raise Stalled(str(trouble)) from None
        while sim.clock.next_time() == sim.now and not self.stopped:
            sim.clock.step()

    def _next(self) -> TurnThread:
        with self._lock:
            line = self._line
            if len(line) == 1:
                return line.pop()
            found = min(line, key=lambda party: party.number)
            line.remove(found)
            return found

    def _hand_to(self, party: TurnThread) -> None:
        self._switches += 1
        self._holder = party
        party.signal.give()

    def _pause(self, me: TurnThread) -> None:
        while True:
            before = self._switches, self._sim.now
            try:
                me.signal.wait(PATIENCE)
                break
            except Empty:
                if (self._switches, self._sim.now) == before:  # else the simulation goes on, and is long
                    self._complain(me)
        self._check()

    def _check(self) -> None:
        if self.stopped:
            raise SessionClosed("the session was closed while this client was waiting in it")

    def _enter(self) -> TurnThread:
        """The user's code calls: wait until this thread has the turn."""
        if self.stopped:
            self._check()
        with self._lock:
            me: TurnThread = getattr(self._mine, "party", None) or self._me()
            if self._holder is not me and self._holder is not None and not self._holder.thread.is_alive():
                self._drop(self._holder)
                self._holder = None
            if self._holder is None:
                self._holder = me
            if self._holder is me:
                self._inside = True
                return me
            self._line.append(me)
            self._start_watcher()
        self._pause(me)
        return me

    def _me(self) -> TurnThread:
        """Of a thread that has not called before."""
        thread = threading.current_thread()
        found = self._parties.get(threading.get_ident())
        if found is None or found.thread is not thread:
            found = self._add(thread)
        self._mine.party = found
        return found

    def _add(self, thread: threading.Thread) -> TurnThread:
        party = self._parties[thread.ident or 0] = TurnThread(self._count, thread)
        self._count += 1
        return party

    def _drop(self, party: TurnThread) -> None:
        """Forget a thread that has ended, but not a new one to which the system has given its identity."""
        identity = party.thread.ident or 0
        if self._parties.get(identity) is party:
            del self._parties[identity]

    def visit(self, look: Callable[[], T]) -> T:
        """Look at the simulation from a thread that takes no part in it: at once while users' code runs, else between
        two events. The visitor comes behind all threads that are ready, so that it changes no turn of theirs."""
        with self._lock:
            if self.stopped or not self._inside or self._holder is None:
                return look()
            me = TurnThread(LAST, threading.current_thread())
            self._line.append(me)
        while True:
            try:
                me.signal.wait(GRACE)
                break
            except Empty:
                if self._over():
                    return look()
        try:
            return look()
        finally:
            with self._lock:
                if self._holder is me and not self._over():
                    self._go_on()

    def _over(self) -> bool:
        return self.stopped

    # --- the session's own threads ------------------------------------------------------------------------

    def spawn(self, name: str, work: Callable[[], None]) -> TurnThread:
        """Start a thread. It runs at the current simulated time, when it gets its turn."""
        self._enter()
        known = threading.Event()
        thread = threading.Thread(target=lambda: self._begin(known, work), name=name, daemon=True)
        thread.start()
        self._start_watcher()
        with self._lock:
            party = self._add(thread)
            self._line.append(party)
        known.set()
        self._inside = False
        return party

    def joined(self, party: TurnThread) -> None:
        what = f"{threading.current_thread().name} waits for {party.thread.name} to end"
        self.wait(lambda: party.ended, what)

    def _begin(self, known: threading.Event, work: Callable[[], None]) -> None:
        known.wait()
        me = self._parties[threading.get_ident()]
        try:
            self._pause(me)
            self._inside = False
            work()
        except SessionClosed:
            pass  # the session closed before the work began
        finally:
            self._finish(me)

    def _finish(self, me: TurnThread) -> None:
        """A spawned thread is done: hand the turn to another one, if there is any."""
        me.ended = True
        with self._lock:
            self._drop(me)
            if self._holder is me and not self.stopped:
                self._inside = True
                self.poke()
                self._go_on()

    def _go_on(self) -> None:
        """Give the turn to a ready thread; or to a waiting one, which lets time pass; or to none."""
        waiting = [party for party in self._parties.values() if not party.ready]
        if self._line:
            self._hand_to(self._next())
        elif waiting:
            self._hand_to(waiting[0])
        else:
            self._holder = None

    # --- the watcher thread ---------------------------------------------------------------------------------

    def _start_watcher(self) -> None:
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="seaway-watcher", daemon=True)
            self._watcher.start()

    def _watch(self) -> None:
        """Take the turn from a thread that several checks in a row have found blocked elsewhere."""
        seen: object = None
        looks = 0
        while not self.stopped:
            time.sleep(LOOK)
            with self._lock:
                holder = self._holder
                where = None if holder is None or self._inside else _waits_at(holder.thread)
                if holder is None or where is None or (where, self._switches) != seen:
                    seen, looks = (where, self._switches), 0
                    continue
                looks += 1
                if looks < LOOKS:
                    continue
                seen, self._inside = None, True
                if not holder.thread.is_alive():
                    self._drop(holder)
                self._go_on()
                self._inside = self._holder is not None

    def _complain(self, me: TurnThread) -> None:
        holder = self._holder
        if holder is not None and holder is not me and not self._inside:
            print(
                f"seaway: {me.thread.name} waits for its turn, which {holder.thread.name} has had for {PATIENCE:.0f} s "
                f"({_where(holder.thread)}); wait for other clients with task.result(), and for time with sw.sleep()",
                file=sys.stderr,
            )

    def stop(self) -> None:
        """Raise SessionClosed in all threads that wait."""
        self.stopped = True
        for party in list(self._parties.values()):
            self._line.append(party)  # the one that lets time pass, whichever that is, looks up
            party.signal.wake()

    def end(self) -> None:
        """Join the session's own threads, briefly: one may be busy in the user's code."""
        mine = threading.current_thread()
        for party in list(self._parties.values()):
            if party.thread is not mine and party.thread.daemon:
                party.thread.join(GRACE)


def _waits_at(thread: threading.Thread) -> object:
    """Where a thread is blocked, or "over" if it has ended; None if it is neither."""
    if not thread.is_alive():
        return "over"
    frame: Any = sys._current_frames().get(thread.ident or 0)
    if frame is None or not frame.f_code.co_filename.startswith(WAITING):
        return None
    return id(frame), frame.f_lasti, _used(thread)


def _used(thread: threading.Thread) -> int:
    """Milliseconds of CPU time used. A blocked thread uses none."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return 0
    try:
        return int(time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0)) * 1e3)
    except OSError:  # it has just ended
        return -1


def _where(thread: threading.Thread) -> str:
    frame: Any = sys._current_frames().get(thread.ident or 0)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "it is over"
