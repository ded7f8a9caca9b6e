"""`make demo`: four clients share 2048 simulated TPUs 1:2:4:8. It prints a table of their shares and draws a picture.

On set-up A of the paper (512 hosts of 4 TPU v3 cores) each client calls a program repeatedly without waiting for
results. All of them always have work, so the policy alone decides their shares: stride, the proportional share of the
paper's figure 9. A computation takes a little longer than the 35 ms that the controller needs to send it to 512 hosts
one by one. So devices hardly ever wait for hosts; the table says for how long.
"""

import argparse
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

import seaway as sw
from seaway.trace import Trace, style

WEIGHTS = {"ann": 1, "bob": 2, "cat": 4, "dan": 8}
STEP, STEPS = "40ms", 4  # a computation, and how many of them are in a program
SECONDS = 24.0  # of simulated time in which clients call
AHEAD = 4  # calls that a client does not wait for
SHOWN = 10 * STEPS  # gangs in the timeline

everything = sw.slice(devices=2048, name="pod")
step = sw.synthetic("step", devices=everything, duration=STEP, allreduce="4MiB")


@sw.program
def train(x: Any) -> Any:
    for _ in range(STEPS):
        x = step(x)
    return x


def client(seconds: float) -> None:
    x: Any = np.float32(0)
    ahead = deque[sw.Array]()
    while sw.now() < seconds:
        x = train(x)
        ahead.append(x)
        if len(ahead) > AHEAD:
            ahead.popleft().block_until_ready()


def simulated(seconds: float) -> sw.Session:
    with sw.simulate("A", policy="stride", live=True) as session:
        for name, weight in WEIGHTS.items():
            session.spawn(client, seconds, name=name, weight=weight)
    return session


def table(session: sw.Session) -> str:
    """The table, for the time in which all clients had work."""
    trace: Trace = session.trace
    low, high = together = trace.contended
    rows = [
        f"  {row['client']:10}{row['weight']:>8}{row['asked_share']:>14.1%}{row['got_share']:>12.1%}"
        f"{row['latency_p50_us'] / 1e6:>12.2f} s{row['latency_p99_us'] / 1e6:>8.2f} s"
        for row in trace.clients(together).to_dict("records")
    ]
    spent = trace.utilization("total", window=together).iloc[0]
    busy, skew = spent["busy_fraction"], spent["skew_fraction"]
    waits = f"{skew:.1%} for a peer's host, {1 - busy - skew:.1%} for their own"
    profile = session.simulation.profile
    return "\n".join(
        [
            f"  {'client':10}{'weight':>8}{'share asked':>14}{'share got':>12}{'p50 latency':>14}{'p99':>10}",
            *rows,
            "",
            f"  devices compute  {busy:6.1%} of the {(high - low) / 1e9:.1f} s in which all four had work",
            f"  host overhead    {1 - busy:6.1%} devices wait for hosts: {waits}",
            f"  host costs       profile {profile.name!r}, {profile.status}: {profile.note}",
        ]
    )


def picture(trace: Trace) -> style.Picture:
    """Utilisation over time and shares above; a part of the timeline by device below."""
    low, high = trace.contended
    gangs = trace.gangs()
    middle = gangs[gangs["started_us"] > (low + high) / 2e3].head(SHOWN)
    window = f"{middle['started_us'].min()}us", f"{middle['ended_us'].max()}us"
    figure = style.Picture("wide", 5.6)
    with style.applied():
        grid = figure.add_gridspec(2, 2, width_ratios=(1.75, 1), height_ratios=(1, 1.5))
        trace.plot_utilization("client", window=trace.contended, axes=figure.add_subplot(grid[0, 0]))
        trace.plot_shares(axes=figure.add_subplot(grid[0, 1]))
        below = figure.add_subplot(grid[1, :])
        trace.plot(window, rows=16, axes=below, title=f"The middle, {SHOWN} gangs on all devices")
    return figure


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/demo"), help="folder for the figure")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="seconds of simulated time")
    given = parser.parse_args(arguments)
    began = time.perf_counter()
    print(f"Seaway: {len(WEIGHTS)} clients on 2048 simulated TPUs, weights 1:2:4:8, policy stride", flush=True)
    session = simulated(given.seconds)
    trace = session.trace
    intervals = int(trace.gangs()["devices"].sum())
    print(
        f"\n{table(session)}\n\n  {len(trace.gangs()):,} gangs, {intervals:,} device intervals, in "
        f"{time.perf_counter() - began:.1f} s"
    )
    for path in style.save(picture(trace), given.out / "shares"):
        print(f"  wrote {path}")
    folder = trace.save(given.out / "trace")
    print(f"  wrote {folder}: python -m seaway dashboard {folder} shows it in the browser")
    session.live().close()
    print("  next: notebooks/, examples/, python -m experiments --list")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
