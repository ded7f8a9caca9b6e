"""Predicts what `control` would measure with hosts on machines of their own, by simulating with its measured costs.

Costs are derived from CPU times, separately for single and batched gangs. The controller's extra time when it writes to
all hosts, divided by the number of extra hosts, is the cost of a peer. The rest is the gang's own cost. A single call
is ordered as two steps, the gang and the freeing of the previous call's result, each a message to every peer; only the
first is reported. Costs that cannot be told apart are divided evenly; `profile_of` gives the source of each.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from sim.hardware import Profile, profile

BUDGETS = {16: 2.3, 512: 35.0}  # ms: the paper's smallest computations that hide its controller
CALLS = 12
ORDERED = {"single": 2, "batched": 1}  # messages down, and steps in them, for each gang (of 128: nearly one)
KINDS: tuple[Literal["single", "batched"], ...] = ("single", "batched")


class Cost(NamedTuple):
    """CPU milliseconds a gang, of the controller and of all agents together."""

    controller: float
    agents: float


class Spent(NamedTuple):
    """client: CPU milliseconds a call. latency: milliseconds of a call, end to end. rate: batched gangs a second. The
    last two are with all hosts on this machine."""

    single: Cost
    batched: Cost
    client: float
    latency: float
    rate: float


class Measured(NamedTuple):
    hosts: int
    tree: Spent
    flat: Spent


class Predicted(NamedTuple):
    """Milliseconds of a call, end to end, and between batched gangs."""

    latency: float
    gang: float


def profile_of(
    row: Measured, found: Sequence[Measured], fanout: int, kind: Literal["single", "batched"]
) -> Profile:
    """A profile for this row's cluster. The cost of a peer comes from the largest cluster, where it is most exact."""
    last = max(found, key=lambda each: each.hosts)
    tree, peers = getattr(row.tree, kind), min(row.hosts, fanout)
    more = last.hosts - min(last.hosts, fanout)
    if more:
        peer = (getattr(last.flat, kind).controller - getattr(last.tree, kind).controller) / more
        why = (
            f"{kind} gangs: the controller's CPU, flat less tree, at {last.hosts} hosts, by peer and message"
        )
    else:
        peer = tree.controller / (peers + 1)
        why = f"{kind} gangs: the controller's CPU at {row.hosts} hosts, by peer (one more for itself) and message"
    peer, downs = max(peer, 0.001), ORDERED[kind]
    relayed = 1 + (row.hosts - peers) / row.hosts  # messages down, and up, that a host has to do with
    own = _ns((tree.agents / row.hosts - relayed * peer) / 3)
    host = (
        f"{kind} gangs: agents' CPU a host, less its messages; a third of it (timed devices: without JAX's)"
    )
    mine = "the client's CPU a call; half of it"
    costs = {
        "send": (_ns(peer / (downs + 1)), why),
        "receive": (_ns(peer / (downs + 1)), why),
        "step": (
            _ns((tree.controller - peers * peer) / downs),
            f"{kind} gangs: the controller's CPU, less its messages",
        ),
        "client_call": (_ns(row.tree.client / 2), mine),
        "client_note": (_ns(row.tree.client / 2), mine),
        "relay_step": (own, host),
        "enqueue": (own, host),
        "complete": (own, host),
        "prepare": (0, "timed devices have nothing to prepare"),
    }
    made = profile("seaway").changed(**{key: value for key, (value, _) in costs.items()})
    return msgspec.structs.replace(
        made, name="measured", status="measured", fanout=fanout, note="by experiments.bench control, just now",
        sources=made.sources | {key: why for key, (_, why) in costs.items()},
    )  # fmt: skip


def _ns(milliseconds: float) -> int:
    return max(0, round(milliseconds * 1e6))


def predicted(row: Measured, found: Sequence[Measured], fanout: int, nodes: int) -> Predicted:
    single, batched = (profile_of(row, found, fanout, kind) for kind in KINDS)
    return Predicted(call_ms(row.hosts, single), gang_ms(row.hosts, batched, nodes))


def call_ms(hosts: int, costs: Profile, calls: int = CALLS) -> float:
    """Simulated milliseconds of a call of one gang that the client waits for."""
    import seaway as sw

    with sw.simulate(_cluster(hosts), profile=costs, progress=False) as session:
        step = sw.synthetic("step", devices=sw.slice(devices=hosts), duration="1us")
        latencies = []
        for _ in range(calls):
            begun = session.now()
            step(np.float32(0)).block_until_ready()
            latencies.append(session.now() - begun)
    return statistics.median(latencies) * 1e3


def gang_ms(hosts: int, costs: Profile, nodes: int, calls: int = 4) -> float:
    """Simulated milliseconds between two gangs, with several calls of many nodes under way."""
    import seaway as sw

    with sw.simulate(_cluster(hosts), profile=costs, progress=False) as session:
        step = sw.synthetic("step", devices=sw.slice(devices=hosts), duration="1us")

        @sw.program
        def chain(x: Any) -> Any:
            for _ in range(nodes):
                x = step(x)
            return x

        chain(np.float32(0)).block_until_ready()
        begun = session.now()
        for x in [chain(np.float32(0)) for _ in range(calls)]:
            x.block_until_ready()
        return (session.now() - begun) / (calls * nodes) * 1e3


def _cluster(hosts: int) -> dict[str, object]:
    return {"island": [{"name": "i", "kind": "cpu", "hosts": hosts, "devices_per_host": 1}]}
