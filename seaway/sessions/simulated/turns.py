"""User threads take turns: one runs, all others wait for something in simulated time, and time moves while all wait.

A thread that waits drives the simulation itself until somebody is ready, and hands over if that is another. Whoever
becomes ready at one time resumes when all else of that time has happened, lowest number first: the same program
takes the same turns each time.

Threads that the session did not start (`threading.Thread`) take part as they call. What such a thread, or the main
one, does outside is not seen here: if it waits for another thread, in `join` say, while it has the turn, nothing
would go on. So an attendant looks every few milliseconds whether the thread at turn is over, or waits inside
`threading` and its kin; then the next one gets the turn, and it waits for its own when it calls again.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sim.engine import LATE, Stuck, Unannounced
from sim.simulation import Simulation

from ...errors import SessionClosed, Stalled

LOOK = 0.005  # seconds between two looks at who is at turn
LOOKS = 6  # that have found it at the same place, before it loses its turn
WAITING = tuple(  # where Python's own library waits
    str(Path(threading.__file__).with_name(name))
    for name in ("threading.py", "queue.py", "selectors.py", "concurrent", "asyncio", "multiprocessing")
)
GRACE = 1.0  # seconds that a thread has to end with its session
PATIENCE = 20.0  # seconds until it is said that a thread waits for its turn in vain


class Party:
    """A user's thread. `ready`: it is at turn, or in line for it; else it waits, for a time or until `over()`."""

    __slots__ = ("baton", "ended", "number", "over", "ready", "thread", "what")

    def __init__(self, number: int, thread: threading.Thread) -> None:
        self.number, self.thread = number, thread
        self.baton = threading.Event()
        self.ready = True
        self.ended = False
        self.over: Callable[[], bool] | None = None
        self.what = ""


