"""Deadlines: the times by which runs should have ended. They order runs under `policy="deadline"`.

A deadline stops nothing: a run that misses it goes on. Under every policy, `trace.runs()` shows which runs were late.
"""

from __future__ import annotations

from types import TracebackType

from ..errors import NotNow, SeawayError
from ..graph import tracing
from ..units import Time, duration
from . import ambient


def within(who: str, time: Time | None) -> int:
    """A relative deadline as nanoseconds after a call; 0 means none."""
    if time is None:
        return 0
    found = duration(time, f"{who}: time")
    if not found:
        raise SeawayError(f"{who}: {time!r} is over before it begins; leave it out for none")
    return found


class deadline:  # noqa: N801 - used as a function is
    """Set when the runs that are called inside `with` are due: this long after the beginning of the block.

    The block is one request, of as many calls as it takes. If blocks are nested, or the client has its own deadline,
    the earliest counts. A run that is late goes on: `run.late` and traces say so, and `policy="deadline"` avoids it.

        >>> step = sw.synthetic("step", devices=4, duration="1ms")
        >>> with sw.simulate("B", hosts=2, policy="deadline"):
        ...     with sw.deadline("50ms"):
        ...         x = step(np.float32(0))
        ...     print(x.run.wait().late)
        False
    """

    def __init__(self, time: Time) -> None:
        self._within = within("sw.deadline", time)

    def __enter__(self) -> deadline:
        tracer = tracing.tracer()
        if tracer is not None:
            raise NotNow(
                "sw.deadline inside a traced program has no effect, since a deadline is a whole run's: write "
                "`with sw.deadline(...):` around the call of the program"
            )
        session = ambient.session("sw.deadline")
        ambient.due(session, session.driver.now() + self._within)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        ambient.no_longer_due()
