"""Simulates several clients on one island, each with a program of its own, for figures 8, 9 and 11."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from seaway.trace import Trace, times
from sim.hardware import Setup
from sim.simulation import Simulation

from ..framework.options import BadOption, Option, Point
from . import common
from .clients import Failed, Loop, Tally
from .programs import chain, plain

# Figures 8 and 11 show the same programs. The paper does not print their length. One client leaves gaps (figure 11),
# and several exceed JAX with tiny computations (figure 8): of the powers of two, only 32 and 64 do both.
NODES = Option("nodes", 32, "computations in a call", least=1)
AHEAD = Option("ahead", 0, "calls that a client does not wait for", least=0)
WINDOW = Option("window", 4096, "gangs that the controller may order ahead of the devices", least=1)


def tenants(
    setup: Setup, point: Point, compute: Sequence[int], gangs: int, weights: Sequence[int] = ()
) -> tuple[Simulation, list[Loop]]:
    """Simulate clients until `gangs` gangs have ended. `compute`: nanoseconds of each client's computation.

    Each client calls a chain of NODES repeatedly, with AHEAD + 1 calls unfinished.
    """
    sim, ended, nodes = common.simulated(setup, point), Tally(), point["nodes"]
    loops = [
        Loop(
            sim, names(len(compute))[at], chain(setup, plain(each), nodes, name=f"program {at}"), ahead=point["ahead"],
            weight=weights[at] if weights else 1, tally=ended,
        )
        for at, each in enumerate(compute)
    ]  # fmt: skip
    sim.run(until=lambda: ended.count * nodes >= gangs or ended.failed)
    for loop in loops:
        if loop.failures:
            raise Failed(loop.failures[0])
    return sim, loops


def names(clients: int) -> list[str]:
    return [chr(ord("a") + at) if clients <= 26 else f"c{at}" for at in range(clients)]


def weights_of(text: str) -> tuple[int, ...]:
    """Weights from a text such as `1:2:4:8`."""
    parts = text.split(":")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise BadOption(f"weights {text!r}: write whole numbers of at least 1 with colons between, like 1:2:4:8")
    return tuple(map(int, parts))


def steady(sim: Simulation) -> times.Span:
    """A window without the beginning, when pipelines fill, and without gangs that have not ended."""
    ended = np.asarray(sim.trace.gangs.column("ended"))
    started = np.asarray(sim.trace.gangs.column("started"))
    last = int(ended.max())
    first = int(started[started >= 0].min())
    return times.span_of(first + int((last - first) * (1 / 3)), last)


def shares(sim: Simulation, loops: Sequence[Loop], window: times.Span) -> dict[str, float]:
    """Each client's part of the devices' busy time in the window."""
    frame = Trace(sim.trace, sim.setup).utilization(by="client", window=window)
    found = dict(zip(frame["client"], frame["busy_fraction"], strict=True))
    total = sum(found.values())
    return {loop.name: found.get(loop.name, 0.0) / total if total else 0.0 for loop in loops}


def busy(sim: Simulation, window: times.Span) -> float:
    """The part of all devices' time in the window in which they computed."""
    return float(Trace(sim.trace, sim.setup).utilization(by="total", window=window)["busy_fraction"].iloc[0])


def timelines(sim: Simulation, since: int, ms: float) -> list[dict[str, Any]]:
    """Rows for a figure: which client used some devices from when to when, for so long after `since`."""
    window = times.span_of(since, since + round(ms * 1e6))
    frame = Trace(sim.trace, sim.setup).intervals(window=window, sample=4)
    low, high = window[0] / 1e3, window[1] / 1e3
    return [
        {
            "device": int(device), "client": str(client), "started_us": max(started, low) - low,
            "ended_us": min(ended, high) - low,
        }
        for device, client, started, ended in zip(
            frame["device"], frame["client"], frame["started_us"], frame["ended_us"], strict=True
        )
    ]  # fmt: skip
