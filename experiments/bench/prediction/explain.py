"""Prints where a case's CPU time goes, measured and simulated side by side, by process and thread.

Differences show what the model lacks. A real run's CPU times are read from the system, by thread. A simulated run's are
the costs charged to its processes. The rest of the cores' time was spent waiting, or by other work on this machine.
"""

from __future__ import annotations

import os

from .playing import Played

LEAST = 0.5  # microseconds a gang that are worth a line


def explained(foretold: Played, seen: Played) -> str:
    """Microseconds of CPU a gang."""
    lines = [f"    measured: {seen.gangs:,} gangs in {seen.wall / 1e9:.2f} s; CPU, us a gang", *_lines(seen)]
    if any(foretold.cpu.values()):
        lines.append(
            f"    simulated: {foretold.gangs:,} gangs in {foretold.wall / 1e9:.2f} s; CPU, us a gang"
        )
        lines += _lines(foretold)
    else:
        lines.append("    simulated: its hosts share no cores, so charged costs are not counted")
    return "\n".join(lines)


def _lines(played: Played) -> list[str]:
    gangs = max(1, played.gangs)
    each = {name: ns / 1e3 / gangs for name, ns in played.cpu.items()}
    found = [_line(name, cost) for name, cost in sorted(each.items()) if cost >= LEAST]
    hosts = sum(cost for name, cost in each.items() if name.startswith(("agent", "host")))
    busy = sum(played.cpu.values()) / played.wall if played.wall else 0.0
    found += [_line("all hosts", hosts), _line("controller and clients", sum(each.values()) - hosts)]
    found.append(f"{_line('all', sum(each.values()))}   {busy:.2f} of {os.cpu_count()} cores")
    wires = ", ".join(f"{name} {number / gangs:.2f}" for name, number in played.wires.items())
    return [*found, f"        messages on the wire a gang: {wires}"]


def _line(name: str, cost: float) -> str:
    return f"        {name:32}{cost:>10,.1f}"
