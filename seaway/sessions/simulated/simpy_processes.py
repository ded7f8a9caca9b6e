"""SimPy processes of the user's in a simulated session: they may call, and the session tells of those it left.

A process runs inside an event of the simulation, in whichever thread lets time pass. So it calls as the client that was
entered where it was started, and it cannot wait in a call: it waits only where it yields. `driven` runs the same
generator in a thread of its own instead, where calls may wait: that is what `session.spawn` does with one.

Neighbours: `port` makes the calls; `driver` gives the session's environment its `process`; `turns` lets threads wait.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from ...errors import NotNow
from ...wording import duration
from .. import ambient
from .turns import ThreadTurns

Steps = Generator[simpy.Event, Any, Any]
FEW = 64  # processes that are kept before those that are over are looked for
NAMED = 3  # processes that a warning names


class SessionProcess(simpy.Process):
    """A process that was started in a session, as `session.env.process(generator)`."""

    def __init__(self, env: simpy.Environment, generator: Steps) -> None:
        self.called = False  # a computation, or anything else of its client
        self.resumed = 0
        self._entered = ambient.EnteredCallers()
        super().__init__(env, generator)

    def _resume(self, event: simpy.Event) -> None:
        self.resumed += 1
        with ambient.inside(self._entered):
            super()._resume(event)

    @property
    def left(self) -> bool:
        """Whether a session that ends now leaves something of it undone that its user may count on: it has called, or
        it has not come past the first thing that it waits for. Others (a probe, a failure script) end as they are."""
        return self.is_alive and (self.called or self.resumed < 2)


class SessionProcesses:
    """The processes of one session."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._started: list[SessionProcess] = []
        self._room = FEW
        setattr(env, "process", self.start)  # noqa: B010 - as SimPy itself binds it, which its types do not say

    def start(self, generator: Steps) -> SessionProcess:
        made = SessionProcess(self._env, generator)
        if len(self._started) >= self._room:
            self._started = [process for process in self._started if process.is_alive]
            self._room = max(FEW, 2 * len(self._started))
        self._started.append(made)
        return made

    def not_waited_for(self) -> str:
        """A warning for a session that ends now; "" if there is nothing to say."""
        left = [process for process in self._started if process.left]
        if not left:
            return ""
        names = ", ".join(repr(process.name) for process in left[:NAMED]) + ", ..." * (len(left) > NAMED)
        begun = "" if any(process.called for process in left) else ", which had yet to begin"
        return (
            f"the session ended at {duration(int(self._env.now))} and did not wait for "
            f"{len(left)} SimPy process{'es' * (len(left) > 1)} of yours ({names}{begun}). Start it with "
            f"s.spawn({left[0].name}, ...), as a client that the session waits for; or let the time pass that it "
            f"takes, with s.sleep(...)"
        )


def may_wait(env: simpy.Environment, what: str) -> None:
    """Raise if a SimPy process is what runs now."""
    process = env.active_process
    if process is not None:
        raise NotNow(
            f"SimPy process {process.name!r} cannot wait in a call ({what}), since it waits only where it yields: "
            f"start it with s.spawn({process.name}, ...), as a client whose calls may wait"
        )


def driven(steps: Steps, name: str, turns: ThreadTurns) -> Any:
    """Run a generator as SimPy does, in this thread: wait for each event that it yields, and return what it returns."""
    answer: Any = None
    failed: Any = None
    try:
        while True:
            event: object = steps.throw(failed) if failed is not None else steps.send(answer)
            failed = None
            if not isinstance(event, simpy.Event):
                failed = TypeError(f"client {name!r} yields {event!r}, and only SimPy events can be waited for")
                continue
            _wait(event, name, turns)
            answer, failed = (event.value, None) if event.ok else (None, event.value)
    except StopIteration as over:
        return over.value
    finally:
        steps.close()


def _wait(event: simpy.Event, name: str, turns: ThreadTurns) -> None:
    def come(event: simpy.Event) -> None:
        event.defused = True  # the generator is told of a failure
        turns.poke(event)

    if event.callbacks is not None:
        event.callbacks.append(come)
        turns.wait(lambda: event.processed, f"client {name!r} waits for {event!r}", event)
