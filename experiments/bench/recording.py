"""Measures the cost of a controller's event log: the same gangs with and without `record=`, in CPU time and bytes.

One client calls a program of one node, eight calls at a time (`one_client`); the log is a real file.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
from pathlib import Path
from time import process_time
from typing import NamedTuple

from backend.server import Recording, read
from core.controller import Controller
from core.record import replayed
from core.schedule.policy import Stride

from .one_client import OneClient, controller

HOSTS = (2, 512)
GANGS, ROUNDS = 2000, 5


class Kept(NamedTuple):
    gang: float  # CPU microseconds
    events: int
    nbytes: int
    replay: float  # CPU microseconds an event


def main() -> None:
    print(f"CPU us of controller, hosts' executor and client together a gang; medians of {ROUNDS}")
    for hosts in HOSTS:
        rounds = [
            (without(hosts), kept(hosts)) for _ in range(ROUNDS)
        ]  # alternating, since a machine's speed changes
        base = statistics.median(plain for plain, _ in rounds)
        cost = statistics.median(found.gang for _, found in rounds)
        again = statistics.median(found.replay for _, found in rounds)
        last = rounds[-1][1]
        print(
            f"{hosts:4} hosts: {base:5.0f} without, {cost:5.0f} with, {cost / base:4.2f} times; "
            f"{last.events / GANGS:.1f} events and {last.nbytes / GANGS:.0f} bytes a gang; "
            f"{again:.0f} us an event to replay"
        )


def without(hosts: int) -> float:
    return timed(OneClient(hosts))


def kept(hosts: int) -> Kept:
    recordings: list[Recording] = []

    def recorded(controller: Controller) -> Recording:
        recordings.append(Recording(controller, path, Stride, 0))
        return recordings[0]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.log"
        gang = timed(OneClient(hosts, recorded))
        recordings[0].close()
        log = read(path)
        begun = process_time()
        events = sum(1 for _ in replayed(log, controller(hosts)))
        return Kept(gang, events, path.stat().st_size, (process_time() - begun) * 1e6 / events)


def timed(world: OneClient) -> float:
    gc.collect()
    begun = process_time()
    world.run(GANGS)
    return (process_time() - begun) * 1e6 / GANGS
