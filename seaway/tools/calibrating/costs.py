"""Fits the model's costs to samples: CPU times by group of threads and counts go in, nanoseconds by cost come out.

A cost may be paid in several threads: a note is received in the connections' loop and wakes the user's thread. Such a
cost is the sum of what is found in each. `send` and `receive` are the same for all processes, and are fitted to rows
of all. If no row tells two costs apart, their time is divided evenly (`fitting`), and `sources` says so.

The counts come from the controller's node (`backend.node.traffic`), which writes to all hosts:

    send, receive              messages, also those that travel together; for a host, the other way round
    step, relay_step           steps ordered; steps written to hosts
    complete, complete_more    groups of ends of gangs that a host reports together; further gangs in them
    enqueue                    gangs, on each host
    client_call, client_note   calls; notes from the controller to clients
    literal                    contents that travel in a call, on each host
"""

from __future__ import annotations

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
    "enqueue": "hosts' enqueueing threads, by gang; with what JAX computes in them",
    "literal": "all processes, by contents that came with a call, and host",
    "complete": "hosts, by group of ends; with what wakes their threads",
    "complete_more": "hosts, by further gang of a group",
}
TIMED = {"enqueue": "hosts, by gang: timed devices, which have no thread of their own"}
CALLER, USER, HOST, ENQUEUE = "caller", "user", "host", "enqueue"
SHARED = ("send", "receive")


class FittedCosts(NamedTuple):
    """Nanoseconds by cost. missed: root mean square of the rows' relative errors, by group of threads."""

    costs: dict[str, FittedCost]
    missed: dict[str, float]
    rows: int


def counted(group: str, sample: WatchSample, timed: bool) -> Counts:
    """How often each cost occurred in this group of threads."""
    said = sample.counts
    near = said["near_out"] + said["near_in"]  # between clients and controller, which are one process
    literal = {"literal": said["literals"]}
    if group == CALLER:
        return literal | {
            "client_call": said["calls"],
            "client_note": said["notes"],
            "receive": said["near_out"],
        }
    if group == USER:
        return {
            "send": said["frames_out"] + near, "receive": said["frames_in"] + near,
            "step": said["said"], "client_note": said["notes"], **literal,
        }  # fmt: skip
    if group == HOST:  # includes the thread that waits for gangs, which does little
        found = {
            "receive": said["frames_out"], "send": said["frames_in"], "relay_step": said["steps"], **literal,
            "complete": said["groups"], "complete_more": said["ends"] - said["groups"],
        }  # fmt: skip
        return found | ({"enqueue": said["ends"]} if timed else {})
    if group == ENQUEUE:
        return {"enqueue": said["ends"], "complete": said["groups"], **literal}
    raise ValueError(group)


def rows_of(samples: Sequence[WatchSample], timed: bool) -> list[tuple[str, FitRow]]:
    """(group, row) for each sample and group.

    A cost that is not shared belongs to its group: "complete" of the enqueueing thread is not that of the loop.
    """
    groups = (CALLER, USER, HOST) if timed else (CALLER, USER, HOST, ENQUEUE)
    usual: dict[tuple[str, str], list[float]] = {}
    for sample in samples:
        for group in groups:
            usual.setdefault((sample.name, group), []).append(spent_by(group, sample))
    found = []
    for sample in samples:
        for group in groups:
            counts = {
                name if name in SHARED else f"{name}@{group}": count
                for name, count in counted(group, sample, timed).items()
            }
            if any(counts.values()):  # otherwise none of these costs occurred
                typical = statistics.median(usual[sample.name, group])
                found.append((group, FitRow(spent_by(group, sample), counts, typical)))
    return found


def spent_by(group: str, sample: WatchSample) -> float:
    return sample.cpu[group] + (sample.cpu["completions"] if group == HOST else 0)


def costs_of(samples: Sequence[WatchSample], timed: bool) -> FittedCosts:
    """Fit the costs. Groups that share costs are fitted together, others alone."""
    rows = rows_of(samples, timed)
    together: list[Fit] = []
    missed: dict[str, float] = {}
    for groups in ((CALLER, USER, HOST), (ENQUEUE,)):
        chosen = [row for group, row in rows if group in groups]
        if chosen:
            found = fit(chosen)
            together.append(found)
            missed[" and ".join(groups)] = found.missed
    return FittedCosts(summed(together), missed, len(rows))


def summed(fits: Sequence[Fit]) -> dict[str, FittedCost]:
    """Add up each cost over its groups. Spreads are added as if independent."""
    found: dict[str, list[FittedCost]] = {}
    for each in fits:
        for name, cost in each.costs.items():
            found.setdefault(name.partition("@")[0], []).append(cost)
    made = {}
    for name in sorted(found):
        parts = found[name]
        value = sum(part.value for part in parts)
        wide = sum((part.value * part.spread) ** 2 for part in parts) ** 0.5
        like = {other.partition("@")[0] for part in parts for other in part.like} - {name}
        made[name] = FittedCost(value, wide / value if value else 0.0, tuple(sorted(like)))
    return made


def sources(costs: FittedCosts, timed: bool) -> dict[str, str]:
    """A text for each cost that says how it was measured."""
    where = WHERE | (TIMED if timed else {})
    found = {}
    for name, cost in costs.costs.items():
        words = (
            f"measured: CPU of {where[name]}"
            if not where[name].startswith("by ")
            else f"measured: CPU {where[name]}"
        )
        if cost.like:
            words += f"; not told apart from {', '.join(cost.like)} by what was run: divided evenly"
        found[name] = words
    return found
