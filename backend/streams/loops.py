"""The event loop of every process: uvloop's where there is one: a message takes a third less CPU time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def new_loop() -> asyncio.AbstractEventLoop:
    try:
        from uvloop import new_event_loop
    except ImportError:  # a system for which it is not built
        return asyncio.new_event_loop()
    return new_event_loop()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a process's main coroutine, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)
