"""SimPy processes of the user's in a simulated session, and generators of theirs that call.

A process of `session.env` runs inside an event of the simulation, in whichever thread lets time pass. It waits only
where it yields, so it cannot call, since a call waits until the client's thread is free. `driven` runs the same
generator in a thread of its own instead, where calls may wait: that is what `session.spawn` does with one.

Neighbours: `port` makes the calls; `turns` lets threads wait.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from ...errors import NotNow
from .turns import ThreadTurns

Steps = Generator[simpy.Event, Any, Any]


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
