"""One client of a simulated session: makes user calls on sim's client when the calling thread has its turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from core.client import Blocked, Client
from core.protocol import Command, OpenRecv, Unblocked
from sim.engine import LATE as AFTER
from sim.hosts import SimClient

from ..array_groups import ClientBuffer
from ..port import LATE, Act, Late, Submitted, check_open
from .simpy_processes import may_wait
from .values import Values

if TYPE_CHECKING:
    from .turns import ThreadTurns

T = TypeVar("T")


class SimPort:
    def __init__(self, client: SimClient, turns: ThreadTurns, values: Values) -> None:
        self._client, self._turns, self._values = client, turns, values
        self._unblocked = True
        self._to_call = f"client {client.title!r} waits to call"
        self.tell: Callable[[Command], None] = lambda effect: None
        self.tick: Callable[[], None] = lambda: None  # no time passes but by effects
        self.submitted: Submitted | None = values.ran
        client.on_effect = self._heard

    @property
    def client(self) -> Client:
        return self._client.client

    def now(self) -> int:
        return self._client.sim.now

    def call(self, act: Act[T]) -> T:
        client, turns = self._client, self._turns
        may_wait(client.sim.env, self._to_call)
        while True:
            due = client.due
            turns.until(due, self._to_call)
            while client.sim.now < client.free_at:  # another thread has called as this client meanwhile
                turns.until(client.free_at, self._to_call)
            check_open(client.client, client.title)
            answer = client.act(act)
            if not isinstance(answer, Blocked):
                return answer
            self._unblocked, what = False, f"client {client.title!r} waits for room to call: {answer.reason}"
            turns.wait(lambda: self._unblocked, what, self)

    def note(self, act: Callable[[Client, int], object]) -> None:
        if self._client.sim.env.active_process is not None:
            self._client.act(act)
            return
        with self._turns.held():
            self._client.act(act)

    def wait(self, over: Callable[[], bool], what: str, late: Late | None = None, until: int | None = None) -> None:
        sim = self._client.sim
        may_wait(sim.env, what)
        if late is not None:
            sim.clock.at(sim.now + LATE, self._late, over, late)
        if until is None:
            self._turns.wait(over, what, self)
        elif until > sim.now:
            sim.clock.at(until, self._turns.poke, self, priority=AFTER)
            self._turns.wait(lambda: over() or sim.now >= until, what, self)

    def _late(self, over: Callable[[], bool], late: Late) -> None:
        if not over():
            self._client.act(late)

    def sleep(self, nanoseconds: int) -> None:
        """For a look at whether something is ready. A SimPy process looks without letting time pass."""
        if self._client.sim.env.active_process is not None:
            return
        self._turns.until(self._client.sim.now + nanoseconds, f"client {self._client.title!r} sleeps")

    def _heard(self, effect: Command) -> None:
        if isinstance(effect, OpenRecv):
            return  # nobody waits for contents to begin to come
        if isinstance(effect, Unblocked):
            self._unblocked = True
        self.tell(effect)
        self._turns.poke(self)

    # --- contents: the simulation moves none; `Values` has them ----------------------------------------------

    def offer(self, buffer: ClientBuffer, content: Any, again: bool = False) -> None:
        self._values.put(buffer, content)

    def unreadable(self, buffer: ClientBuffer) -> Exception | None:
        return self._values.unreadable(buffer)

    def contents(self, buffer: ClientBuffer, request: int) -> Any:
        return self._values.contents(buffer)

    def close(self) -> None:
        self._client.act(lambda client, now: client.close(now))
