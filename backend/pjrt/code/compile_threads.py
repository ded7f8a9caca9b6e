"""Compiles one code after another; code that nobody wants any more holds up nothing.

    do(CompileJob(plan, run, drop))     runs it when those before it are done
    forget(plan)                        drops its jobs that have not begun, and lets go of the one that has

Core says when a plan is forgotten, for example because its client is gone. A job that runs then is ended if that is
possible (`interrupt`: while the checker's process has it). XLA in this process cannot be interrupted: then the job's
thread is left behind, with the lowest priority, and another thread goes on with the jobs behind it. At most `LEFT`
threads are left behind at a time; then the others wait. Neighbours: `pjrt_devices`, `compiled_codes`, `code_gate`.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from ..worker_thread import show_name

log = logging.getLogger("seaway.pjrt")
LEFT = 2  # each takes memory, and time of the processor
LOWEST = 19  # priority


class CompileJob:
    """`run` compiles and says what came of it; it may ask `wanted`. `drop` says that the code is not compiled. None:
    the job must run, since other hosts wait for what this one contributes."""

    __slots__ = ("drop", "left", "plan", "run", "thread", "wanted")

    def __init__(self, plan: int, run: Callable[[Callable[[], bool]], None], drop: Callable[[], None] | None) -> None:
        self.plan, self.run, self.drop = plan, run, drop
        self.wanted = True
        self.left = False  # its thread was left behind
        self.thread = 0  # the system's number of it

    def is_wanted(self) -> bool:
        return self.wanted or self.drop is None


class CompileThreads:
    """`failed` gets unexpected errors; the threads go on. `interrupt()`: whether the job that runs was interrupted."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self.interrupt: Callable[[], bool] = lambda: False
        self._more = threading.Condition()
        self._waiting: deque[CompileJob] = deque()
        self._current: CompileJob | None = None
        self._left = 0
        self._over = False
        self._thread = self._started()

    def do(self, job: CompileJob) -> None:
        with self._more:
            self._waiting.append(job)
            self._more.notify_all()

    def forget(self, plan: int) -> None:
        """From any thread; it does not wait."""
        with self._more:
            dropped = [job for job in self._waiting if job.plan == plan and job.drop is not None]
            for job in dropped:
                self._waiting.remove(job)
            current = self._current
            if current is None or current.plan != plan:
                current = None
            else:
                current.wanted = False
        for job in dropped:
            if job.drop is not None:
                job.drop()
        if current is not None and (current.drop is None or not self.interrupt()):
            with self._more:
                self._leave_behind(current)

    def end(self, patience: float) -> bool:
        """What waits is given up. False: a compilation goes on, and its thread is left."""
        with self._more:
            self._over = True
            self._waiting.clear()
            self._more.notify_all()
            thread = self._thread
        thread.join(patience)
        return not thread.is_alive()

    # --- under the lock ------------------------------------------------------------------------------------

    def _started(self) -> threading.Thread:
        thread = threading.Thread(target=self._work, name="compile", daemon=True)
        thread.start()
        return thread

    def _leave_behind(self, job: CompileJob) -> None:
        """Another thread goes on in place of the one that has this job, if it still has it."""
        if self._current is not job or self._left >= LEFT or self._over:
            return
        log.info("nobody wants what is being compiled: its thread is left behind")
        self._current, job.left = None, True
        self._left += 1
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, job.thread, LOWEST)
        self._thread = self._started()

    # --- in the threads --------------------------------------------------------------------------------------

    def _work(self) -> None:
        show_name()
        while (job := self._next()) is not None:
            try:
                job.run(job.is_wanted)
            except BaseException as error:
                log.error("compile: %s", error, exc_info=error)
                self._failed(error)
            with self._more:
                if job.left:
                    self._left -= 1
                    if self._current is not None and not self._current.wanted:
                        self._leave_behind(self._current)  # there was no room for it before
                    return
                self._current = None
            del job  # so that it keeps nothing alive

    def _next(self) -> CompileJob | None:
        with self._more:
            while not self._waiting and not self._over:
                self._more.wait()
            if self._over:
                return None
            job = self._current = self._waiting.popleft()
            job.thread = threading.get_native_id()
            return job
