"""The cohort fidelity: all hosts of an island as vectors of clocks, and one executor for all that behave alike.

    island    what comes to an island and leaves it: orders down, reports up, contents to single hosts
    routes    its tree as index arrays: which hosts a message passes, and in which order it is written
    parts     an executor and the hosts it stands for: what it says happens at each when the last cause has
    gangs     gangs on devices: arrivals, start, end
    climbs    reports of single hosts on their way up, one at a time

Equal to the exact fidelity, to the nanosecond: both draw the same jitter, and in neither does what happens to a
thing on one path depend on when other paths are worked out. Executors are told of events as soon as these are
known to come, which may be ahead of their hosts: what they answer does not depend on it (they are confluent), and
when each host does it, its causes say.
"""

from __future__ import annotations

from .island import CohortIsland

__all__ = ["CohortIsland"]
