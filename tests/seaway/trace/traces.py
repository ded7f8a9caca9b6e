"""Traces to test with: what a driver would have recorded, made by a few lines that know how devices behave.

Devices take gangs in order. All devices of a gang start together, when the last host has enqueued it and its inputs are
there.
"""

from __future__ import annotations

from random import Random

import numpy as np

from core.model import spans
from core.model.topology import PRESETS, Cluster, small
from core.record.trace import Trace

US, MS = 1_000, 1_000_000


def shared(
    weights: dict[str, int] | None = None, gangs: int = 300, hosts: int = 16, devices_per_host: int = 4,
    durations: tuple[int, ...] = (330 * US,), late: float = 0.04, seed: int = 1,
) -> Trace:  # fmt: skip
    """Clients share all devices of one island by weight, a gang a run. Now and then a host is late."""
    weights = weights or {"ann": 1, "bob": 2, "cat": 4, "dan": 8}
    dice = Random(seed)
    jitter = np.random.default_rng(seed)
    trace = Trace()
    trace.place(0, 0, ((0, hosts * devices_per_host),), devices_per_host)
    for number, (name, weight) in enumerate(weights.items(), 1):
        trace.client(number, name, weight, 0, 0)
    pass_, entered, free = dict.fromkeys(range(1, len(weights) + 1), 0.0), 0, 0
    started = [0, 0]
    for seq in range(gangs):
        client = min(pass_, key=lambda each: (pass_[each], each))
        pass_[client] += 1 / list(weights.values())[client - 1]
        entered = max(entered + 5 * US, started[-2])  # at most two are ahead
        trace.submitted(seq, client, seq, f"train {list(weights)[client - 1]}", max(0, entered - 2 * MS))
        trace.admitted(seq, max(0, entered - 2 * MS) + 20 * US)
        trace.gang(seq, seq, "step", 0, 0, ready=max(0, entered - 1 * MS), entered=entered)
        arrivals = entered + 20 * US + 200 * np.arange(hosts) + jitter.integers(0, 8 * US, hosts)
        if dice.random() < late:
            low = dice.randrange(hosts)
            arrivals[low : low + max(1, hosts // 8)] += free + 150 * US - entered
        trace.hosts(seq, arrivals)
        start = max(free, int(arrivals.max()))
        free = start + durations[client % len(durations)]
        first = max(int(arrivals.min()), trace.gangs.column("ended")[-2] if seq else 0)
        trace.update(seq, started=start, skew=start - first, ended=free)
        trace.ended(seq, free + 30 * US)
        started.append(start)
    for number in range(1, len(weights) + 1):
        trace.client_gone(number, free + MS)
    return trace


def pipeline(islands: int = 4, microbatches: int = 8, steps: int = 2) -> tuple[Trace, Cluster]:
    """One stage for each island of set-up C, forward and back, with contents sent between them. Each step is a run."""
    cluster = Cluster.from_table(PRESETS["C"]) if islands == 4 else small(4, 8, islands)
    trace = Trace()
    for island in cluster.islands:
        trace.place(island.index, island.index, island.device_span, island.devices_per_host, island.base_device)
    trace.client(1, "trainer", 1, 0, 0)
    free = [0] * islands
    seq, now = 0, 0
    for step in range(steps):
        trace.submitted(step, 1, step, "pipeline", now)
        trace.admitted(step, now + 10 * US)
        there: dict[tuple[str, int, int], int] = {}  # contents that have arrived: direction, stage, micro-batch
        order = [("forward", m, s) for m in range(microbatches) for s in range(islands)]
        order += [("backward", m, s) for m in range(microbatches) for s in reversed(range(islands))]
        for way, m, stage in order:
            island = cluster.islands[stage]
            duration = 300 * US if way == "forward" else 600 * US
            source = stage - 1 if way == "forward" else stage + 1
            inputs = there.get((way, stage, m), now)
            trace.gang(seq, step, f"{way} {m}", stage, stage, ready=now, entered=now + 5 * US)
            arrivals = now + 20 * US + 1 * US * np.arange(island.hosts)
            trace.hosts(seq, arrivals)
            start = max(free[stage], int(arrivals.max()), inputs)
            free[stage] = start + duration
            trace.update(seq, started=start, ended=free[stage])
            trace.levels([(start, stage, (m + 1) << 28, (m + 2) << 28, 16 << 30)])
            seq += 1
            target = stage + 1 if way == "forward" else stage - 1
            if 0 <= target < islands:
                there[way, target, m] = free[stage] + 150 * US
                trace.transfer(
                    seq, step, f"send {way} {m}", stage, target, nbytes=64 << 20, entered=now + 5 * US,
                    started=free[stage], ended=free[stage] + 150 * US,
                )  # fmt: skip
                seq += 1
            assert source != target
        now = max(free) + 100 * US
        trace.ended(step, now)
    return trace, cluster


Moments = list[tuple[int, int, str, str]]  # (device, time, whose, what): a nanosecond in which a device is not idle


def drawn(seed: int) -> tuple[Trace, Cluster, Moments]:
    """Draw a little of everything: two islands, places that overlap, idle devices, late hosts, inputs that are waited
    for, gangs without collectives, gangs without a client. Times are short, so that a loop can go through them."""
    dice = Random(seed)
    cluster = Cluster.from_table(
        {"island": [{"name": "a", "hosts": 3, "devices_per_host": 2}, {"name": "b", "hosts": 2, "devices_per_host": 3}]}
    )
    places = [(0, ((0, 4),)), (0, ((1, 3), (4, 5))), (0, ((2, 6),)), (1, ((6, 12),)), (1, ((7, 8), (10, 11)))]
    trace = Trace()
    for key, (index, there) in enumerate(places):
        island = cluster.islands[index]
        trace.place(key, index, there, island.devices_per_host, island.base_device)
    for number in (1, 2):
        trace.client(number, f"c{number}", number, 0, 0)
        trace.submitted(number, number, 0, f"p{number}", 0)
    free = dict.fromkeys(range(12), 0)
    truth: Moments = []
    for seq in range(dice.randint(0, 14)):
        key, run = dice.randrange(len(places)), dice.choice([1, 2, -1])
        devices = list(spans.items(places[key][1]))
        hosts = [cluster.host_of(device) for device in devices]
        arrivals = {host: dice.randint(0, 90) for host in sorted(set(hosts))}
        took = {device: max(arrivals[host], free[device]) for device, host in zip(devices, hosts, strict=True)}
        trace.gang(seq, run, dice.choice("xy"), places[key][0], key, entered=seq)
        collective, known, ready = dice.random() < 0.7, True, max(took.values())
        if collective:
            start = ready + dice.choice([0, 0, 4])
            starts = dict.fromkeys(devices, start)
            ends = dict.fromkeys(devices, start + dice.randint(0, 12))
            known = dice.random() < 0.8
            if known:
                trace.hosts(seq, list(arrivals.values()))
            trace.update(seq, started=start, ended=ends[devices[0]])
        else:  # a host begins when all its devices are there
            begin = {host: max(t for d, t in took.items() if cluster.host_of(d) == host) for host in arrivals}
            end = {host: at + dice.randint(0, 12) for host, at in begin.items()}
            starts = {device: begin[host] for device, host in zip(devices, hosts, strict=True)}
            ends = {device: end[host] for device, host in zip(devices, hosts, strict=True)}
            trace.hosts(seq, list(begin.values()))
            trace.update(seq, started=min(begin.values()))
            trace.ends(seq, list(end.values()))
        whose = f"c{run}" if run > 0 else "?"
        for device in devices:
            truth += [(device, at, whose, "busy") for at in range(starts[device], ends[device])]
            if collective and known:
                truth += [(device, at, whose, "skew") for at in range(took[device], ready)]
                truth += [(device, at, whose, "input_wait") for at in range(ready, starts[device])]
        free.update(ends)
    return trace, cluster, truth
