"""The event loop of every process: uvloop's where there is one: a message takes a third less CPU time."""

from __future__ import annotations

import asyncio
import gc
import resource
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
DESCRIPTORS = 1 << 16
# Python's (700, 10, 10) looks through all objects several times a second in a busy process, and stops it for tens of
# milliseconds each time
COLLECTING = 20_000, 20, 20


def new_loop() -> asyncio.AbstractEventLoop:
    try:
        from uvloop import new_event_loop
    except ImportError:  # a system for which it is not built
        return asyncio.new_event_loop()
    return new_event_loop()


def take_descriptors() -> None:
    """Lets this process have as many connections as the system allows it: the usual limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def collect_rarely() -> None:
    """For processes of ours, when they have imported what they need: what exists now is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTING)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs the main coroutine of a process of ours, as `asyncio.run` does."""
    take_descriptors()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)
