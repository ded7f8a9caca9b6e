"""A session: one world to run programs in, and the clients that call it. The same for simulated and real devices."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal

from ..errors import SessionClosed
from ..specs import Slice, whole
from ..wording import duration, plural
from . import ambient
from .arguments import checked_session
from .caller import Caller
from .deadlines import Time, host_time, within
from .port import Driver

Dispatch = Literal["parallel", "sequential"]


class Task:
    """A client's thread, from `session.spawn`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.thread: Any = None
        self.over = False
        self._session: Session | None = None
        self._result: Any = None
        self.error: BaseException | None = None
        self.told = False  # somebody has been given the error

    def result(self) -> Any:
        """Wait until it is over: what its function returned; what it raised is raised here."""
        if not self.over and self._session is not None:
            self._session.driver.joined(self.thread)
        if self.error is not None:
            self.told = True
            raise self.error
        if not self.over:
            raise SessionClosed(f"client {self.name!r} was stopped before it was done")
        return self._result

    def join(self) -> None:
        """Wait until it is over, and raise what it raised."""
        self.result()

    @property
    def done(self) -> bool:
        return self.over

    def __repr__(self) -> str:
        state = "running" if not self.over else "done" if self.error is None else f"failed: {self.error!r}"
        return f"<task {self.name!r}, {state}>"


