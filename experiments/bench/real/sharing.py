"""Measures figs 8, 9 and 11 over real streams, on timed devices: clients that share an island.

`python -m experiments.bench sharing [--full]`. It prints the throughput of 1 to 16 clients that wait for each call; how
near their shares come to weights 1:2:4:8; the cost of switching between clients; and, on CPU devices, one client's
throughput while another client's computation compiles, against that alone and while other processes only spin.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from backend.admin import cpu_of
from seaway.tools.calibrating import chained

from ..frame import options
from ..frame.calling import for_seconds, stream
from ..frame.deployed import Deployed, deployed
from ..frame.table import Table
from . import compiling

FULL = True
HOSTS = 4  # timed ones, in one process
CLIENTS = (1, 2, 4, 8, 16)
SHORT, SHORT_NS = "330us", 330_000  # the paper's: one client cannot fill the island with it
WEIGHTS = (1, 2, 4, 8)
EVEN, EVEN_NS = "1ms", 1_000_000  # a gang where shares are measured
AIM = 0.02  # largest relative error of a client's share
CHAIN = 16  # gangs of a call, if the controller must not be the limit
SPELL = 1.5  # seconds of a measurement
TURNS = count()  # numbers measurements
SECOND = 1_000_000  # microseconds: the window of shares


def calls_of(duration: str, chain: int) -> Callable[[Any], Any]:
    """A program of `chain` gangs on all devices."""
    import seaway as sw

    step = sw.synthetic("step", devices=sw.slice(devices=HOSTS), duration=duration, allreduce="4B")
    made: Callable[[Any], Any] = step if chain == 1 else chained([step] * chain)
    return made


class Together(NamedTuple):
    """A measurement of several clients at once. gangs: by client. rate: gangs a second of all clients. cpu:
    controller's CPU milliseconds a gang."""

    gangs: list[int]
    rate: float
    cpu: float
    switches: float  # percentage of gangs whose client is not that of the gang before
    shares: list[float]  # in the second in the middle of the measurement


def together(
    cluster: Deployed, weights: Sequence[int], duration: str, chain: int, ahead: int, seconds: float = SPELL
) -> Together:
    import seaway as sw

    turn = next(TURNS)
    names = [
        f"client {turn}.{number}" for number in range(len(weights))
    ]  # unique names, since one trace has all measurements
    with sw.connect(cluster.address) as session:
        work, zero = calls_of(duration, chain), np.float32(0)
        for name, weight in zip(names, weights, strict=True):
            with session.client(name, weight=weight):
                work(zero).block_until_ready()  # compiled, and known to the controller
        after = int(session.trace.gangs()["seq"].max())
        start = threading.Barrier(len(weights))

        def client(name: str) -> int:
            with session.client(name):
                start.wait()
                return stream(work, zero, ahead, for_seconds(seconds))

        before, begun = cpu_of(cluster.controller.pid), time.perf_counter()
        tasks = [session.spawn(client, name, name=f"thread of {name}") for name in names]
        calls = [task.result() for task in tasks]
        lasted = time.perf_counter() - begun
        cpu = cpu_of(cluster.controller.pid) - before
        gangs = session.trace.gangs()
    gangs = gangs[gangs["seq"] > after]
    owners = gangs.sort_values("seq")["client"].astype(str).to_numpy()
    made = sum(calls) * chain
    return Together(
        [each * chain for each in calls], made / lasted, cpu / made / 1e6,
        100 * float(np.mean(owners[1:] != owners[:-1])), shares_of(gangs, names),
    )  # fmt: skip


def shares_of(gangs: Any, names: Sequence[str]) -> list[float]:
    """Shares of clients in the middle second, or in the middle half of a measurement shorter than two seconds."""
    ended = gangs["ended_us"].to_numpy()
    first, last = float(np.nanmin(ended)), float(np.nanmax(ended))
    half = min(SECOND, (last - first) / 2) / 2
    middle = (first + last) / 2
    owners = gangs["client"].astype(str)[(ended > middle - half) & (ended <= middle + half)]
    return [float((owners == name).mean()) for name in names]


def missed(got: Sequence[float], weights: Sequence[int]) -> float:
    """The largest relative error of a client's share."""
    return max(
        abs(share * sum(weights) / weight - 1) for share, weight in zip(got, weights, strict=True)
    )  # fmt: skip


# --- what is printed --------------------------------------------------------------------------------------------------


def throughput(cluster: Deployed, clients: Sequence[int], seconds: float) -> None:
    most = f"{1e9 / SHORT_NS:,.0f}/s"
    print(f"gangs of {SHORT} on {HOSTS} hosts; each client waits for each call; devices could do {most}")
    print(f"{'':9}{'one gang a call':^42}{f'{CHAIN} gangs a call':^42}CPU: controller, ms a gang")
    each = "gangs/s >9,.0f", "x of one >10.2f", "of devices >12.0%", "CPU >8.2f", " >3"
    table = Table("clients >9", *each, *each).begin()
    firsts: dict[int, float] = {}
    for number in clients:
        cells: list[float | None] = []
        for chain in (1, CHAIN):
            row = together(cluster, [1] * number, SHORT, chain, 1, seconds)
            one = firsts.setdefault(chain, row.rate)
            cells += row.rate, row.rate / one, row.rate * SHORT_NS / 1e9, row.cpu, None
        table.row(number, *cells)


def shares(cluster: Deployed, seconds: float) -> None:
    row = together(cluster, WEIGHTS, EVEN, CHAIN, 6, seconds)
    asked, used = [weight / sum(WEIGHTS) for weight in WEIGHTS], row.rate * EVEN_NS / 1e9
    print(f"shares in one second, gangs of {EVEN}, {CHAIN} a call ({used:.0%} of the devices used)")
    print(f"    asked {'  '.join(f'{share:.2%}' for share in asked)}")
    got, miss = "  ".join(f"{share:.2%}" for share in row.shares), missed(row.shares, WEIGHTS)
    print(f"      got {got}: within {miss:.1%} of each (aim {AIM:.0%})")


def switching(cluster: Deployed, seconds: float) -> None:
    print(
        f"going from client to client: gangs of 1us, {CHAIN} a call, 8 calls under way in all, one by one by weight"
    )
    table = Table("clients >9", "switches >10.0f%", "gangs/s >9,.0f", "x of one >10.2f", "controller, ms a gang >23.3f",
                  "x of one >10.2f").begin()  # fmt: skip
    one: Together | None = None
    for number in (1, 2, 4, 8):
        row = together(cluster, [1] * number, "1us", CHAIN, 8 // number, seconds)
        one = one or row
        table.row(number, row.switches, row.rate, row.rate / one.rate, row.cpu, row.cpu / max(one.cpu, 1e-9))


def main(arguments: Sequence[str] = ()) -> None:
    full = "let the other client's computation compile for about 30 s, not 5"
    parser = options.parser("sharing", __doc__, full=full)
    parser.numbers("--clients", CLIENTS, CLIENTS, "numbers of clients at once")
    parser.add_argument(
        "--seconds", type=options.seconds, default=SPELL, help="seconds of each measurement (%(default)g)"
    )
    chosen = parser.read(arguments)
    with deployed(HOSTS, processes=1, controller=["--policy", "stride"]) as cluster:
        throughput(cluster, chosen.clients, chosen.seconds)
        shares(cluster, chosen.seconds)
        switching(cluster, chosen.seconds)
    compiling.show(compiling.LONG if chosen.full else compiling.SHORT, chosen.seconds)
