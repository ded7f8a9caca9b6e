"""Clients that call a program repeatedly, each a SimPy process, and the rates they reach.

sim = Simulation(setup)
one = Loop(sim, "a", task, ahead=1)
sim.run(until=lambda: one.ended >= 100)
rate(sim)
"""

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import simpy

from core.client import Blocked, Client, Submitted
from core.protocol import effects as e
from sim.simulation import Simulation

from .programs import Task


class Failed(Exception):
    """A run failed in an experiment that expects no failures."""


class Tally:
    """Counts ended calls of several clients."""

    count = 0
    failed = False


class Loop:
    """A client that calls `task` for ever, or `calls` times. `ahead` + 1 calls may be unfinished.

    chained: the result of a call is the argument of the next (which then waits for it on the devices, not here).
    """

    def __init__(
        self, sim: Simulation, name: str, task: Task, *, ahead: int = 0, calls: int = 0, weight: int = 1,
        chained: bool = True, dispatch: str = "parallel", tally: Tally | None = None,
    ) -> None:  # fmt: skip
        self.sim, self.task, self.name, self.weight = sim, task, name, weight
        self.ahead, self.calls, self.chained, self.dispatch = ahead, calls, chained, dispatch
        self.client = sim.client(name, weight=weight)
        self.client.on_effect = self._heard
        self.begun: dict[int, int] = {}  # run -> when it was called
        self.ends: list[tuple[int, int]] = []  # (called, ended) of each run that has, as the client saw it
        self.failures: list[str] = []
        self.tally = tally or Tally()
        self._open = 0
        self._answer = sim.env.event()
        self._results: list[int] = []
        for key, kernel in task.kernels.items():
            sim.kernels[key] = kernel
        sim.env.process(self._live())

    @property
    def ended(self) -> int:
        return len(self.ends)

    @property
    def done(self) -> bool:
        return bool(self.calls) and len(self.ends) + len(self.failures) >= self.calls

    def _heard(self, effect: e.Command) -> None:
        if isinstance(effect, e.RunEnded):
            self._open -= 1
            if effect.blame is None:
                self.ends.append((self.begun.pop(effect.run), self.sim.now))
                self.tally.count += 1
            else:
                self.failures.append(str(effect.blame))
                self.tally.failed = True
        elif isinstance(effect, e.CallRefused):
            raise Failed(f"client {self.name!r}: {effect.blame}")
        elif not isinstance(effect, e.Unblocked):
            return
        answer, self._answer = self._answer, self.sim.env.event()
        answer.succeed()

    def _live(self) -> Generator[simpy.Event, Any, None]:
        program = yield from self._call(lambda client, now: client.register(self.task.program, now))
        made = 0
        while not self.calls or made < self.calls:
            while self._open > self.ahead:
                yield self._answer
            args = (self._argument(),)
            submitted: Submitted = yield from self._call(
                lambda client, now, args=args: client.submit(  # type: ignore[misc]
                    program, args, now, dispatch=self.dispatch
                )
            )
            self.begun[submitted.run] = self.sim.now
            self._open += 1
            made += 1
            self._results.append(submitted.results[0])
            if not self.chained and len(self._results) > 2 * self.ahead + 2:
                self.client.act(lambda client, now: client.release((self._results.pop(0),), now))

    def _argument(self) -> int | bytes:
        if not self.chained or not self._results:
            return self.task.literal
        return self._results.pop()

    def _call(self, act: Callable[[Client, int], Any]) -> Generator[simpy.Event, Any, Any]:
        """Make a call when this client may, and again while the answer is `Blocked`."""
        while True:
            yield from self.client.turn()
            found = self.client.act(act)
            if not isinstance(found, Blocked):
                return found
            yield self._answer


def rate(sim: Simulation, computations: int = 1, skip: float = 1 / 3, period: int = 1) -> float:
    """Computations a second, with `computations` in a gang, without the first gangs, in which pipelines fill.

    It is measured over a multiple of `period` gangs, since ends of unfinished calls come in bursts.
    """
    ended = np.asarray(sim.trace.gangs.column("ended"))
    ended = np.sort(ended[ended >= 0])
    gaps = len(ended) - 1 - int(len(ended) * skip)
    gaps -= gaps % period
    if gaps < 1:
        raise ValueError(f"{len(ended)} gangs have no rate; run the simulation for longer")
    return float(gaps * computations * 1e9 / (ended[-1] - ended[-1 - gaps]))