class Session:
    """Use it with `with`: inside, computations and programs run here. Leaving waits for all that is under way."""

    def __init__(
        self, driver: Driver, *, dispatch: Dispatch = "parallel", main: str = "main", retries: int = 0
    ) -> None:
        checked_session("sw.Session", dispatch, retries)
        self.driver = driver
        self.dispatch = dispatch
        self.retries = retries  # of programs that say nothing else
        self._main = main
        self._callers: dict[str, Caller] = {}
        self._tasks: list[Task] = []
        self._spawned = 0
        self.closed = False
        ambient.made(self)

    # --- in and out ---------------------------------------------------------------------------------------

    def open(self) -> Session:
        """As `with` does, for notebooks: until `close()`, what is called in this thread runs here."""
        return self.__enter__()

    def __enter__(self) -> Session:
        if self.closed:
            raise SessionClosed("this session is closed; open another one")
        ambient.enter(self)
        ambient.opened(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close(abort=error is not None)

    def close(self, abort: bool = False) -> None:
        """Wait for tasks and runs, and end. `abort`: wait for nothing."""
        if self.closed:
            return
        ambient.leave(self)
        ambient.closed(self)
        try:
            if not abort:
                for task in self._tasks:
                    if not task.told:
                        task.result()
                self._settle()
        except BaseException:
            abort = True
            raise
        finally:
            self.closed = True
            if abort:
                self.driver.stop()
            for caller in self._callers.values():
                if abort:
                    caller.abandon()
                else:
                    caller.close()
            self.driver.close()
        if not abort:
            self._unseen()

    def _settle(self) -> None:
        """Until nothing is under way, but for what clients' threads still do."""
        busy = {task.name for task in self._tasks if not task.over}
        for caller in list(self._callers.values()):
            if caller.name not in busy:
                caller.drain()

    def _unseen(self) -> None:
        """Failures that nobody has waited for."""
        all_failed = [run for caller in self._callers.values() for run in caller.failed]
        seen = {run.blame for run in all_failed if run._looked_at}
        failed = [run for run in all_failed if not run._looked_at and run.blame not in seen]
        if failed:
            first = failed[0]
            warnings.warn(
                f"{plural(len(failed), 'run')} failed, and nobody waited for the results; the first, run "
                f"{first.number} of {first.program!r}: {first.blame}",
                RuntimeWarning,
                stacklevel=4,
            )

    # --- clients ------------------------------------------------------------------------------------------

    @property
    def session(self) -> Session:
        """As a client has it."""
        return self

    @property
    def main(self) -> Caller:
        """The client in whose name the session's own thread calls, unless it says otherwise."""
        return self._callers.get(self._main) or self.client(self._main)

    def client(self, name: str, weight: int = 1, priority: int = 0, deadline: Time | None = None) -> Caller:
        """`with s.client("b", weight=2):` calls inside are in its name. It is made when it is first asked for.
        `deadline="50ms"`: each of its runs is due so long after its call (see `sw.deadline`)."""
        given: object = name
        if not isinstance(given, str) or not given:
            raise ValueError(f"client({name!r}): a client's name is a text, like 'trainer'")
        due = within(f"client {name!r}: deadline", deadline)
        known = self._callers.get(name)
        if known is not None:
            asked, has = (weight, priority, due), (known.weight, known.priority, known.deadline)
            if asked not in ((1, 0, 0), has):
                raise ValueError(
                    f"client {name!r} is here already, with weight {known.weight}, priority {known.priority} and "
                    f"{f'deadline {duration(known.deadline)}' if known.deadline else 'no deadline'}; "
                    f"leave them out to use it, or give the new one another name"
                )
            return known
        if self.closed:
            raise SessionClosed("this session is closed; open another one")
        if not whole(weight):
            raise ValueError(f"client {name!r}: weight={weight!r}: a whole number, at least 1")
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise ValueError(f"client {name!r}: priority={priority!r}: a whole number; higher goes first")
        made = self._callers[name] = Caller(self, name, weight, priority, due)
        return made

    def spawn(
        self, fn: Callable[..., Any], *args: Any, name: str | None = None, weight: int = 1, priority: int = 0,
        deadline: Time | None = None, **kwargs: Any,
    ) -> Task:  # fmt: skip
        """Run `fn` beside this thread, as a client of its own. `.result()` waits for it; so does the session's end."""
        self._spawned += 1
        base = name or str(getattr(fn, "__name__", "client"))
        called = base if name or base not in self._callers else f"{base}-{self._spawned}"
        if called in self._callers:
            raise ValueError(f"client {called!r} is here already; give the new one another name")
        caller, task = self.client(called, weight, priority, deadline), Task(called)
        task._session = self

        def work() -> None:
            ambient.enter(self)
            ambient.enter(caller)
            try:
                task._result = fn(*args, **kwargs)
                task.over = True
            except SessionClosed as error:
                task.over = not self.closed
                task.error = None if self.closed else error
            except BaseException as error:
                task.over, task.error = True, error
            finally:
                ambient.leave(caller)
                ambient.leave(self)

        self._tasks.append(task)
        task.thread = self.driver.spawn(called, work)
        return task

    # --- time ---------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since the session began, as its clients' clocks have it."""
        return self.driver.now() / 1e9

    def sleep(self, time: float | str) -> None:
        """Host time: seconds, or "5ms"."""
        if self.closed:
            raise SessionClosed("this session is closed, and its time stands still; open another one")
        for caller in list(self._callers.values()):
            caller.flush()
        self.driver.sleep(host_time("sw.sleep", time))

    # --- what happened ------------------------------------------------------------------------------------

    @property
    def trace(self) -> Any:
        """What has happened, once all that this thread's clients have under way is over."""
        if not self.closed:
            self._settle()
        return self.driver.trace()

    def costs(self) -> Any:
        """What each computation is taken to cost, and where that comes from: a frame, one row a computation."""
        import pandas as pd

        return pd.DataFrame(self.driver.costs())

    def release(self, home: Slice) -> None:
        """Give a slice's devices back; it is bound anew when it is used again."""
        ambient.caller("release").release_slice(home)

    def __repr__(self) -> str:
        return f"<sw.Session, {self.driver.title}{', closed' if self.closed else ''}>"

    def __getattr__(self, name: str) -> Any:
        """What only a simulation has: `simulation`, `env`. What a property of ours raised is not hidden by that it was
        an AttributeError: it is asked again, and raises it again."""
        if hasattr(type(self), name):
            return object.__getattribute__(self, name)
        if name in ("simulation", "env"):
            found = getattr(self.driver, name, None)
            if found is not None:
                return found
            raise AttributeError(f"only a simulated session has .{name}; this is {self.driver.title}")
        raise AttributeError(f"a session has no attribute {name!r}")


def current_session() -> Session:
    """The one in which a call made here would run: for programs that are run in a session that others opened."""
    return ambient.session("sw.current_session")


def client(name: str, weight: int = 1, priority: int = 0, deadline: Time | None = None) -> Caller:
    """As `session.client`, of the current session."""
    return current_session().client(name, weight, priority, deadline)


def spawn(fn: Callable[..., Any], *args: Any, **options: Any) -> Task:
    """As `session.spawn`, of the current session."""
    return current_session().spawn(fn, *args, **options)


def sleep(time: float | str) -> None:
    """Let host time pass in the session: seconds, or "5ms". Simulated where the session is."""
    ambient.session("sw.sleep").sleep(time)


def now() -> float:
    """Seconds since the session began: host time, simulated where the session is."""
    return ambient.session("sw.now").now()
