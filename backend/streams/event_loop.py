"""The event loop of every process: uvloop's where there is one: a message takes a third less CPU time."""

import asyncio
import gc
import resource
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
DESCRIPTORS = 1 << 16
# Python's (700, 10, 10) looks through all objects several times a second in a busy process, and stops it for tens of
# milliseconds each time
COLLECTING = 20_000, 20, 20
GRACE = 5.0  # seconds for what is still under way when a loop in a thread is to end


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


class LoopThread:
    """A loop in a daemon thread of its own, for what does not live in a loop: a session, a page."""

    def __init__(self, name: str = "seaway-connections") -> None:
        self.loop = new_loop()
        self.thread = threading.Thread(target=self._turn, name=name, daemon=True)
        self.thread.start()

    def _turn(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def do(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the loop and wait for its result, from another thread. An interrupt cancels it."""
        future = self.begin(work)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel all tasks and end the thread."""
        if self.loop.is_closed():
            return
        try:
            self.do(self.cancel_all(), GRACE)
        except TimeoutError:
            pass
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(GRACE)
        if not self.thread.is_alive():
            self.loop.close()

    async def cancel_all(self) -> None:
        mine = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not mine]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.loop.shutdown_default_executor()