class Turns:
    """What is here is touched only by the thread at turn, or under the lock."""

    def __init__(self, simulation: Simulation) -> None:
        self._sim = simulation
        self._parties: dict[int, Party] = {}  # by the thread's identity
        self._line: list[Party] = []  # ready, and not at turn
        self._holder: Party | None = None
        self._inside = False  # the holder is in here, and not in the user's code
        self._count = 0
        self._switches = 0
        self._lock = threading.RLock()
        self._attendant: threading.Thread | None = None
        self.stopped = False

    # --- waiting ------------------------------------------------------------------------------------------

    def until(self, when: int, what: str) -> None:
        """Sleep until this time."""
        me = self._enter()
        if len(self._parties) == 1:
            self._sim.run(until=when)
        else:
            self._wait(me, None, what, when)
        self._inside = False

    def wait(self, over: Callable[[], bool], what: str) -> None:
        me = self._enter()
        if not over():
            self._wait(me, over, what)
        self._inside = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """At turn, for something that takes no time."""
        self._enter()
        try:
            yield
        finally:
            self._inside = False

    def poke(self) -> None:
        """Something has come that somebody may wait for."""
        for party in self._parties.values():
            if party.over is not None and party.over():
                self._rouse(party)

    def _rouse(self, party: Party) -> None:
        if not party.ready:
            party.ready, party.over = True, None
            self._line.append(party)

    def _wait(self, me: Party, over: Callable[[], bool] | None, what: str, when: int = -1) -> None:
        me.ready, me.over, me.what = False, over, what
        if when >= 0:
            self._sim.clock.at(max(when, self._sim.now), self._rouse, me, priority=LATE)
        try:
            self._drive(me)
        finally:
            me.ready, me.over = True, None

    def _drive(self, me: Party) -> None:
        """Let time pass until somebody is ready, and give the turn away if that is not me; until it is."""
        while True:
            if not self._line:
                self._pass_time()
            self._check()
            following = self._next()
            if following is me:
                return
            self._hand_to(following)
            self._pause(me)
            if me.ready:
                return

    def _pass_time(self) -> None:
        sim, line = self._sim, self._line
        try:
            sim.run(until=lambda: bool(line) or self.stopped)
        except Stuck as stuck:
            waits = [each.what for each in self._parties.values() if not each.ready]
            raise Stalled(f"{'; '.join(waits)}: {stuck}") from None
        except Unannounced as trouble:
            raise Stalled(str(trouble)) from None
        while sim.clock.next_time() == sim.now and not self.stopped:
            sim.clock.step()

    def _next(self) -> Party:
        with self._lock:
            found = min(self._line, key=lambda party: party.number)
            self._line.remove(found)
            return found

    def _hand_to(self, party: Party) -> None:
        self._switches += 1
        self._holder = party
        party.baton.set()

    def _pause(self, me: Party) -> None:
        while not me.baton.wait(PATIENCE):
            self._complain(me)
        me.baton.clear()
        self._check()

    def _check(self) -> None:
        if self.stopped:
            raise SessionClosed("the session was closed while this client was waiting in it")

    def _enter(self) -> Party:
        """The user's code calls: from here on it is at turn."""
        self._check()
        with self._lock:
            me = self._me()
            if self._holder is not me and self._holder is not None and not self._holder.thread.is_alive():
                self._parties.pop(self._holder.thread.ident or 0, None)
                self._holder = None
            if self._holder is None:
                self._holder = me
            if self._holder is me:
                self._inside = True
                return me
            self._line.append(me)
            self._attend()
        self._pause(me)
        return me

    def _me(self) -> Party:
        thread = threading.current_thread()
        found = self._parties.get(threading.get_ident())
        if found is None or found.thread is not thread:
            found = self._add(thread)
        return found

    def _add(self, thread: threading.Thread) -> Party:
        party = self._parties[thread.ident or 0] = Party(self._count, thread)
        self._count += 1
        return party

    # --- the session's own threads ------------------------------------------------------------------------

    def spawn(self, name: str, work: Callable[[], None]) -> Party:
        """Begins when it is its turn, at this time."""
        self._enter()
        known = threading.Event()
        thread = threading.Thread(target=lambda: self._begin(known, work), name=name, daemon=True)
        thread.start()
        self._attend()
        with self._lock:
            party = self._add(thread)
            self._line.append(party)
        known.set()
        self._inside = False
        return party

    def joined(self, party: Party) -> None:
        self.wait(
            lambda: party.ended, f"{threading.current_thread().name} waits for {party.thread.name} to end"
        )

    def _begin(self, known: threading.Event, work: Callable[[], None]) -> None:
        known.wait()
        me = self._parties[threading.get_ident()]
        try:
            self._pause(me)
            self._inside = False
            work()
        except SessionClosed:
            pass  # before it had begun
        finally:
            self._finish(me)

    def _finish(self, me: Party) -> None:
        """Its work is done: somebody else goes on, if there is anybody."""
        me.ended = True
        with self._lock:
            self._parties.pop(me.thread.ident or 0, None)
            if self._holder is me and not self.stopped:
                self._inside = True
                self.poke()
                self._go_on()

    def _go_on(self) -> None:
        """Whoever is ready has the turn, or whoever waits, to let time pass; or nobody."""
        waiting = [party for party in self._parties.values() if not party.ready]
        if self._line:
            self._hand_to(self._next())
        elif waiting:
            self._hand_to(waiting[0])
        else:
            self._holder = None

    # --- the attendant ------------------------------------------------------------------------------------

    def _attend(self) -> None:
        if self._attendant is None:
            self._attendant = threading.Thread(target=self._look_around, name="seaway-attendant", daemon=True)
            self._attendant.start()

    def _look_around(self) -> None:
        """Takes the turn from a thread that waits elsewhere, when a few looks in a row have found it so."""
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
                    self._parties.pop(holder.thread.ident or 0, None)
                self._go_on()
                self._inside = self._holder is not None

    def _complain(self, me: Party) -> None:
        holder = self._holder
        if holder is not None and holder is not me and not self._inside:
            print(
                f"seaway: {me.thread.name} waits for its turn, which {holder.thread.name} has had for {PATIENCE:.0f} s "
                f"({_where(holder.thread)}); wait for other clients with task.result(), and for time with sw.sleep()",
                file=sys.stderr,
            )

    def stop(self) -> None:
        """Whoever waits is told that the session is closed."""
        self.stopped = True
        for party in list(self._parties.values()):
            party.baton.set()

    def end(self) -> None:
        """The session's threads have heard it, unless they are busy elsewhere."""
        mine = threading.current_thread()
        for party in list(self._parties.values()):
            if party.thread is not mine and party.thread.daemon:
                party.thread.join(GRACE)


def _waits_at(thread: threading.Thread) -> object:
    """Where a thread is, if it is over, or where threads wait for one another; else None."""
    if not thread.is_alive():
        return "over"
    frame: Any = sys._current_frames().get(thread.ident or 0)
    if frame is None or not frame.f_code.co_filename.startswith(WAITING):
        return None
    return id(frame), frame.f_lasti, _used(thread)


def _used(thread: threading.Thread) -> int:
    """Milliseconds of CPU time: whoever waits uses none."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return 0
    try:
        return int(time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0)) * 1e3)
    except OSError:  # it has just ended
        return -1


def _where(thread: threading.Thread) -> str:
    frame: Any = sys._current_frames().get(thread.ident or 0)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "it is over"
