"""Measures how much one peer can harm others: a client's latency alone, and beside strangers and greedy clients.

`python -m experiments.bench strangers [--full] [--only NAME ...]`. A controller with a token, agents with timed devices
and the attackers (`attacks`) are processes of their own. The measured client, in this process, calls a step of 330 us
again and again, with a pause between calls. "alone" is measured before and after each attack, and ratios are to both
together. "spin" is a process that only uses a core, as all attackers do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from backend.admin import Child

from ..frame import options, processes
from ..frame.deployed import Deployed, deployed
from ..frame.options import Table
from .attacks import ATTACKS, DURATION, HOSTS, attack

FULL = True
TOKEN = "open sesame"

PAUSE = 0.005  # seconds between the client's calls
SPELL, LONG = 5.0, 20.0  # seconds of a measurement
AIM = 5  # largest multiple of the p99 alone
POLICIES = ("fifo", "round-robin")
BY_POLICY = ("greedy",)  # attacks whose effect depends on the policy; others run only with the first policy


class Row(NamedTuple):
    """The measured client's latencies in milliseconds. served: attacks a second, by answer."""

    p50: float
    p99: float
    calls: float
    served: Mapping[str, float] = MappingProxyType({})


def ended(attacker: Child) -> dict[str, float]:
    """End the attack. Returns attacks a second by answer, or nothing if it did not end in time."""
    try:
        said, _ = attacker.process.communicate(timeout=40)
        found = json.loads(said.splitlines()[-1])
    except (subprocess.TimeoutExpired, IndexError, ValueError):
        return {}
    return {kind: count / found["seconds"] for kind, count in found["answers"].items()}


def measured(step: Any, seconds: float) -> Row:
    zero, took, begun = np.float32(0), [], time.monotonic()
    while time.monotonic() < begun + seconds:
        called = time.perf_counter()
        step(zero).block_until_ready()
        took.append((time.perf_counter() - called) * 1e3)
        time.sleep(PAUSE)
    p50, p99 = np.percentile(took, [50, 99])
    return Row(float(p50), float(p99), len(took))


def attacked(cluster: Deployed, step: Any, name: str, token: Path, seconds: float) -> tuple[Row, Row]:
    """(the client alone, the client beside the attack)."""
    before = measured(step, seconds / 2)
    attacker = processes.start(cluster.children, attack, name, cluster.address, str(token), until_told=True)
    try:
        processes.heard(attacker)  # it has begun
        time.sleep(2)  # until it is at its height
        row = measured(step, seconds)
        served = ended(attacker)
    finally:
        cluster.children.end(attacker, 0.0)
    time.sleep(0.5)
    after = measured(step, seconds / 2)
    p50, p99, calls = np.mean([before[:3], after[:3]], axis=0)
    alone = Row(float(p50), float(p99), float(calls))
    return alone, row._replace(served=served)


def show(table: Table, name: str, alone: Row, row: Row) -> None:
    ratio = row.p99 / alone.p99
    served = ", ".join(f"{rate:,.0f} {kind}" for kind, rate in sorted(row.served.items())) or "it did not end"
    missed = "" if ratio <= AIM else "  MISSED"
    table.row(name, *alone[:2], *row[:2], ratio, row.calls, f"   {served}{missed}")


def under(policy: str, names: Sequence[str], seconds: float) -> None:
    import seaway as sw

    table = Table("attack <18", "p50 >7.1f", "p99 >8.1f", "p50 >9.1f", "p99 >9.1f", "x p99 >8.1f", "calls >7.0f",
                  "   attacks a second, by answer <0")  # fmt: skip
    table.begin(
        f"--policy {policy}; a step of {DURATION} on {HOSTS} hosts, called every {PAUSE * 1e3:g} ms",
        f"{'':<18}{'alone, ms':^15}{'beside it, ms':^18}",
    )
    with TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.write_text(TOKEN, encoding="utf-8")
        shown = ["--token-file", str(token)]
        words = ["--policy", policy, *shown]
        with (
            deployed(HOSTS, processes=1, controller=words, options=shown, token=TOKEN) as cluster,
            sw.connect(cluster.address, token_file=str(token), client="good"),
        ):
            step = sw.synthetic("good", duration=DURATION, devices=sw.slice(devices=HOSTS), allreduce="4B")
            for _ in range(100):
                step(np.float32(0)).block_until_ready()
            for name in names:
                show(table, name, *attacked(cluster, step, name, token, seconds))


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("strangers", __doc__, full=f"{LONG:g} s of each attack, not {SPELL:g}")
    names = list(ATTACKS)
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="attacks to run (all)")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), help="policies of the controller")
    parser.add_argument("--seconds", type=options.seconds, default=0.0, help=argparse.SUPPRESS)
    chosen = parser.read(arguments)
    for number, policy in enumerate(chosen.policies):
        if names := [name for name in chosen.only if number == 0 or name in BY_POLICY]:
            under(policy, names, chosen.seconds or (LONG if chosen.full else SPELL))
