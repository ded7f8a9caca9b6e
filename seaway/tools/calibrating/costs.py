"""What of the model's costs the samples say: which of them a thread's CPU time is made of, and how often each came.

A cost may be paid in several threads (a note is taken in the connections' loop, and wakes the user's thread): it is the
sum of what was found in each. `send` and `receive` are the same for all processes, and all their rows say what they
are. What no row tells apart is divided evenly (`fitting`), and `sources` says so.

How often, from the counts of the controller's node (`backend.node.traffic`), which speaks to all hosts:

    send, receive              gRPC messages; at a host, the other way round
    send_more, receive_more    further parcels in them, and all between clients and controller, in one process
    wake                       how often the connections' loop has slept, which Linux counts: a message that comes while
                               it works costs far less
    step, relay_step           steps that were ordered; as often as they were written to a host
    complete, complete_more    groups of gangs' ends told together by a host; further gangs in them
    enqueue                    gangs, on each host
    hand                       those that another thread computes than the one that enqueues them
    meet                       those of which other hosts have a part, and wait for each other in it
    client_call, client_note   calls; notes that the controller has told clients
    literal                    contents that came with a call, on each host
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from .fitting import Cost, Counts, Fit, Row, fit
from .watching import Sample

WHERE = {
    "client_call": "the user's thread, by call",
    "client_note": "the connections' loop and the user's thread, by note",
    "send": "all processes, by gRPC message",
    "send_more": "by further parcel of a message, and by parcel between clients and controller",
    "receive": "all processes, by gRPC message",
    "receive_more": "by further parcel of a message, and by parcel between clients and controller",
    "wake": "all processes, each time that the connections' loop woke up; with gRPC's thread that wakes it",
    "step": "the controller, by step ordered; with what is heard of it",
    "relay_step": "hosts, by step read",
    "enqueue": "hosts' enqueueing threads, by gang; with what JAX computes in them",
    "hand": "hosts' threads that enqueue and that wait for gangs, by gang that other threads compute; beyond others",
    "meet": "hosts' threads that enqueue and compute, by gang over several hosts; less a sum in a loop",
    "literal": "all processes, by contents that came with a call, and host",
    "complete": "hosts, by group of ends; with what wakes their threads",
    "complete_more": "hosts, by further gang of a group",
}
TIMED = {"enqueue": "hosts, by gang: timed devices, which have no thread of their own"}
CALLER, USER, HOST, ENQUEUE, DEVICE = "caller", "user", "host", "enqueue", "device"
SHARED = ("send", "send_more", "receive", "receive_more", "wake")


class Costs(NamedTuple):
    """Nanoseconds, by cost. missed: how far a row is from what the costs say, root mean square, by group of threads."""

    costs: dict[str, Cost]
    missed: dict[str, float]
    rows: int

    def less(self, name: str, part: Cost) -> Costs:
        """What has that in it, without it."""
        whole = self.costs.get(name)
        if whole is None:
            return self
        rest = max(0.0, whole.value - part.value)
        wide = math.hypot(whole.value * whole.spread, part.value * part.spread)
        return self._replace(costs=self.costs | {name: Cost(rest, wide / rest if rest else 0.0, whole.like)})


def counted(group: str, sample: Sample, timed: bool) -> Counts:
    """How often each of the costs came of which this group's time is made."""
    said = sample.counts
    more_out = said["parcels_out"] - said["frames_out"]
    more_in = said["parcels_in"] - said["frames_in"]
    near = said["near_out"] + said["near_in"]
    literal = {"literal": said["literals"]}
    if group == CALLER:
        return literal | {
            "client_call": said["calls"],
            "client_note": said["notes"],
            "receive_more": said["near_out"],
        }
    if group == USER:
        return {
            "send": said["frames_out"], "send_more": more_out + near,
            "receive": said["frames_in"], "receive_more": more_in + near,
            "step": said["said"], "client_note": said["notes"], "wake": said["wakes_user"], **literal,
        }  # fmt: skip
    if group == HOST:  # with the thread that waits for gangs, which has little to do by itself
        found = {
            "receive": said["frames_out"], "receive_more": more_out,
            "send": said["frames_in"], "send_more": more_in,
            "relay_step": said["steps"], "wake": said["wakes_host"], **literal,
            "complete": said["groups"], "complete_more": said["ends"] - said["groups"],
        }  # fmt: skip
        return found | ({"enqueue": said["ends"]} if timed else {"hand": handed(sample)})
    if group == ENQUEUE:
        return {
            "enqueue": said["ends"], "complete": said["groups"], "hand": handed(sample), "meet": meetings(sample),
            **literal,
        }  # fmt: skip
    if group == DEVICE:
        return {"meet": meetings(sample)}
    raise ValueError(group)


def handed(sample: Sample) -> float:
    return sample.counts["ends"] if sample.counts["handed"] else 0


def meetings(sample: Sample) -> float:
    """What is computed in place is a sum over all hosts."""
    return sample.counts["ends"] - handed(sample) if sample.counts["hosts"] > 1 else 0


def rows_of(samples: Sequence[Sample], timed: bool) -> list[tuple[str, Row]]:
    """With the group that each belongs to. Costs that are not shared are that group's own: "complete" of the enqueueing
    thread is another than that of the loop."""
    groups = (CALLER, USER, HOST) if timed else (CALLER, USER, HOST, ENQUEUE, DEVICE)
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
            if any(counts.values()):  # else it has done nothing that these costs are of
                typical = statistics.median(usual[sample.name, group])
                found.append((group, Row(spent_by(group, sample), counts, typical)))
    return found


def spent_by(group: str, sample: Sample) -> float:
    return sample.cpu[group] + (sample.cpu["completions"] if group == HOST else 0)


def costs_of(samples: Sequence[Sample], timed: bool) -> Costs:
    """Groups that share costs are fitted together, the others by themselves."""
    rows = rows_of(samples, timed)
    together: list[Fit] = []
    missed: dict[str, float] = {}
    for groups in ((CALLER, USER, HOST), (ENQUEUE,), (DEVICE,)):
        chosen = [row for group, row in rows if group in groups]
        if chosen:
            found = fit(chosen)
            together.append(found)
            missed[" and ".join(groups)] = found.missed
    return Costs(summed(together), missed, len(rows))


def summed(fits: Sequence[Fit]) -> dict[str, Cost]:
    """Over the groups in which a cost was found; their spreads as if one did not know of the other."""
    found: dict[str, list[Cost]] = {}
    for each in fits:
        for name, cost in each.costs.items():
            found.setdefault(name.partition("@")[0], []).append(cost)
    made = {}
    for name in sorted(found):
        parts = found[name]
        value = sum(part.value for part in parts)
        wide = sum((part.value * part.spread) ** 2 for part in parts) ** 0.5
        like = {other.partition("@")[0] for part in parts for other in part.like} - {name}
        made[name] = Cost(value, wide / value if value else 0.0, tuple(sorted(like)))
    return made


def sources(costs: Costs, timed: bool) -> dict[str, str]:
    """Of each cost, in words: how it was measured."""
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
