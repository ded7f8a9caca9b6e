"""`Session`: a user opens one to run programs; it holds the clients, tasks, clock and trace.

The class is the same for simulated and real devices; its driver differs.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, overload

from ..errors import SessionClosed
from ..specs import ElasticSlice, Slice, whole
from ..telemetry import carried, spans_of
from ..units import Time
from ..units import duration as nanoseconds
from ..wording import duration, plural
from . import ambient
from .arguments import checked_session
from .caller import Caller
from .deadlines import within
from .port import Driver

if TYPE_CHECKING:
    import pandas as pd
    import simpy

    from sim.simulation import Simulation

    from ..dashboard import LivePage
    from ..telemetry import SessionSpans
    from ..trace import Trace, played_jobs
    from .arrays import Run

Dispatch = Literal["parallel", "sequential"]
T = TypeVar("T")


class Task(Generic[T]):
    """A client's thread, from `session.spawn`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.thread: Any = None
        self.over = False
        self._session: Session | None = None
        self._result: T | None = None
        self.error: BaseException | None = None
        self.told = False  # the error has been raised to the user

    def result(self) -> T:
        """Wait until the task is over. Return what its function returned, or raise what it raised."""
        if not self.over and self._session is not None:
            self._session.driver.joined(self.thread)
        if self.error is not None:
            self.told = True
            raise self.error
        if not self.over:
            raise SessionClosed(f"client {self.name!r} was stopped before it was done")
        return cast("T", self._result)

    def join(self) -> None:
        """Wait until the task is over, and raise what its function raised."""
        self.result()

    @property
    def done(self) -> bool:
        return self.over

    def __repr__(self) -> str:
        state = "running" if not self.over else "done" if self.error is None else f"failed: {self.error!r}"
        return f"<task {self.name!r}, {state}>"


