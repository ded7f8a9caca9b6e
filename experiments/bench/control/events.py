"""Measures events and gangs per CPU second, of the controller with 512 hosts and of one host's executor.

The baseline is a naive controller: for each gang one message to each host and one completion from each, counted in a
set. Both put the same gangs on the same 2,048 devices. A second table has the CPU time of a call in each machine, from
a client's call until it hears that its run has ended, with up to 250,000 hosts.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from time import process_time

import msgspec

from core.model import spans
from core.protocol import Done, GangStep

from ..frame.measuring import in_turns
from ..frame.table import Table
from .one_client import PER_HOST, OneClient

HOSTS, FANOUT, REPEATS = 512, 23, 5
CALLS = {1: 400, 128: 8}  # by nodes of a call
NAIVE = 60  # gangs
CLUSTERS = (64, 64), (512, 512), (512, 23), (25_000, 160), (250_000, 512)  # hosts, fan-out


def naive(gangs: int) -> float:
    """Gangs a CPU second of a controller that exchanges messages with every host for every gang."""
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Done)
    start = process_time()
    for seq in range(gangs):
        sent = [encoder.encode(GangStep(seq, 1, 0, spans.one(host))) for host in range(HOSTS)]
        waiting = set(range(len(sent)))
        for host in range(HOSTS):
            done = decoder.decode(encoder.encode(Done(seq, spans.one(host))))
            waiting.discard(done.hosts[0][0])
        assert not waiting
    return gangs / (process_time() - start)


def called(hosts: int, fanout: int, calls: int, nodes: int = 1) -> OneClient:
    made = OneClient(hosts, fanout)
    made.run(calls, nodes=nodes)
    return made


def main() -> None:
    bases = [naive(NAIVE) for _ in range(REPEATS)]
    works = {nodes: partial(called, HOSTS, FANOUT, calls, nodes) for nodes, calls in CALLS.items()}
    base, found = median(bases), in_turns(REPEATS, works)
    table = Table(" <34", "gangs >10,.0f", "events >10,.0f", "x naive >9.1f")
    table.begin(f"{HOSTS} hosts, {HOSTS * PER_HOST} devices; median of {REPEATS}; per CPU second")
    table.row("naive: a message a host and gang", base, None, 1.0)
    for nodes, runs in found.items():
        for machine in ("controller", "executor"):
            gangs = median(run.gangs / run.spent[machine] for run in runs)
            events = median(run.events[machine] / run.spent[machine] for run in runs)
            ratio = gangs / base if machine == "controller" else None
            table.row(f"{machine}, {nodes} node{'s' * (nodes > 1)} a call", gangs, events, ratio)
    print(f"one client, programs of one node on all devices ({PER_HOST} a host); CPU microseconds a gang")
    table = Table("hosts >9,", "fanout >9,", "client >9.1f", "controller >12.1f", "executor >10.1f", "in all >8.1f",
                  "start-up >9.2f s").begin()  # fmt: skip
    for hosts, fanout in CLUSTERS:
        start = process_time()
        bench = OneClient(hosts, fanout)
        ready = process_time() - start
        bench.run(1_000)
        us = [1e6 * spent / bench.gangs for spent in bench.spent.values()]
        table.row(hosts, fanout, *us, sum(us), ready)
