"""Made-up calibrations and samples, for tests."""

from __future__ import annotations

import numpy as np

from seaway.tools.calibrating.calibration import Calibration, Figure
from seaway.tools.calibrating.costs import GROUPS as WITH_COSTS
from seaway.tools.calibrating.costs import counted
from seaway.tools.calibrating.watching import GROUPS, WatchSample

COSTS = {
    "client_call": 45_000.0, "client_note": 30_000.0, "send": 200_000.0, "receive": 250_000.0,
    "step": 40_000.0, "relay_step": 10_000.0, "enqueue": 90_000.0, "complete": 100_000.0,
    "complete_more": 12_000.0, "literal": 50_000.0, "sum": 150_000.0,
}  # fmt: skip


def calibration(platform: str = "cpu", figures: tuple[Figure, ...] = (), missing: tuple[str, ...] = ()) -> Calibration:
    given = figures or (
        Figure("speed", 4_200_000, "ns", 0.02, "the reference"),
        Figure("cores", 2, "", 0.0, "counted", "machine.cores"),
        Figure("latency", 12_345, "ns", 0.12, "measured: here", "dcn.latency"),
        Figure("bandwidth", 1.1e9, "B/s", 0.05, "measured: here", "dcn.bandwidth"),
        Figure("peak_flops", 87_650_000_000, "FLOP/s", 0.1, "measured: here", "chip.peak_flops"),
        *(Figure(name, value, "ns", 0.1, f"measured: {name}", f"costs.{name}") for name, value in COSTS.items()
          if name not in ("literal", "sum")),
        Figure("send_byte_ps", 271.4, "ps/B", 0.1, "measured: bytes", "costs.send_byte_ps"),
        Figure("stall", 1_130_000, "ns", 0.02, "measured: a stall", "costs.stall"),
        Figure("hop", 5_000_000, "ns", 0.02, "for the reader"),
    )  # fmt: skip
    return Calibration(platform, 2, 1, 4, 2, 23, "a test's machine", given, missing)


def samples(count: int = 60, seed: int = 0) -> list[WatchSample]:
    """Samples whose threads have spent exactly the COSTS, in parts that differ from thread to thread."""
    random = np.random.default_rng(seed)
    found = []
    for at in range(count):
        writes_out, reads_in = (float(random.integers(1, 60)) for _ in range(2))
        groups = float(random.integers(1, 80))
        counts = {
            "writes_out": writes_out, "frames_out": writes_out + float(random.integers(0, 200)),
            "reads_in": reads_in, "frames_in": reads_in + float(random.integers(0, 100)),
            "near_out": float(random.integers(0, 100)), "near_in": float(random.integers(0, 100)),
            "notes": float(random.integers(0, 200)), "said": float(random.integers(1, 400)),
            "steps": float(random.integers(1, 800)), "groups": groups, "ends": groups + float(random.integers(0, 500)),
            "calls": float(random.integers(1, 300)), "literals": float(random.integers(0, 100)),
            "sums": float(random.integers(0, 300)),
        }  # fmt: skip
        made = WatchSample(f"workload {at}", 1e9, dict.fromkeys(GROUPS, 0.0), counts)
        for group in WITH_COSTS:
            made.cpu[group] = sum(COSTS[name] * number for name, number in counted(group, made).items())
        found.append(made)
    return found
