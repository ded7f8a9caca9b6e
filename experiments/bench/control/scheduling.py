"""Measures scheduling: gangs ordered per CPU second under each policy, and the effect of entering gangs early.

`python -m experiments.bench scheduling`. The baseline of the first table is a naive scheduler, which at each pick looks
at every ticket, and for each at every device. The second table simulates two islands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from statistics import mean, median
from time import process_time
from typing import Any

from core.model import Atoms, line
from core.schedule import EarlyEntry, Scheduler, Ticket
from core.schedule.policy import POLICIES

from ..frame.table import Table

# --- gangs per CPU second

DEVICES = 2048
CLIENTS = (1, 16, 64)
RUNS = 8  # waiting runs of each client
WINDOW = 2
REPEATS = 5
OVERLAPPING = [(start, size) for size in (2048, 1024, 512) for start in range(0, DEVICES, size)]
LAYOUTS = {"one place": [(0, DEVICES)], "7 overlapping places": OVERLAPPING}


class Naive:
    """Proportional share by the same rule but without an index: a list of tickets, and a counter for each device."""

    def __init__(self, atoms: Atoms) -> None:
        self._atoms = atoms
        self._waiting: list[Ticket] = []
        self._ahead = [0] * DEVICES
        self._charged: dict[int, float] = {}

    def offer(self, ticket: Ticket, now: int) -> None:
        self._waiting.append(ticket)

    def pick(self, now: int) -> Ticket | None:
        ready = [
            ticket
            for ticket in self._waiting
            if all(self._ahead[device] < WINDOW for device in self._devices(ticket))
        ]
        if not ready:
            return None
        ticket = min(ready, key=lambda each: (self._charged.get(each.client, 0), each.submitted))
        self._waiting.remove(ticket)
        devices = self._devices(ticket)
        for device in devices:
            self._ahead[device] += 1
        charged = self._charged.get(ticket.client, 0)
        self._charged[ticket.client] = charged + ticket.cost * len(devices) / ticket.weight
        return ticket

    def finished(self, ticket: Ticket, now: int) -> None:
        for device in self._devices(ticket):
            self._ahead[device] -= 1

    def _devices(self, ticket: Ticket) -> range:
        ((low, high),) = self._atoms.devices_of_key(ticket.place)
        return range(low, high)


Maker = Callable[[Atoms], Scheduler | Naive]


def order(make: Maker, places: list[int], atoms: Atoms, clients: int, n: int) -> float:
    """Gangs per CPU second: each is offered, picked and finished, and its client then offers the next."""
    scheduler = make(atoms)
    flying: deque[Ticket] = deque()
    runs = 0

    def offer(client: int, now: int) -> None:
        nonlocal runs
        runs += 1
        place = places[client % len(places)]
        weight, cost = 1 << client % 4, 1_000_000 + client
        scheduler.offer(Ticket(runs, 0, client, place, cost, weight=weight, submitted=now), now)

    start = process_time()
    for _ in range(RUNS):
        for client in range(clients):
            offer(client, 0)
    for now in range(n):
        while (ticket := scheduler.pick(now)) is not None:
            flying.append(ticket)
        ticket = flying.popleft()
        scheduler.finished(ticket, now)
        offer(ticket.client, now)
    return n / (process_time() - start)


def rates(gangs: int = 10_000, repeats: int = REPEATS) -> list[tuple[str, str, list[float]]]:
    """(policy, layout, gangs per CPU second for each of CLIENTS)."""
    rows = []
    for layout, spans in LAYOUTS.items():
        schedulers: dict[str, tuple[Maker, int]] = {
            name: (partial(Scheduler, policy=policy, window=WINDOW, max_passes=8), gangs)
            for name, policy in POLICIES.items()
        }
        schedulers["(every ticket, every device)"] = (Naive, max(3, gangs // 1000))
        for name, (make, n) in schedulers.items():
            row = []
            for clients in CLIENTS:
                tries = []
                for _ in range(repeats):
                    atoms = Atoms()
                    places = [atoms.intern(line(0, start, size)) for start, size in spans]
                    tries.append(order(make, places, atoms, clients, n))
                row.append(median(tries))
            rows.append((name, layout, row))
    return rows


# --- late inputs

HOSTS = 4  # of each of two islands
MS = 1_000_000
MAKES, USES, LOCAL = (20 * MS, 1 * MS, 1 * MS)  # ns of the crossing program's two gangs, and of a local gang
CROSSINGS = 50
LOADS = {  # clients that use only island 1: how many, the calls of each, and the seconds that they pause after each
    "none": (0, 0, 0.0),
    "light": (1, 350, 1e-3),
    "full": (6, 250, 0.0),
}
EARLY: tuple[EarlyEntry, ...] = ("always", "idle", "never")


def late_inputs(early: EarlyEntry, load: str) -> tuple[float, float, float]:
    """(idle % of island 1, makespan in ms, latency of a crossing run in ms): one client's program computes on island 0
    and uses the result on island 1, where others have gangs too."""
    import seaway as sw

    islands = [{"name": f"i{at}", "kind": "cpu", "hosts": HOSTS, "devices_per_host": 1} for at in range(2)]
    with sw.simulate({"island": islands}, config={"early": early}, progress=False) as session:
        there, here = (sw.slice(devices=HOSTS, island=f"i{at}") for at in range(2))
        make = sw.synthetic("make", devices=there, duration=MAKES)
        use = sw.synthetic("use", devices=here, duration=USES)
        work = sw.synthetic("local", devices=here, duration=LOCAL)
        cross: Any = sw.program(lambda: use(sw.put(make(), devices=here)))
        latencies = []

        def crossing() -> None:
            for _ in range(CROSSINGS):
                begun = session.now()
                cross().block_until_ready()
                latencies.append(session.now() - begun)

        clients, calls, pause = LOADS[load]

        def local() -> None:
            for _ in range(calls):
                work().block_until_ready()
                session.sleep(pause)

        tasks = [session.spawn(crossing, name="crossing")]
        tasks += [session.spawn(local, name=f"local {number}") for number in range(clients)]
        for task in tasks:
            task.join()
        whole = session.now()
    busy = (CROSSINGS * USES + clients * calls * LOCAL) / 1e9
    return 100 * (1 - busy / whole), 1e3 * whole, 1e3 * mean(latencies)


def main() -> None:
    table = Table("policy <30", "places <24", *(f"{n} client{'s' * (n > 1)} >12,.0f" for n in CLIENTS))
    table.begin(
        f"Gangs ordered per CPU second, one island of {DEVICES} devices, {RUNS} runs waiting a client,",
        f"window {WINDOW}; median of {REPEATS}. In brackets the baseline.",
    )
    for name, layout, row in rates():
        table.row(name, layout, *row)
    table = Table("local load <12", "early <10", "island 1 idle >14.1f%", "makespan >12,.0f ms",
                  "crossing run >14.2f ms")  # fmt: skip
    made, used, local = (f"{ns / MS:g} ms" for ns in (MAKES, USES, LOCAL))
    table.begin(
        f"\nLate inputs, simulated. {CROSSINGS} runs, one after the other, of a program that takes {made} on island 0",
        f"and {used} on island 1, where local clients have gangs of {local}: no client; one, with a pause after each",
        "call; or six without. The work is the same in each group of rows.",
    )
    for load in LOADS:
        for early in EARLY:
            table.row(load, early, *late_inputs(early, load))
