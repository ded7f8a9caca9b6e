"""Runs and measures one case of `prediction` in a session, with the same code for real and simulated ones.

`measured(case, session, alone, spell)` yields, spell after spell, what came of it, each quantity by name, and
`from_trace` adds what its trace says. Times are the session's own (`session.driver.now`), so nothing here knows
which kind of session it is. Neighbours: `programs` has what is called, `playing` the sessions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seaway.tools.calibrating import chained, to_and_fro

from .cases import Case
from .programs import Alone, Call, alone_ns, computation, content, name_of

LEAST = 3  # calls of a measurement, however long they take
WARM = 3
ROUNDS, LONGEST = (
    20,
    5.0,
)  # a measurement lasts at least as long as this many calls alone, but no longer than this many seconds
SETTLE = 0.3  # part of a measurement added, so that all clients run for long enough together
SECOND = 1_000_000_000

Values = dict[str, float]  # by quantity


# --- the spells -----------------------------------------------------------------------------------


class Spell(NamedTuple):
    """When each of a client's calls began and ended, in nanoseconds of the session's clock."""

    begun: list[int]
    ended: list[int]


def calling(session: Any, call: Call, first: Any, until: int, ahead: int, feeds: bool) -> Spell:
    """Make calls until a time, with `ahead` under way. `feeds`: each takes the last one's result."""
    spell, x = Spell([], []), first
    under_way: deque[tuple[int, Any]] = deque()

    def over() -> None:
        begun, made = under_way.popleft()
        made.block_until_ready()
        spell.begun.append(begun)
        spell.ended.append(session.driver.now())

    while len(spell.ended) + len(under_way) < LEAST or session.driver.now() < until:
        begun = session.driver.now()
        made = call(x)
        under_way.append((begun, made))
        x = made if feeds else first
        if len(under_way) >= ahead:
            over()
    while under_way:
        over()
    return spell


def percentiles(latencies: Sequence[int]) -> Values:
    """The 50th and 99th percentile, in seconds."""
    found = np.percentile(np.asarray(latencies), (50, 99)) / SECOND
    return {"latency p50": float(found[0]), "latency p99": float(found[1])}


def latencies(spell: Spell) -> list[int]:
    return [ended - begun for begun, ended in zip(spell.begun, spell.ended, strict=True)]


def busy_ns(case: Case, alone: Alone) -> int:
    """Nanoseconds that devices are busy with one call of each client."""
    calls = case.works * len(case.weights) if case.kind == "clients" else case.works
    return sum(alone_ns(work, case.hosts, alone, case.chain) for work in calls)


def measured(case: Case, session: Any, alone: Alone, spell: float) -> Iterator[Values]:
    """An endless iterator of measurements of about `spell` seconds. It warms up before the first."""
    session.dispatch = case.dispatch
    if case.kind == "transfer":
        return _transfer(case, session, spell)
    spell = max(spell, min(LONGEST, ROUNDS * busy_ns(case, alone) / SECOND))
    if case.kind in ("clients", "mixed"):
        return _clients(case, session, alone, spell)
    return _alone(case, session, alone, spell)


def _alone(case: Case, session: Any, alone: Alone, spell: float) -> Iterator[Values]:
    """One client: first with several calls under way, then waiting for each."""
    import seaway as sw

    (work,) = case.works
    feeds, gangs = case.kind != "pipeline", 1 if case.kind == "Fused" else case.chain
    if feeds:
        homes = [sw.slice(devices=case.hosts)]
        step = computation(work, homes[0], alone, case.chain if case.kind == "Fused" else 1)
        call = chained([step] * gangs)
    else:
        gangs = case.hosts
        homes = [sw.slice(devices=1, exclusive=True) for _ in range(gangs)]
        call = chained([computation(work, home, alone) for home in homes])
    x = content(work, homes[0].devices)
    if not feeds and x.nbytes:
        x = sw.put(x, devices=homes[0])
    start = x
    for _ in range(WARM):
        made = call(x).block_until_ready()
        start = made if feeds else x
    while True:
        begun = session.driver.now()
        busy = calling(session, call, start, begun + round(spell * SECOND), case.ahead, feeds)
        lasted = session.driver.now() - begun
        waited = calling(session, call, start, session.driver.now() + round(spell * SECOND), 1, feeds)
        yield {"throughput": len(busy.ended) * gangs * SECOND / lasted, **percentiles(latencies(waited))}


