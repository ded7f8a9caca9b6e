"""Stragglers and failures on 2,048 devices: the effect of slow hosts, noise, and lost or leaving hosts on throughput.

One client calls chains of computations on all devices except the spares. A gang is as slow as its slowest host, so one
slow host in 512 costs as much as many, and noise costs the largest of 512 draws. A lost host costs its lease, until it
is known to be gone, and the time to form the island without it. If the island has a spare host, the client's slice then
moves there and its work goes on. A host that is warned of pre-emption leaves in order, which costs less. This goes
beyond the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from core.record import FAILED
from sim.engine import Noise
from sim.hardware import load
from sim.simulation import Fault

from .framework import Option, Point, Values
from .micro import common
from .micro.clients import Loop, simulation
from .micro.programs import chain, plain

if TYPE_CHECKING:
    import pandas as pd

NAME = "stragglers"
TITLE = "Stragglers and failures: throughput, and how long it stands still"
FAULTS = ("none", "crash", "cut", "leave")
OPTIONS = (
    Option("slow_part", (0.0, 0.002, 0.05), "part of all hosts that are slow; varied alone, like those below", least=0),
    Option("factor", (1.2, 2.0), "how many times as slow they are", least=1),
    Option("compute_noise", (0.0, 0.05, 0.2), "part by which a gang takes longer at most", least=0),
    Option("latency_us", (0.0, 200.0, 2000.0), "microseconds by which a control message takes longer at most", least=0),
    Option("fault", FAULTS, "fault of a host: it dies, its network is cut, it leaves with notice", choices=FAULTS),
    Option("spares", (0, 1), "hosts in reserve, for the faults", least=0),
    Option("hosts", 512, "hosts of the island", least=2),
    Option("cluster", "A", "set-up: A has 4 cores a host"),
    Option("compute_ms", 10.0, "milliseconds of a computation", least=0.001),
    Option("nodes", 6, "computations in a call", least=1),
    Option("calls", 3, "calls before and after the fault", least=3),
    Option("patience_s", 12.0, "seconds after which the client has given up", least=1),
    common.WINDOW, common.PROFILE, common.FIDELITY, common.SEED,
)  # fmt: skip
PANELS, SIZE = (1, 2), (10.0, 4.4)
VARIED = ("slow_part", "compute_noise", "latency_us", "fault")


def points(options: dict[str, Values]) -> list[Point]:
    """One healthy point, and points with one fault each. `factor` and `spares` vary only where they matter."""
    others = {name: values[0] for name, values in options.items()}
    healthy: Point = {
        **others,
        "slow_part": 0.0,
        "compute_noise": 0.0,
        "latency_us": 0.0,
        "fault": "none",
        "spares": 0,
    }
    found = [healthy] if all(healthy[name] in options[name] for name in VARIED) else []
    for name in VARIED:
        for value in options[name]:
            if value in (0.0, "none"):
                continue
            again = {"slow_part": "factor", "crash": "spares", "leave": "spares"}.get(
                name if name != "fault" else str(value)
            )
            found += [
                {**healthy, name: value, **({again: more} if again else {})}
                for more in (options[again] if again else (None,))
            ]
    return found


def measure(point: Point) -> dict[str, Any]:
    setup = load(point["cluster"], hosts=point["hosts"], spares=point["spares"])
    compute = round(point["compute_ms"] * 1e6)
    at = round((point["calls"] + 0.5) * point["nodes"] * compute)
    noise = Noise(latency=round(point["latency_us"] * 1e3), compute=point["compute_noise"],
                  stragglers=point["slow_part"], straggler_factor=point["factor"])  # fmt: skip
    sim = simulation(
        setup, profile=point["profile"], fidelity=point["fidelity"], seed=point["seed"], noise=noise,
        config=common.config(setup, point["profile"], point["window"]), faults=_faults(point, at),
    )  # fmt: skip
    island = setup.cluster.islands[0]
    task = chain(
        setup,
        plain(compute),
        point["nodes"],
        devices=island.devices - point["spares"] * island.devices_per_host,
    )
    client = Loop(sim, "client", task, ahead=2, chained=False)
    over = at + round(point["patience_s"] * 1e9)
    sim.run(until=lambda: _enough(client, at, point["calls"]) or sim.now > over)
    ended = np.asarray(sim.trace.gangs.column("ended"))
    failed = np.asarray(sim.trace.gangs.column("flags")) & FAILED != 0
    ended = np.sort(ended[(ended >= 0) & ~failed])
    gaps = np.diff(ended)
    worst = int(gaps.argmax()) if len(gaps) else 0
    steady = gaps if point["fault"] == "none" else gaps[(gaps > compute / 2) & (gaps < 2 * compute)]
    recovered = _enough(client, at, point["calls"])
    return {
        "cores": setup.cluster.devices, "slow_hosts": len(sim.fabric.slow),
        "computations_per_s": 1e9 / float(steady.mean()), "of_ideal": compute / float(steady.mean()),
        "outage_ms": _outage(point, recovered, float(gaps[worst] - compute)),
        "recovered": recovered, "failed_calls": len(client.failures),
    }  # fmt: skip


def _outage(point: Point, recovered: bool, longest: float) -> float | None:
    """Milliseconds of the outage; None if it did not end."""
    if point["fault"] == "none":
        return 0.0
    return max(0.0, longest / 1e6) if recovered else None


def _faults(point: Point, at: int) -> list[Fault]:
    whom = point["hosts"] // 3
    if point["fault"] == "none":
        return []
    if point["fault"] == "cut":
        return [Fault(at, "cut", whom, duration=2_000_000_000)]
    return [Fault(at, {"crash": "crash_host", "leave": "leave_host"}[point["fault"]], whom)]


def _enough(client: Loop, at: int, calls: int) -> bool:
    return client.ended > 2 * calls and client.ends[-calls][0] > at


def _label(row: Any) -> str:
    if row["fault"] != "none":
        words = {"crash": "a host dies", "cut": "a host is cut off for 2 s", "leave": "a host leaves"}[
            row["fault"]
        ]
        return words if row["fault"] == "cut" else f"{words}, {row['spares'] or 'no'} spare"
    if row["slow_part"]:
        return f"{row['slow_part']:.1%} of hosts x{row['factor']:g} slow ({row['slow_hosts']})"
    if row["compute_noise"]:
        return f"gangs up to {row['compute_noise']:.0%} longer"
    if row["latency_us"]:
        return f"messages up to {row['latency_us']:g} us later"
    return "nothing wrong"


def draw(frame: pd.DataFrame, axes: Any) -> None:
    from .framework.figures import BLUE, RED

    steady, faults = frame[frame["fault"] == "none"], frame[frame["fault"] != "none"]
    axes[0].barh([_label(row) for _, row in steady.iterrows()], steady["of_ideal"], color=BLUE, height=0.6)
    axes[0].set_xlim(0, 1.14)
    axes[0].set_xlabel("throughput, of that of healthy devices never idle")
    for at, value in enumerate(steady["of_ideal"]):
        axes[0].annotate(
            f"{value:.0%}", (value, at), (3, 0), textcoords="offset points", va="center", fontsize=8
        )
    longest = float(faults["outage_ms"].max()) if len(faults) else 0.0
    outages = faults["outage_ms"].fillna(0.0) / 1e3
    axes[1].barh([_label(row) for _, row in faults.iterrows()], outages, color=RED, height=0.6)
    for at, (_, row) in enumerate(faults.iterrows()):
        text = f"{row['outage_ms'] / 1e3:.2f} s" if row["recovered"] else "for good: the slice is gone"
        axes[1].annotate(
            text, (outages.iloc[at], at), (3, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes[1].set_xlim(0, 1.25 * longest / 1e3 if longest > 0 else 1)
    axes[1].set_xlabel("no gang ends for so long, seconds")
    for panel in axes:
        panel.invert_yaxis()
        panel.grid(visible=False, axis="y")


def findings(frame: pd.DataFrame) -> str:
    lines = [
        f"- {_label(row)}: {row['of_ideal']:.1%} of the ideal throughput." for _, row in
        frame[frame["fault"] == "none"].iterrows()
    ]  # fmt: skip
    for _, row in frame[frame["fault"] != "none"].iterrows():
        then = f"stands still for {row['outage_ms'] / 1e3:.2f} s" if row["recovered"] else "does not go on"
        lines.append(f"- {_label(row)}: the client {then}; {row['failed_calls']} calls fail.")
    return "\n".join(lines)
