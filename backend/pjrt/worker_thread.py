"""A thread that does what it is given, one thing after another: where order matters, or something may block.

Neighbours: everyone in `pjrt` who has a thread.
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


class Line:
    """`failed` hears of what went wrong without anybody expecting it; the line goes on."""

    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._work: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._work.put((work, arguments))

    def ask(self, work: Callable[..., T], *arguments: Any) -> T:
        """Wait for its turn, and for its answer. Not from the line itself."""
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
        """Behind all that it has been given. False: it is stuck, and left behind."""
        self._work.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(patience)
        return not self._thread.is_alive()

    def _run(self) -> None:
        show_name()
        while (item := self._work.get()) is not None:
            work, arguments = item
            try:
                work(*arguments)
            except BaseException as error:
                log.exception("%s: %s", self._thread.name, error)
                self._failed(error)
            del item, work, arguments  # nothing is kept alive by having been done


def show_name() -> None:
    """This thread's name to the system too (Linux): so its CPU time can be told from that of others."""
    try:
        comm = Path(f"/proc/self/task/{threading.get_native_id()}/comm")
        comm.write_text(threading.current_thread().name[:15], encoding="utf-8")
    except OSError:
        pass
