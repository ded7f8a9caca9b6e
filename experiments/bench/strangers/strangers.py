"""Measures how much one peer can harm others: a client's latency alone, and beside strangers and greedy clients.

`python -m experiments.bench strangers [--full] [--only NAME ...]`. A controller with a token, agents with timed devices
and the attackers (`attacks`) are processes of their own. The measured client, in this process, calls a step of 330 us
again and again, with a pause between calls. "alone" is measured before and after each attack, and ratios are to both
together. "health" is the 99th percentile of a probe of the controller's health; unless the attack is a flood of calls,
that shows how long the controller's loop is busy with other work. "spin" is a process that only uses a core, as all
attackers do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple

import grpc
import numpy as np

from backend.admin import HEALTH, ROOT
from backend.auth import OPTIONS

from ..frame import options
from ..frame.cpu import cpu_of
from ..frame.deployed import Deployed, deployed
from .attacks import ATTACKS, DURATION, HOSTS

FULL = True
MODULE = "experiments.bench.strangers.attacks"

PROBE = 0.03  # seconds between probes
PAUSE = 0.005  # seconds between the client's calls
SPELL, LONG = 5.0, 20.0  # seconds of a measurement
AIM = 5  # largest multiple of the p99 alone
POLICIES = ("fifo", "round-robin")
BY_POLICY = ("greedy",)  # attacks whose effect depends on the policy; others run only with the first policy


class Row(NamedTuple):
    """The measured client's latencies in milliseconds. cpu: cores used by the controller. served: attacks a second, by
    answer."""

    p50: float
    p99: float
    calls: int
    cpu: float
    health: float
    served: Mapping[str, float] = MappingProxyType({})


class Attacker:
    def __init__(self, name: str, address: str, token: Path) -> None:
        words = [sys.executable, "-m", MODULE, name, address, str(token)]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline().strip() != b"going":
            raise RuntimeError(f"the attack {name!r} did not begin: {' '.join(words)}")

    def end(self) -> dict[str, float]:
        """End the attack. Returns attacks a second by answer, or nothing if it did not end in time."""
        try:
            said, _ = self.process.communicate(timeout=40)
            found = json.loads(said.splitlines()[-1])
        except (subprocess.TimeoutExpired, IndexError, ValueError):
            self.process.kill()
            self.process.communicate()
            return {}
        return {kind: count / found["seconds"] for kind, count in found["answers"].items()}


def measured(cluster: Deployed, step: Any, seconds: float) -> Row:
    zero, took = np.float32(0), []
    over = threading.Event()
    probes: list[float] = []
    prober = threading.Thread(target=probed, args=(cluster.address, over, probes))
    prober.start()
    before, begun = cpu_of(cluster.controller.pid), time.monotonic()
    while time.monotonic() < begun + seconds:
        called = time.perf_counter()
        step(zero).block_until_ready()
        took.append((time.perf_counter() - called) * 1e3)
        time.sleep(PAUSE)
    cpu = (cpu_of(cluster.controller.pid) - before) / (time.monotonic() - begun)
    over.set()
    prober.join()
    p50, p99 = np.percentile(took, [50, 99])
    return Row(float(p50), float(p99), len(took), cpu, float(np.percentile(probes, 99)))


def probed(address: str, over: threading.Event, took: list[float]) -> None:
    """Probe the controller's health repeatedly, and append the milliseconds of each."""
    with grpc.insecure_channel(address, options=[*OPTIONS, ("grpc.use_local_subchannel_pool", 1)]) as channel:
        check = channel.unary_unary(f"/{HEALTH}/Check")
        while not took or not over.wait(PROBE):
            called = time.perf_counter()
            try:
                check(b"", timeout=30, wait_for_ready=True)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
            took.append((time.perf_counter() - called) * 1e3)


def attacked(cluster: Deployed, step: Any, name: str, token: Path, seconds: float) -> tuple[Row, Row]:
    """(the client alone, the client beside the attack)."""
    before = measured(cluster, step, seconds / 2)
    attacker = Attacker(name, cluster.address, token)
    try:
        time.sleep(2)  # until it is at its height
        row = measured(cluster, step, seconds)
    finally:
        served = attacker.end()
    time.sleep(0.5)
    after = measured(cluster, step, seconds / 2)
    alone = Row(
        (before.p50 + after.p50) / 2, (before.p99 + after.p99) / 2, before.calls + after.calls,
        (before.cpu + after.cpu) / 2, (before.health + after.health) / 2,
    )  # fmt: skip
    return alone, row._replace(served=served)


def show(name: str, alone: Row, row: Row) -> None:
    ratio = row.p99 / alone.p99
    served = ", ".join(f"{rate:,.0f} {kind}" for kind, rate in sorted(row.served.items())) or "it did not end"
    missed = "" if ratio <= AIM else "  MISSED"
    print(
        f"{name:<18}{alone.p50:>7.1f}{alone.p99:>8.1f}{row.p50:>9.1f}{row.p99:>9.1f}{ratio:>8.1f}{row.calls:>7}"
        f"{row.cpu:>6.0%}{alone.health:>8.1f}{row.health:>8.1f}   {served}{missed}",
        flush=True,
    )


def under(policy: str, names: Sequence[str], seconds: float) -> None:
    import seaway as sw

    with TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.write_text("open sesame", encoding="utf-8")
        shown = ["--token-file", str(token)]
        with (
            deployed(
                HOSTS,
                processes=1,
                controller=["--policy", policy, *shown],
                options=shown,
                token="open sesame",
            ) as cluster,
            sw.connect(cluster.address, token_file=str(token), client="good"),
        ):
            step = sw.synthetic("good", duration=DURATION, devices=sw.slice(devices=HOSTS), allreduce="4B")
            for _ in range(100):
                step(np.float32(0)).block_until_ready()
            for name in names:
                show(name, *attacked(cluster, step, name, token, seconds))


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("strangers", __doc__, full=f"{LONG:g} s of each attack, not {SPELL:g}")
    parser.add_argument(
        "--only", nargs="+", choices=list(ATTACKS), default=list(ATTACKS), help="attacks to run (all)"
    )
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), help="policies of the controller")
    parser.add_argument("--seconds", type=options.seconds, default=0.0, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    seconds = chosen.seconds or (LONG if chosen.full else SPELL)
    for number, policy in enumerate(chosen.policies):
        names = [name for name in chosen.only if number == 0 or name in BY_POLICY]
        if names:
            print(
                f"--policy {policy}; a step of {DURATION} on {HOSTS} hosts, called every {PAUSE * 1e3:g} ms"
            )
            print(f"{'':<18}{'alone, ms':^15}{'beside it, ms':^18}")
            head = f"{'attack':<18}{'p50':>7}{'p99':>8}{'p50':>9}{'p99':>9}{'x p99':>8}{'calls':>7}{'CPU':>6}"
            print(f"{head}{'health, ms':>16}   attacks a second, by answer")
            under(policy, names, seconds)