def _transfer(case: Case, session: Any, spell: float) -> Iterator[Values]:
    """Transfers to and fro between two hosts, one hop after the other."""
    import seaway as sw

    a, b = (sw.slice(devices=1, exclusive=True) for _ in range(2))

    hops = to_and_fro(a, b, case.chain)
    x = sw.put(np.ones(case.nbytes, np.uint8), devices=a)
    for _ in range(WARM):
        hops(x).block_until_ready()
    while True:
        found = calling(session, hops, x, session.driver.now() + round(spell * SECOND), 1, feeds=False)
        yield {"hop": float(np.median(latencies(found))) / case.chain / SECOND}


# --- several clients -----------------------------------------------------------------------------------


def _clients(case: Case, session: Any, alone: Alone, spell: float) -> Iterator[Values]:
    """Several clients at once, each in a thread. `mixed`: each with its own computation."""
    import seaway as sw

    home = sw.slice(devices=case.hosts)
    steps = [computation(work, home, alone) for work in case.works]
    calls = [chained([step] * case.chain) for step in steps]
    contents = [content(work, home.devices) for work in case.works]
    for call, x in zip(calls, contents, strict=True):
        call(x).block_until_ready()  # compiled
    turn = 0
    while True:
        turn += 1

        def client(which: int) -> Spell:
            start = calls[which](contents[which]).block_until_ready()  # its own, and its programs are known
            until = session.driver.now() + round(spell * (1 + SETTLE) * SECOND)
            return calling(session, calls[which], start, until, case.ahead, feeds=True)

        tasks = [
            session.spawn(client, at % len(calls), name=f"client {turn}.{at}", weight=weight)
            for at, weight in enumerate(case.weights)
        ]
        spells = [task.result() for task in tasks]
        yield together(case, spells)


def together(case: Case, spells: Sequence[Spell]) -> Values:
    """Quantities for the time in which all clients were calling."""
    first, last = max(spell.begun[0] for spell in spells), min(spell.ended[-1] for spell in spells)
    if first >= last:
        raise RuntimeError("the clients were not there at the same time; give them longer: a longer --spell")
    within = [[at for at, ended in enumerate(spell.ended) if first < ended <= last] for spell in spells]
    counts = [len(each) for each in within]
    whole = (last - first) / SECOND
    waits = [[spell.ended[at] - spell.begun[at] for at in each] for spell, each in zip(spells, within, strict=True)]
    if case.kind == "mixed":
        found: Values = {}
        for which, (count, each) in enumerate(zip(counts, waits, strict=True)):
            found[f"throughput {'ab'[which]}"] = count * case.chain / whole
            if each:
                found[f"latency p50 {'ab'[which]}"] = percentiles(each)["latency p50"]
        return found
    found = {"throughput": sum(counts) * case.chain / whole, **percentiles([wait for each in waits for wait in each])}
    if len(counts) > 1:
        heavy = case.weights.index(max(case.weights))
        found["share"] = counts[heavy] / sum(counts)  # the share of the first client with the largest weight
    return found


# --- from the trace -----------------------------------------------------------------------------------


def gangs_so_far(session: Any) -> int:
    gangs = session.trace.gangs()
    return int(gangs["seq"].max()) if len(gangs) else 0


def from_trace(case: Case, session: Any, alone: Alone, seen: int) -> Values:
    """Quantities from the trace, for gangs after number `seen`."""
    if case.kind == "transfer":
        return {}
    fused = case.chain if case.kind == "Fused" else 1
    each = {name_of(work, fused): alone_ns(work, case.hosts, alone, fused) for work in case.works}
    gangs = session.trace.gangs()
    return {"utilisation": used(gangs[gangs["seq"] > seen], each, case.hosts)}


def used(gangs: Any, each: Mapping[str, int], devices: int) -> float:
    """The part of the devices' time that these gangs would take alone, while all clients were active.

    The trace's own busy time is not used: in a real trace starts are inferred, and ends are seen late.
    """
    gangs = gangs.dropna(subset=["ended_us"])
    spans = gangs.groupby(gangs["client"].astype(str))["ended_us"].agg(["min", "max"])
    first, last = float(spans["min"].max()), float(spans["max"].min())
    within = gangs[(gangs["ended_us"] > first) & (gangs["ended_us"] <= last)]
    busy = within["step"].astype(str).map(each) * within["devices"]
    return float(busy.sum()) / 1e3 / ((last - first) * devices) if last > first else float("nan")
