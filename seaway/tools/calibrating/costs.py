"""Fits the model's costs to samples: CPU times by group of threads and counts go in, nanoseconds by cost come out.

A cost may be paid in several threads: a note is received in the connections' loop and wakes the user's thread. Such a
cost is the sum of what is found in each. `send` and `receive` are the same for all processes, and are fitted to rows
of all. If no row tells two costs apart, their time is divided evenly (`fitting`), and `sources` says so.

The counts come from the controller's node (`backend.node.traffic`), which writes to all hosts:

    send, receive              messages, also those that travel together; for a host, the other way round
    step, relay_step           steps ordered; steps written to hosts
    complete, complete_more    groups of ends of gangs that a host reports together; further gangs in them
    enqueue                    gangs, on each host
    sum                        gangs that sum over hosts, on each host, by round of the sum (CPU devices: JAX computes
                               small sums in the thread that enqueues)
    client_call, client_note   calls; notes from the controller to clients
    literal                    contents that travel in a call, on each host
"""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from .fitting import Counts, Fit, FitRow, FittedCost, fit
from .watching import WatchSample

WHERE = {
    "client_call": "the user's thread, by call",
    "client_note": "the connections' loop and the user's thread, by note",
    "send": "all processes, by message",
    "receive": "all processes, by message",
    "step": "the controller, by step ordered; with what is heard of it",
    "relay_step": "hosts, by step read",
    "enqueue": "hosts, by gang",
    "sum": "hosts, by round of a sum over hosts, in the thread that enqueues",
    "literal": "all processes, by contents that came with a call, and host",
    "complete": "hosts, by group of ends; with what wakes their threads",
    "complete_more": "hosts, by further gang of a group",
}
CALLER, USER, HOST = "caller", "user", "host"
GROUPS = (CALLER, USER, HOST)
SHARED = ("send", "receive")


class FittedCosts(NamedTuple):
    """Nanoseconds by cost. missed: root mean square of the rows' relative errors."""

    costs: dict[str, FittedCost]
    missed: float
    rows: int


def counted(group: str, sample: WatchSample) -> Counts:
    """How often each cost occurred in this group of threads."""
    said = sample.counts
    near = said["near_out"] + said["near_in"]  # between clients and controller, which are one process
    literal = {"literal": said["literals"]}
    if group == CALLER:
        return literal | {"client_call": said["calls"], "client_note": said["notes"], "receive": said["near_out"]}
    if group == USER:
        return {
            "send": said["frames_out"] + near, "receive": said["frames_in"] + near,
            "step": said["said"], "client_note": said["notes"], **literal,
        }  # fmt: skip
    if group == HOST:
        return {
            "receive": said["frames_out"], "send": said["frames_in"], "relay_step": said["steps"], **literal,
            "complete": said["groups"], "complete_more": said["ends"] - said["groups"], "enqueue": said["ends"],
            "sum": said["sums"],
        }  # fmt: skip
    raise ValueError(group)


def rows_of(samples: Sequence[WatchSample]) -> list[tuple[str, FitRow]]:
    """(group, row) for each sample and group.

    A cost that is not shared belongs to its group: "client_note" of the user's thread is not that of the loop.
    """
    usual: dict[tuple[str, str], list[float]] = {}
    for sample in samples:
        for group in GROUPS:
            usual.setdefault((sample.name, group), []).append(spent_by(group, sample))
    found = []
    for sample in samples:
        for group in GROUPS:
            counts = {
                name if name in SHARED else f"{name}@{group}": count for name, count in counted(group, sample).items()
            }
            if any(counts.values()):  # otherwise none of these costs occurred
                typical = statistics.median(usual[sample.name, group])
                found.append((group, FitRow(spent_by(group, sample), counts, typical)))
    return found


def spent_by(group: str, sample: WatchSample) -> float:
    """CPU time. Which of a host's threads reads and decides varies, so they count together."""
    if group != HOST:
        return sample.cpu[group]
    return sum(sample.cpu[thread] for thread in (HOST, "enqueue", "completions"))


def costs_of(samples: Sequence[WatchSample]) -> FittedCosts:
    """Fit the costs, of all groups together."""
    rows = rows_of(samples)
    if not rows:
        return FittedCosts({}, 0.0, 0)
    found = fit([row for _, row in rows])
    return FittedCosts(summed(found), found.missed, len(rows))


def summed(fitted: Fit) -> dict[str, FittedCost]:
    """Add up each cost over its groups. Spreads are added as if independent."""
    found: dict[str, list[FittedCost]] = {}
    for name, cost in fitted.costs.items():
        found.setdefault(name.partition("@")[0], []).append(cost)
    made = {}
    for name in sorted(found):
        parts = found[name]
        value = sum(part.value for part in parts)
        wide = sum((part.value * part.spread) ** 2 for part in parts) ** 0.5
        like = {other.partition("@")[0] for part in parts for other in part.like} - {name}
        made[name] = FittedCost(value, wide / value if value else 0.0, tuple(sorted(like)))
    return made


def sources(costs: FittedCosts) -> dict[str, str]:
    """A text for each cost that says how it was measured."""
    found = {}
    for name, cost in costs.costs.items():
        words = f"measured: CPU of {WHERE[name]}"
        if cost.like:
            words += f"; not told apart from {', '.join(cost.like)} by what was run: divided evenly"
        found[name] = words
    return found
