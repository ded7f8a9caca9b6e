"""Scale: a single controller of up to 100,000 devices and 64 islands.

On each island a client calls small computations on all devices, and runs ahead of them. The experiment measures how
many computations one controller can order in a second, and how long a call takes to reach the last host, by hosts of an
island and by islands. It uses the paper's host costs with flat fan-out, and Seaway's estimated costs with its tree.
`busy` is the used part of the devices' time if a computation takes `compute_ms`. This goes beyond the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sim.hardware import load

from .framework import BadOption, Option, Point, Values, grid
from .framework.figures import beside, doublings, line, log_y
from .micro import common
from .micro.clients import Failed, Loop, Tally
from .micro.programs import chain, plain
from .micro.tenants import busy

if TYPE_CHECKING:
    import pandas as pd

NAME = "scale"
TITLE = "One controller, up to 100,000 devices and 64 islands"
OPTIONS = (
    Option("profile", ("paper", "seaway"), "host costs, and with them the fan-out: flat, or a tree"),
    Option("hosts", (64, 390, 512, 4096), "hosts of an island", least=1),
    Option("islands", (1, 8, 64), "islands, each with a client of its own", least=1),
    Option("most_devices", 100_000, "devices above which a configuration is left out", least=1, several=False),
    Option("cluster", "A", "set-up: A has 4 cores a host"),
    Option("compute_ms", 1.0, "milliseconds of a computation", least=0),
    Option("nodes", 4, "computations in a call", least=1),
    Option("ahead", 2, "calls that a client does not wait for", least=0),
    Option("calls", 4, "calls of each client", least=3),
    common.WINDOW, common.POLICY, common.FIDELITY, common.SEED,
)  # fmt: skip
PANELS, SIZE = (1, 2), (10.4, 4.4)


def points(options: dict[str, Values]) -> list[Point]:
    most = int(options["most_devices"][0])
    found = [
        point for point in grid(options)
        if point["hosts"] * point["islands"] * load(point["cluster"]).cluster.islands[0].devices_per_host <= most
    ]  # fmt: skip
    if not found:
        raise BadOption(f"scale: nothing has at most {most:,} devices; raise --most-devices")
    return found


def measure(point: Point) -> dict[str, Any]:
    setup = load(point["cluster"], hosts=point["hosts"], islands=point["islands"])
    sim = common.simulated(setup, point)
    compute, tally = max(1, round(point["compute_ms"] * 1e6)), Tally()
    loops = [
        Loop(
            sim, f"client {island.index}", chain(setup, plain(compute), point["nodes"], island=island.name),
            ahead=point["ahead"], calls=point["calls"], tally=tally,
        )
        for island in setup.cluster.islands
    ]  # fmt: skip
    sim.run(until=lambda: tally.failed or tally.count >= len(loops) * point["calls"])
    for loop in loops:
        if loop.failures:
            raise Failed(loop.failures[0])
    ended = np.sort(np.asarray(sim.trace.gangs.column("ended")))
    started = np.asarray(sim.trace.gangs.column("started"))
    first = len(ended) // 4
    return {
        "devices": setup.cluster.devices, "fanout": sim.config.fanout,
        "first_start_ms": float(started.min()) / 1e6,
        "computations_per_s": float((len(ended) - 1 - first) * 1e9 / (ended[-1] - ended[first])),
        "busy": busy(sim, (int(ended[first]), int(ended[-1]))),
        "messages_per_computation": sim.network.messages / len(ended),
    }  # fmt: skip


def draw(frame: pd.DataFrame, axes: Any) -> None:
    labels = {
        "first_start_ms": "first start after the first call, ms",
        "computations_per_s": "computations a second, all islands",
    }
    for panel, (column, label) in zip(axes, labels.items(), strict=True):
        groups = frame.groupby(["profile", "islands"], sort=True)
        several = sorted(set(frame["islands"]))
        for (profile, islands), mine in groups:
            mine = mine.drop_duplicates("hosts").sort_values("hosts")
            name = f"{profile}, {islands} island{'s' * (str(islands) != '1')}"
            line(
                panel,
                mine["hosts"],
                mine[column],
                name,
                several.index(islands),
                linestyle="--" if profile == "seaway" else "-",
            )
        doublings(panel, frame["hosts"])
        log_y(panel)
        panel.set_xlabel("hosts of an island")
        panel.set_ylabel(label)
    beside(axes[1])


def findings(frame: pd.DataFrame) -> str:
    lines = []
    for profile, mine in frame.groupby("profile", sort=False):
        most = mine.sort_values("devices").iloc[-1]
        where = f"{most['devices']:,} devices on {most['islands']} islands of {most['hosts']:,} hosts"
        lines.append(
            f"- {profile}, {where}: a first call starts after {most['first_start_ms']:,.3g} ms; "
            f"{most['computations_per_s']:,.0f} computations a second, devices {most['busy']:.0%} busy with "
            f"{most['compute_ms']:g} ms each."
        )
        wide = mine[mine["islands"] == mine["islands"].max()].sort_values("devices").iloc[-1]
        lines.append(
            f"- {profile}, {wide['islands']} islands of {wide['hosts']:,} hosts: {wide['computations_per_s']:,.0f} "
            f"computations a second, devices {wide['busy']:.0%} busy."
        )
    return "\n".join(lines)
