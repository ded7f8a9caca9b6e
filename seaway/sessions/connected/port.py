"""One client of a real session: makes user calls on core's client, and lets user threads wait for its replies.

Each waiting thread sleeps on a lock of its own, which `ring` opens. So Ctrl-C ends the wait at once and leaves only
that lock behind.
"""

from __future__ import annotations

import logging
import time
from _thread import LockType, allocate_lock
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from backend.client import PutOffer, Remote
from core.client import Blocked, Client
from core.model import Illegal
from core.protocol import Command, LogLine, Unblocked

from ...errors import TimedContents
from ...specs import avals
from ..array_groups import ClientBuffer
from ..port import LATE, Act, Late, Submitted, check_open
from .interrupts import SHIELD

if TYPE_CHECKING:
    from .driver import RealDriver

T = TypeVar("T")
LOOK = 1.0  # seconds between checks of the connection during a wait
LONG = 10.0  # seconds after which a wait is logged; then after twice as many, and so on

log = logging.getLogger("seaway")


class RealPort:
    def __init__(self, driver: RealDriver, title: str, client: Client) -> None:
        self._driver, self._title, self._client = driver, title, client
        self._waiters: list[LockType] = []
        self._blocked = False
        self._pending: list[tuple[PutOffer, Any, avals.Aval]] = []  # puts of the call under way
        self._last = ""  # the last text that the client told since a wait began
        self.tell: Callable[[Command], None] = lambda effect: None
        self.tick: Callable[[], None] = lambda: None
        self.submitted: Submitted | None = None
        self.remote: Remote  # set by the driver, at once

    @property
    def client(self) -> Client:
        return self._client

    def now(self) -> int:
        return self._driver.now()

    # --- calls ------------------------------------------------------------------------------------------------

    def call(self, act: Act[T]) -> T:
        acted = partial(self._acted, act)
        while True:
            with SHIELD:
                self._driver.check()
                try:
                    answer = self.remote.act(acted)
                finally:
                    if self._pending:
                        self._copy()
            if not isinstance(answer, Blocked):
                return answer
            self.wait(lambda: not self._blocked, f"client {self._title!r} waits for room to call: {answer.reason}")

    def _acted(self, act: Act[T], client: Client, now: int) -> T | Blocked:
        """Set `_blocked` under the same lock as the call, so that no `Unblocked` is missed."""
        try:
            answer = act(client, now)
        except Illegal:
            check_open(client, self._title)
            raise
        self._blocked = isinstance(answer, Blocked)
        return answer

    def _copy(self) -> None:
        """Copy contents that were put, before the call returns. No lock is held, since large copies take a while."""
        pending, self._pending = self._pending, []
        for offer, content, aval in pending:
            array = None
            try:
                array = owned(content, aval)
            finally:
                offer.give(array)

    def note(self, act: Callable[[Client, int], object]) -> None:
        with SHIELD:
            self.remote.act(act)

    # --- waiting ----------------------------------------------------------------------------------------------

    def wait(self, over: Callable[[], bool], what: str, late: Late | None = None, until: int | None = None) -> None:
        self._last = ""
        bell = allocate_lock()
        bell.acquire()
        self._waiters.append(bell)
        begun = looked = time.monotonic()
        complain = LONG
        try:
            while not over():
                self._driver.check()
                longest = LOOK if late is None else LATE / 1e9
                if until is not None:
                    longest = min(longest, (until - self.now()) / 1e9)
                    if longest <= 0:
                        break
                rung = bell.acquire(timeout=longest)
                if late is not None and not rung:
                    self.note(late)
                    late = None
                now = time.monotonic()
                if now - looked < LOOK:
                    continue
                looked = now
                self._look()
                self.tick()
                if now - begun >= complain:
                    log.warning("%s", self._why(what, now - begun))
                    complain *= 2
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(f"seaway: {self._why(what, time.monotonic() - begun)}")
            raise
        finally:
            self._waiters.remove(bell)

    def _why(self, what: str, seconds: float) -> str:
        """Why a wait goes on, by the controller's report if there is one; or else the last text the client told."""
        with SHIELD:
            words = self.remote.awaited()
        if words:
            return f"{words}; {what}"
        return f"{what}, for {seconds:.0f} s now{self._last and f'; {self._last}'}"

    def _look(self) -> None:
        """Fail the session if the controller has been away longer than `patience`. It may be restarted meanwhile."""
        with SHIELD:
            away = self.remote.away()
        if away >= self._driver.patience:
            self._driver.lost(away)

    def ring(self) -> None:
        """Wake all waiting threads. Called under the node's lock or after the session's end, so never twice at once."""
        for bell in list(self._waiters):
            if bell.locked():
                bell.release()

    def heard(self, effect: Command) -> None:
        """Take an effect of core's client. Called under the node's lock."""
        if isinstance(effect, Unblocked):
            self._blocked = False
        elif isinstance(effect, LogLine) and not effect.passing:
            self._last = effect.text
        self.tell(effect)
        self.ring()

    def sleep(self, nanoseconds: int) -> None:
        self._driver.sleep(nanoseconds)

    # --- contents ---------------------------------------------------------------------------------------------

    def offer(self, buffer: ClientBuffer, content: Any, again: bool = False) -> None:
        self._pending.append((self.remote.offer(buffer.name, again), content, buffer.aval))

    def unreadable(self, buffer: ClientBuffer) -> Exception | None:
        if not self._driver.contents and not self._driver.closed:
            return TimedContents(f"{buffer.aval!r}, {buffer.label},")
        return None

    def contents(self, buffer: ClientBuffer, request: int) -> Any:
        return self.remote.taken(request)

    # --- the end ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """All clients of a session leave together, at its end."""


def owned(content: Any, aval: avals.Aval) -> np.ndarray[Any, Any]:
    """The contents as a row-major array of canonical type that no other code can write to."""
    found = avals.host_array(content, aval)
    if aval.dtype == avals.KEY:  # a key is two words; on the wire it is one number of eight bytes
        found = np.ascontiguousarray(found).view(np.uint64).reshape(aval.shape)
    if found is content or found.flags.writeable or not found.flags.c_contiguous:
        found = np.array(found, order="C")
    return found
