"""Lets simulated time pass while JAX programs wait, and only then.

A program runs in real time; what it waits for comes in simulated time, which stands still while a program runs. A
program waits if it has asked for what only simulated time brings and has been silent for a moment since: what it has
asked for may be wanted later (`copy_to_host_async`), and meanwhile it calls. Its calls take simulated time, too. If
several programs are there, time passes when all of them wait; one that has been silent for longer is not awaited, for
it may be idle. So the time of a single program does not depend on how fast this machine is, but for such moments.

Neighbours: `simulated_link` says what its program does; `simulated_cluster`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from core.protocol import Command
from sim.engine import Stuck, Unannounced
from sim.simulation import Simulation

if TYPE_CHECKING:
    from .simulated_link import SimulatedLink

log = logging.getLogger("seaway.door")
PAUSE = 0.001  # seconds of silence, after which a program that has asked for something waits for it
ABSENT = 0.05  # seconds of silence, after which others do not wait for a program


class SimulatedTime:
    """Make it on the loop's thread. `news`: what clients have heard, and their programs have not yet."""

    def __init__(self, simulation: Simulation) -> None:
        self._sim, self._loop = simulation, asyncio.get_running_loop()
        self.links: dict[SimulatedLink, None] = {}
        self.news: list[tuple[SimulatedLink, Command | None]] = []
        self._turn: asyncio.Handle | None = None

    def poke(self) -> None:
        """Something has changed: perhaps time may pass."""
        self._take_turn(0.0)

    def _take_turn(self, seconds: float) -> None:
        if self._turn is not None:
            self._turn.cancel()
        loop = self._loop
        self._turn = loop.call_later(seconds, self._go_on) if seconds else loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Tells programs what there is, and lets time pass until there is more."""
        self._turn = None
        self.tell()
        for link in list(self.links):
            link.leave()
        seconds = self._silence()
        if self.news:
            self.poke()
        elif seconds is not None:
            if seconds <= 0:
                self._pass()
            self._take_turn(max(0.0, seconds))

    def tell(self) -> None:
        news, self.news[:] = self.news.copy(), []
        for link, command in news:
            link.hears(command)

    def _silence(self) -> float | None:
        """Seconds of silence that are missing until time may pass; None: nobody waits, or somebody works."""
        links = self.links
        if not any(link.needs_time for link in links) or any(link.at_work for link in links):
            return None
        now = self._loop.time()
        return max(link.spoke_at + _patience(link) - now for link in links)

    def _pass(self) -> None:
        sim = self._sim
        leaving = [link for link in self.links if link.leaving]
        until: Any = self.news
        if leaving:  # nobody is told that a session has closed
            until = lambda: self.news or any(link.closed_there for link in leaving)  # noqa: E731
        try:
            sim.run(until=until)
            while sim.clock.next_time() == sim.now:
                sim.clock.step()
        except (Stuck, Unannounced) as trouble:
            self._fail(f"what the program waits for cannot come: {trouble}")
        except Exception as error:  # a fault of the simulator's, which programs should not wait for
            log.exception("the simulation at %d ns", sim.now)
            self._fail(f"the simulation has failed: {type(error).__name__}: {error}")

    def _fail(self, text: str) -> None:
        for link in list(self.links):
            if link.needs_time:
                link.fails(text)


def _patience(link: SimulatedLink) -> float:
    if link.in_call or link.leaving:
        return 0.0
    return PAUSE if link.needs_time else ABSENT
