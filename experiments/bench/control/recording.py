"""Measures the cost of a controller's event log: the same gangs with and without `record=`, in CPU time and bytes.

One client calls a program of one node, eight calls at a time (`one_client`); the log is a real file.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import NamedTuple

from backend.server import Recording, machine_of, read
from core.controller import Controller
from core.record import replayed
from core.schedule.policy import Stride

from ..frame.measuring import cpu_seconds, in_turns
from .one_client import OneClient

HOSTS, FANOUT = (2, 512), 23
GANGS, ROUNDS = 2000, 5


class Kept(NamedTuple):
    gang: float  # CPU microseconds
    events: int = 0
    nbytes: int = 0
    replay: float = 0.0  # CPU microseconds an event


def main() -> None:
    print(f"CPU us of controller, hosts' executor and client together a gang; medians of {ROUNDS}")
    for hosts in HOSTS:
        found = in_turns(ROUNDS, {"without": partial(without, hosts), "with": partial(kept, hosts)})
        base, cost = (median(each.gang for each in found[name]) for name in ("without", "with"))
        last, again = found["with"][-1], median(each.replay for each in found["with"])
        print(f"{hosts:4} hosts: {base:5.0f} without, {cost:5.0f} with, {cost / base:4.2f} times; "
              f"{last.events / GANGS:.1f} events and {last.nbytes / GANGS:.0f} bytes a gang; "
              f"{again:.0f} us an event to replay")  # fmt: skip


def without(hosts: int) -> Kept:
    return Kept(per_gang(OneClient(hosts, FANOUT)))


def kept(hosts: int) -> Kept:
    recordings: list[Recording] = []

    def recorded(controller: Controller) -> Recording:
        recordings.append(Recording(controller, path, Stride, 0))
        return recordings[0]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.log"
        gang = per_gang(OneClient(hosts, FANOUT, recorded))
        recordings[0].close()
        log = read(path)
        begun = process_time()
        events = sum(1 for _ in replayed(log, machine_of(log.about)))
        return Kept(gang, events, path.stat().st_size, (process_time() - begun) * 1e6 / events)


def per_gang(world: OneClient) -> float:
    return cpu_seconds(lambda: world.run(GANGS)) * 1e6 / GANGS