class Session:
    """What `sw.simulate`, `sw.local` and `sw.connect` open. Programs run in it inside `with`; leaving waits for them.

    >>> step = sw.synthetic("step", devices=4, duration="1ms")
    >>> with sw.simulate("B", hosts=2) as s:
    ...     with s.client("ann", weight=2):
    ...         x = step(np.float32(0))
    ...     print(len(s.trace.runs()), s.costs()["computation"].tolist())
    1 ['step']
    """

    def __init__(
        self, driver: Driver, *, dispatch: Dispatch = "parallel", main: str = "main", retries: int = 0
    ) -> None:
        checked_session("sw.Session", dispatch, retries)
        self.driver = driver
        self.dispatch = dispatch
        self.retries = retries  # for programs that set no number of their own
        self.compiles_first = False  # a program's first call waits until its code is ready, and only then submits
        self._main = main
        self._callers: dict[str, Caller] = {}
        self._tasks: list[Task[Any]] = []
        self._spawned = 0
        self.closed = False
        self.played: list[played_jobs.PlayedJobs] = []  # workloads of jobs
        self._page: LivePage | None = None
        self.spans: SessionSpans | None = None  # of OpenTelemetry, if the process uses it when the first client comes
        ambient.made(self)

    # --- in and out ---------------------------------------------------------------------------------------

    def open(self) -> Session:
        """Enter the session without `with`, for notebooks: until `close()`, this thread's calls run in it."""
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
        """Wait for tasks and runs, then end the session. `abort`: do not wait."""
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
                for caller in self._callers.values():
                    caller.earlier.look_back()
        except BaseException:
            abort = True
            raise
        finally:
            self.closed = True
            if self.spans is not None:
                self.spans.close(abort)
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
        """Wait for the work of all clients, except those whose own tasks are still running."""
        busy = {task.name for task in self._tasks if not task.over}
        for caller in list(self._callers.values()):
            if caller.name not in busy:
                caller.drain()

    def _unseen(self) -> None:
        """Warn of failed runs whose results were never waited for."""
        all_failed = [run for caller in self._callers.values() for run in caller.earlier.failed]
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
        """This session itself. Clients have `session` too."""
        return self

    @property
    def main(self) -> Caller:
        """The client that makes calls outside any `with s.client(...)` block."""
        return self._callers.get(self._main) or self.client(self._main)

    def client(self, name: str, weight: int = 1, priority: int = 0, deadline: Time | None = None) -> Caller:
        """`with s.client("b", weight=2):` this client makes the calls inside. It is created by its first use.

        `deadline="50ms"`: each of its runs is due 50 ms after its call (see `sw.deadline`).
        """
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
        if not self._callers:
            self.spans = spans_of(self.driver)
        made = self._callers[name] = Caller(self, name, weight, priority, due)
        return made

    @overload
    def spawn(  # a generator is run, and not returned
        self, fn: Callable[..., Generator[Any, Any, T]], *args: Any, name: str | None = None, weight: int = 1,
        priority: int = 0, deadline: Time | None = None, **kwargs: Any,
    ) -> Task[T]: ...  # fmt: skip

    @overload
    def spawn(
        self, fn: Callable[..., T], *args: Any, name: str | None = None, weight: int = 1, priority: int = 0,
        deadline: Time | None = None, **kwargs: Any,
    ) -> Task[T]: ...  # fmt: skip

    def spawn(
        self, fn: Callable[..., Any], *args: Any, name: str | None = None, weight: int = 1, priority: int = 0,
        deadline: Time | None = None, **kwargs: Any,
    ) -> Task[Any]:  # fmt: skip
        """Run `fn` in a new thread, as a client of its own. `.result()` and the session's end wait for it.

        In a simulated session `fn` may be a generator function that yields SimPy events, as SimPy's processes do.
        """
        self._spawned += 1
        base = name or str(getattr(fn, "__name__", "client"))
        called = base if name or base not in self._callers else f"{base}-{self._spawned}"
        if called in self._callers:
            raise ValueError(f"client {called!r} is here already; give the new one another name")
        return self.task_of(self.client(called, weight, priority, deadline), fn, *args, **kwargs)

    def task_of(self, caller: Caller, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Task[Any]:
        """Run `fn` in a new thread that calls as this client, beside others that may do so too."""
        task = Task[Any](caller.name)
        task._session = self

        def work() -> None:
            ambient.enter(self)
            ambient.enter(caller)
            try:
                made = fn(*args, **kwargs)
                steps = inspect.isgeneratorfunction(fn)
                task._result = self.driver.drive(caller.name, made) if steps else made
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
        task.thread = self.driver.spawn(caller.name, carried(work))
        return task

    # --- time ---------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since the session began, by its clock."""
        return self.driver.now() / 1e9

    def sleep(self, time: Time) -> None:
        """Let host time pass, such as "5ms"."""
        if self.closed:
            raise SessionClosed("this session is closed, and its time stands still; open another one")
        for caller in list(self._callers.values()):
            caller.flush()
        self.driver.sleep(nanoseconds(time, "sw.sleep: time"))

    def next_ended(self, timeout: Time | None = None) -> list[Run]:
        """Wait until a run of the current client has ended, or for a time such as "5ms"; without one, only if a run
        is under way. Return those that have ended since this was last asked: a loop that first asks misses none.

            >>> step = sw.synthetic("step", devices=4, duration="1ms")
            >>> with sw.simulate("B", hosts=2, profile="ideal") as s:
            ...     s.next_ended(timeout=0)
            ...     run = step(np.float32(0)).run
            ...     print(s.next_ended(timeout="500us"), s.next_ended() == [run])
            []
            [] True
        """
        until = None if timeout is None else self.driver.now() + nanoseconds(timeout, "next_ended: timeout")
        return ambient.caller("next_ended").next_ended(until)

    # --- what happened ------------------------------------------------------------------------------------

    @property
    def trace(self) -> Trace:
        """A trace of all gangs and runs so far. Waits first for the work of clients that have no running task."""
        if not self.closed:
            self._settle()
        found: Trace = self.driver.trace()
        found.played = self.played[:]
        if self.spans is not None and not self.closed:
            self.spans.gangs_from(found)
        return found

    def live(self, bind: str = "") -> LivePage:
        """Serve a page for the browser that shows what goes on here, until this process ends. Notebooks show it.

        `bind`: its address, as "127.0.0.1:29100"; without it, a free port of this machine. The link has a key, which
        the page needs to get any number.
        """
        if self._page is None:
            from ..dashboard import LivePage

            self._page = LivePage(self.driver.live_source(lambda: self.closed), bind)
        return self._page

    def costs(self) -> pd.DataFrame:
        """A data frame with one row a computation: its assumed cost, and the source of that."""
        import pandas as pd

        return pd.DataFrame(self.driver.costs())

    def resizes(self, home: ElasticSlice) -> Iterator[Slice]:
        """Yield the slice that an elastic one is, each time that it is another one, with more devices or fewer.

        The first time, wait until there is one. In the body of the loop, move arrays to it (`sw.put(arrays,
        devices=part)`) and work, until `resized` says that there is another one; then leave the body, or the loop if
        the work is done. The slice before is released when the next one is yielded. If others have come meanwhile who
        need the devices of a larger one, the same one is yielded again.

            >>> workers = sw.slice(devices=(1, 4), name="workers")
            >>> with sw.simulate("B", hosts=2) as s:
            ...     for part in s.resizes(workers):
            ...         print(part.devices)
            ...         break
            4
        """
        return ambient.caller("resizes").resizes(home)

    def resized(self, home: ElasticSlice) -> bool:
        """Whether `resizes` has another slice, to which the work is to move."""
        return ambient.caller("resized").resized(home)

    def release(self, home: Slice | ElasticSlice) -> None:
        """Give back the devices of one of the current client's slices, so that others may have them.

        Returns at once. Calls made before run to their end on these devices. Arrays stay where they are until their
        last reference goes, and can still be used. With its next call the slice gets devices anew, perhaps others. A
        slice that has none is left alone.
        """
        ambient.caller("release").release_slice(home)

    def move(self, home: Slice | None = None, *, island: str = "") -> None:
        """Move a slice of the current client, or all, to other devices: of this island, or the best ones of any. Arrays
        on it move too, and calls that need it wait. Returns when that is done; raises `NotNow` if there is no room."""
        ambient.caller("move").relocate("move", home, island)

    def suspend(self, home: Slice | None = None) -> None:
        """Take a slice's arrays to host memory, or those of all slices of the current client: others may have the
        devices. Its calls wait until `resume`. Returns when the devices are free."""
        ambient.caller("suspend").relocate("suspend", home)

    def resume(self, home: Slice | None = None) -> None:
        """Let what was suspended go on, on the devices that it had or on as many others. Returns when it has its arrays
        back."""
        ambient.caller("resume").relocate("resume", home)

    def __repr__(self) -> str:
        return f"<sw.Session, {self.driver.title}{', closed' if self.closed else ''}>"

    @property
    def simulation(self) -> Simulation:
        """What a simulated session runs on. Other sessions have none."""
        found: Simulation = self._of_simulation("simulation")
        return found

    @property
    def env(self) -> simpy.Environment:
        """The SimPy environment of a simulated session, for processes of your own. Other sessions have none."""
        found: simpy.Environment = self._of_simulation("env")
        return found

    def _of_simulation(self, name: str) -> Any:
        found = getattr(self.driver, name, None)
        if found is None:
            raise AttributeError(f"only a simulated session has .{name}; this is {self.driver.title}")
        return found


def opened_live(session: Session, live: bool | str) -> Session:
    """The session, with its page if that was asked for; the link is printed."""
    if live:
        page = session.live(live if isinstance(live, str) else "")
        print(f"seaway: live at {page.link}", file=sys.stderr, flush=True)
    return session


def current_session() -> Session:
    """Return the session in which a call made here would run: for programs that run in a session that others opened.

    >>> with sw.simulate("B", hosts=2) as s:
    ...     print(sw.current_session() is s)
    True
    """
    return ambient.session("sw.current_session")


def client(name: str, weight: int = 1, priority: int = 0, deadline: Time | None = None) -> Caller:
    """Return the current session's client of this name, made when it is first asked for. Calls inside `with` are its.

    weight: its share under `policy="stride"`. priority: a higher one goes first under `policy="priority"`.
    deadline: each of its runs is due so long after its call (see `sw.deadline`).

        >>> step = sw.synthetic("step", devices=4, duration="1ms")
        >>> with sw.simulate("B", hosts=2, policy="stride") as s:
        ...     with sw.client("ann", weight=2):
        ...         x = step(np.float32(0))
        ...     print(s.trace.clients()["client"].tolist())
        ['ann']
    """
    return current_session().client(name, weight, priority, deadline)


def spawn(fn: Callable[..., T], *args: Any, **options: Any) -> Task[T]:
    """Run a function beside this thread, as a client of its own. Return a task; `task.result()` waits for the function.

    Options besides the function's arguments: `name`, `weight`, `priority` and `deadline` of the client.

        >>> step = sw.synthetic("step", devices=4, duration="1ms")
        >>> def train(steps):
        ...     for _ in range(steps):
        ...         step(np.float32(0)).block_until_ready()
        ...     return steps
        >>> with sw.simulate("B", hosts=2):
        ...     tasks = [sw.spawn(train, 3, name=name) for name in ("ann", "bob")]
        ...     print([task.result() for task in tasks])
        [3, 3]
    """
    return cast("Task[T]", current_session().spawn(fn, *args, **options))


def sleep(time: Time) -> None:
    """Let the host do nothing for a time such as "5ms". In a simulation this takes simulated time.

    >>> with sw.simulate("B", hosts=2):
    ...     sw.sleep("5ms")
    ...     print(sw.now())
    0.005
    """
    ambient.session("sw.sleep").sleep(time)


def now() -> float:
    """Return the seconds since the session began. In a simulation this is simulated time.

    >>> with sw.simulate("B", hosts=2):
    ...     begin = sw.now()
    ...     sw.sleep("250ms")
    ...     print(sw.now() - begin)
    0.25
    """
    return ambient.session("sw.now").now()
