"""Cuts of one direction of a connection, and what each end must have done about it before its lease is long over.

Of an end that hears nothing, and of one that is not heard, the link is over a heartbeat after the lease. So is what a
client that was cut off from the controller had called before.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.world.actors import Actor
from tests.world.script import ClientActor, Script
from tests.world.world import World

from .case import MS, Action, Cut

SLACK = 3 * MS  # for latencies, and for what is late because a host is slow


def cut(world: World, action: Cut) -> None:
    network, names = world.network, (action.one, action.other)
    one, other = (world.actors[name] for name in names)
    joined = network.is_up(*names) and not (one.still or other.still or one.lag or other.lag)
    network.mute(*names)
    if not joined or network.muted_at(*names) != world.now:
        return
    links = [(end, far, link_of(end, far)) for end, far in ((one, other), (other, one))]
    client = one if isinstance(one, ClientActor) else other
    runs = sent_runs(client.script) if isinstance(client, ClientActor) and "controller" in names else []
    known = world.now, [(end.starts, end.stops) for end in (one, other)]

    def look() -> None:
        now_known = network.muted_at(*names), [(end.starts, end.stops) for end in (one, other)]
        if now_known != known or one.lag or other.lag or not (one.alive and other.alive):
            return  # it was mended, or one of them cannot know how long it was
        for end, far, link in links:
            if link and link_of(end, far) == link:
                world.faults.append(f"{end.name} keeps its link to {far.name}, which is cut one way")
        assert isinstance(client, ClientActor) or not runs
        for run in runs:
            if not client.script.runs[run].ends:  # type: ignore[attr-defined]
                world.faults.append(f"run {run} of {client.name} waits for a controller that is cut off")

    lease = world.timing.lease
    world.soon(lease + lease // 4 + SLACK, look)


def longest(actions: Sequence[Action]) -> int:
    """When the last of these cuts is mended: leases are to run out meanwhile."""
    cuts = [action for action in actions if isinstance(action, Cut) and action.one_way]
    return max([action.at + action.mend for action in cuts], default=0)


def link_of(end: Actor, far: Actor) -> int:
    """The number of its link; 0: it has none, or has not heard of the other end's link."""
    peer = end.endpoint._peers.get(end.peer(far.name))
    return 0 if peer is None or not peer.theirs else peer.mine


def sent_runs(script: Script) -> list[int]:
    unsent = {getattr(call, "run", 0) for call in script.machine._batching.gathered}
    return [name for name, run in script.runs.items() if not run.ends and name not in unsent]
