"""Executors of six hosts that behave alike, with streams to tell them and ways to compare them."""

from __future__ import annotations

from typing import Any

from core.model.place import Grid, Place, line
from core.model.plan import Gang, Move
from core.model.spans import Spans
from core.protocol.effects import Cause, Reformed
from core.protocol.messages import Blame, Ordered, RunHeader, Seat
from sim.cohort import AlikeHosts
from tests.core.hostworld import SAME, Cluster, gang, layout, plan

ALL: Spans = ((0, 6),)
WHOLE, HALF, REST, SOME = line(0, 0, 12), line(0, 0, 6), line(0, 6, 6), line(0, 2, 4)
FIRSTS = Place(0, (Grid(0, (6,), (2,)),))  # the first device of each host
ODD = line(0, 0, 5)  # all of hosts 0 and 1, and half of host 2
FAR = line(1, 12, 6)
BAD = Blame("user", "boom")


def nothing_is_past(cause: Cause) -> bool:
    return False


def same(one: AlikeHosts, other: AlikeHosts) -> bool:
    """Whether one executor may do for the hosts of both."""
    if one.outline() is None or one.outline() != other.outline():
        return False
    return one.remembered(nothing_is_past) == other.remembered(nothing_is_past)


def seat(host: int, tree: int = 0) -> Seat:
    return Seat(0, 0, tree, host, -1, (), ALL, 0)


def seated(members: Spans = ALL) -> AlikeHosts:
    executor = AlikeHosts(members, Cluster())
    executor.handle(seat(executor.host), 0)
    executor.handle(Reformed(0), 0)
    return executor


def ordered(number: int, *steps: Any, hosts: Spans = ALL, **more: Any) -> Ordered:
    facts: dict[str, Any] = {"settled": 0, "plans": (), "runs": ()} | more
    return Ordered(0, 0, 0, number, hosts, steps=steps, **facts)


def plan_and_run(place: Place, *steps: Gang | Move, sharding: Any = SAME) -> dict[str, Any]:
    """A plan with one slot at each end of each move, and a run of it."""
    layouts = [layout(place, 24, sharding), layout(FAR, 24, sharding)]
    made = plan(1, layouts, steps or [gang("g", place, (), (0,))], keep=(0, 1))
    return {"plans": (made,), "runs": (RunHeader(1, 1, 100, ()),)}
