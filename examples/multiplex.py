"""Two RL jobs on one pair of pools: while one job rolls out, the other trains.

    python examples/multiplex.py

An RL job rolls out on one pool of devices, then trains on another, and each pool waits for the other. Two jobs on the
same two pools, as RollMux does it, fill each other's gaps: gangs of two clients that share devices, in the order in
which they come. Cost efficiency is iterations by device time, against a pair of pools for each job. RollMux reports
1.38 to 1.84 times for such pairs; it also moves models in and out of device memory between phases and packs more than
two jobs, while phases here are of one length, weights stay, and nothing is paid for a switch.
"""

from __future__ import annotations

import numpy as np

import seaway as sw

ROUNDS, ZERO = 20, np.float32(0)


def iterations(rollout: sw.Synthetic, train: sw.Synthetic) -> None:
    for _ in range(ROUNDS):
        x = rollout(ZERO)
        train(x).block_until_ready()


def played(phases: list[tuple[str, str]], shared: bool) -> tuple[float, float, float]:
    """(seconds for an iteration, part of the devices that is idle, iterations by device and second)."""
    with sw.simulate("B", hosts=2 if shared else 4, devices_per_host=8, profile="ideal") as s:
        for number, (rollout, train) in enumerate(phases):
            pair = [sw.slice(8, name=f"{pool}{0 if shared else number}") for pool in ("rollout", "train")]
            steps = [sw.synthetic(f"job{number} {home.name}", devices=home, duration=time)
                     for home, time in zip(pair, (rollout, train), strict=True)]  # fmt: skip
            s.spawn(iterations, *steps, name=f"job{number}")
    busy = s.trace.utilization("total")["busy_fraction"].iloc[0]
    seconds = s.trace.span[1] / 1e9
    return seconds / ROUNDS, 1 - busy, len(phases) * ROUNDS / seconds / (16 if shared else 32)


def main() -> None:
    print("rollout, training (s)        alone: s, idle    together: s, idle    cost efficiency")
    for phases in ([("10s", "10s")] * 2, [("10s", "8s")] * 2, [("20s", "5s")] * 2, [("10s", "8s"), ("6s", "12s")]):
        alone, together = played(phases, shared=False), played(phases, shared=True)
        words = " and ".join(f"{rollout[:-1]}, {train[:-1]}" for rollout, train in dict.fromkeys(phases))
        print(f"{words:27}{alone[0]:8.1f} {alone[1]:6.0%} {together[0]:13.1f} {together[1]:6.0%} "
              f"{together[2] / alone[2]:16.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
