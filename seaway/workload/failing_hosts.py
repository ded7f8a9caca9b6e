"""`failures`, `failures_of` and `stragglers`: what goes wrong with hosts, drawn from a seed or read from a log.

Each host, or each rack or whatever hosts share, fails by itself, after times that are exponential with a mean (mean
time between failures); after a repair it is back. Neighbours: `seaway.sessions.simulated` plays the faults.
"""

from __future__ import annotations

from math import log1p
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from ..sessions.simulated import fault
from ..units import Nanoseconds, Time, duration
from .arrival_files import load_items
from .timed_items import Timed

if TYPE_CHECKING:
    from sim.simulation import Fault

NEVER = 1 << 62


class Outage(Timed, frozen=True, kw_only=True):
    """A row of a log: a host fails, and is back when it is repaired; 0: never."""

    times = ("at", "repaired")

    host: int = 0
    repaired: int = 0


def failures(
    hosts: int, time: Time, *, mtbf: Time, repair: Time = "10min", seed: int = 0, together: int = 1
) -> list[Fault]:
    """Draw failures of so many hosts in this time.

    mtbf: the mean time between failures of each host; or of each group of hosts that share something, such as a rack or
    a switch, if `together` says how many: then they fail together. repair: how long they are away. Add lists, to have
    hosts, racks and switches fail by themselves.

        >>> faults = sw.workload.failures(64, "24h", mtbf="100h", seed=1)
        >>> len(faults), faults[0].what, faults[1].what
        (28, 'crash_host', 'return_host')
    """
    until, mean, away = (duration(each, "sw.workload.failures") for each in (time, mtbf, repair))
    if mean < 1 or away < 1 or together < 1 or hosts < 1:
        raise ValueError(f"sw.workload.failures(hosts={hosts}, mtbf={mtbf!r}, repair={repair!r}, together={together}): "
                         "times above 0, and at least one host")  # fmt: skip
    found = []
    for group in range(0, hosts, together):
        rng, at = Random(f"failures {seed} {together} {group}"), 0.0
        while (at := at - log1p(-rng.random()) * mean) < until:
            members = range(group, min(group + together, hosts))
            found += [(host, int(at), int(at) + away) for host in members]
            at += away
    return _faults(found)


def failures_of(path: str | Path) -> list[Fault]:
    """Read failures from a CSV or Parquet file: columns `host`, `at_s` and `repaired_s` (or with ms, us, ns)."""
    rows = load_items(Path(path), Outage, ("at", "host"))
    return _faults([(each.host, each.at, each.repaired or NEVER) for each in rows])


def stragglers(
    hosts: int, time: Time, *, every: Time, lasts: Time, factor: float = 1.5, seed: int = 0
) -> list[Fault]:  # fmt: skip
    """Draw hosts that are slow for a while: each after times with the mean `every`, for times with the mean `lasts`, in
    which its devices need `factor` times as long."""
    until, mean, slow = (duration(each, "sw.workload.stragglers") for each in (time, every, lasts))
    found = []
    for host in range(hosts):
        rng, at = Random(f"stragglers {seed} {host}"), 0.0
        while (at := at - log1p(-rng.random()) * mean) < until:
            long = max(1, int(-log1p(-rng.random()) * slow))
            found.append(fault(Nanoseconds(at), "slow", host, factor=factor, duration=Nanoseconds(long)))
            at += long
    return sorted(found, key=lambda each: each.at)


def _faults(found: list[tuple[int, int, int]]) -> list[Fault]:
    """(host, from, until). One that fails while it is away is away until the later time."""
    away: list[list[int]] = []
    for host, begin, end in sorted(found):
        if away and away[-1][0] == host and begin <= away[-1][2]:
            away[-1][2] = max(away[-1][2], end)
        else:
            away.append([host, begin, end])
    made = [(begin, "crash_host", host) for host, begin, _ in away]
    made += [(end, "return_host", host) for host, _, end in away if end < NEVER]
    return [fault(Nanoseconds(at), what, host) for at, what, host in sorted(made)]
