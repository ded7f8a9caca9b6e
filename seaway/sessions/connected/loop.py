"""An asyncio loop in a daemon thread of its own. It carries the connections of all clients of a session."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from backend.streams import new_loop

T = TypeVar("T")
GRACE = 5.0  # seconds for what is still under way when the loop is to end


class Loop:
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
            self.do(self._cancel_all(), GRACE)
        except TimeoutError:
            pass
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(GRACE)
        if not self.thread.is_alive():
            self.loop.close()

    async def _cancel_all(self) -> None:
        mine = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not mine]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.loop.shutdown_default_executor()
