"""The cohort fidelity: hosts of an island that behave alike share one executor, and their times are vectors.

    island    what enters and leaves an island: orders down, reports up, contents to single hosts
    routes    the island's tree as index arrays: which hosts a message passes, and in which order it is written
    alike     one executor for many hosts that behave alike; which orders divide them
    parts     such hosts, and when each command happens at each of them: after its last cause there
    gangs     gangs on devices: arrival, start, end
    climbs    reports of single hosts on their way up, one at a time

The results equal those of the exact fidelity, to the nanosecond. Both draw the same jitter, and in neither does the
work on one path depend on when other paths are computed. An executor is told of an event as soon as the event is
certain, which may be before its time at the hosts: executors are confluent, so their commands do not depend on
that. The causes of a command say when each host carries it out.
"""

from __future__ import annotations

from .alike import AlikeHosts
from .island import CohortIsland
from .routes import one_root

__all__ = ["AlikeHosts", "CohortIsland", "one_root"]
