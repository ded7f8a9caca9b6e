"""A thread that does one piece of work after another: where order matters, or work may block.

Neighbours: all modules of `pjrt` that have a thread.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

log = logging.getLogger("seaway.pjrt")
T = TypeVar("T")
Work = tuple[Callable[..., Any], tuple[Any, ...]]


class WorkerThread:
    """A worker thread. `failed` gets unexpected errors; the thread goes on."""

    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int | None:
        return self._thread.ident

    def do(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._put((work, arguments))

    def ask(self, work: Callable[..., T], *arguments: Any) -> T:
        """Waits for its turn, and returns its result. Do not call it in this thread."""
        done = threading.Event()
        answer: list[Any] = []

        def answered() -> None:
            try:
                answer.append(work(*arguments))
            except BaseException as error:
                answer.extend((None, error))
            finally:
                done.set()

        self.do(answered)
        done.wait()
        if len(answer) > 1:
            raise answer[1]
        found: T = answer[0]
        return found

    def end(self, patience: float = 5.0) -> bool:
        """Ends the thread behind all its work. False: the thread is stuck, and is left behind."""
        self._put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(patience)
        return not self._thread.is_alive()

    def _put(self, work: Work | None) -> None:
        self._queue.put(work)

    def _run(self) -> None:
        show_name()
        while (item := self._queue.get()) is not None:
            self._safely(item[0], item[1])
            del item  # so that finished work keeps nothing alive

    def _safely(self, work: Callable[..., T], arguments: tuple[Any, ...] = ()) -> T | None:
        try:
            return work(*arguments)
        except BaseException as error:
            self._tell_of(error)
            return None

    def _tell_of(self, error: BaseException) -> None:
        """Tells of an error that nobody expected."""
        log.error("%s: %s", self._thread.name, error, exc_info=error)
        self._failed(error)


def show_name() -> None:
    """Tells this thread's name to the system (Linux), so that its CPU time can be told from that of others."""
    try:
        comm = Path(f"/proc/self/task/{threading.get_native_id()}/comm")
        comm.write_text(threading.current_thread().name[:15], encoding="utf-8")
    except OSError:
        pass
