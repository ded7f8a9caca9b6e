"""Measures scheduling: gangs ordered per CPU second under each policy, and the effect of entering gangs early.

`python -m experiments.bench scheduling`. The baseline of the first table is a naive scheduler, which at each pick looks
at every ticket, and for each at every device. The second table is a small exact model of two islands, with core's own
scheduler.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from functools import partial
from statistics import median
from time import process_time

from core.model import Atoms, line
from core.schedule import Early, Scheduler, Ticket
from core.schedule.policy import POLICIES, Fifo

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

    def finished(self, ticket: Ticket) -> None:
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
        scheduler.finished(ticket)
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

US = 1_000
MS = 1_000_000
CONTROL = 1 * MS  # controller to devices, or back: the tree, and the host's preparation
TRANSFER = 200 * US  # from island to island
MAKES, USES, LOCAL = 20 * MS, 1 * MS, 1 * MS  # cost of the crossing program's two gangs, and of a local gang
CROSSINGS = 100
LOADS = {  # local gangs: how many, how many at once, and their client's pause after each
    "none": (0, 0, 0),
    "light": (700, 1, 1 * MS),
    "full": (3000, 6, 0),
}


class TwoIslands:
    """One client's program computes on island 0 and uses the result on island 1; another client uses only island 1."""

    def __init__(self, early: Early, load: str) -> None:
        self.now = 0
        self.busy = 0  # island 1
        self.latencies: list[int] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        atoms = Atoms()
        self._places = [atoms.intern(line(island, island * 8, 8)) for island in (0, 1)]
        self._schedulers = [Scheduler(atoms, Fifo, 4, 8, early) for _ in (0, 1)]
        self._orders: list[deque[Ticket]] = [deque(), deque()]
        self._running = [False, False]
        self._inputs: dict[int, bool] = {}  # whether the inputs of a run's second gang are there
        self._uses: dict[int, Ticket] = {}
        self._left = {0: CROSSINGS, 1: LOADS[load][0]}
        self._pause = {0: 0, 1: LOADS[load][2]}
        self._submit(0)
        for _ in range(LOADS[load][1]):
            self._submit(1)

    def run(self) -> None:
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()

    def _after(self, delay: int, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, event))

    def _submit(self, client: int) -> None:
        if self._left[client]:
            self._left[client] -= 1
            self._count += 1
            cost = LOCAL if client else MAKES
            self._offer(Ticket(self._count, 0, client, self._places[client], cost, submitted=self.now))

    def _offer(self, ticket: Ticket) -> None:
        self._schedulers[self._island(ticket)].offer(ticket, self.now)
        self._pump()

    def _island(self, ticket: Ticket) -> int:
        return self._places.index(ticket.place)

    def _pump(self) -> None:
        for island, scheduler in enumerate(self._schedulers):
            while (ticket := scheduler.pick(self.now)) is not None:
                self._after(CONTROL, partial(self._arrived, island, ticket))
                if not island:
                    uses = self._uses[ticket.run] = Ticket(
                        ticket.run, 1, 0, self._places[1], USES, submitted=ticket.submitted, ripe=False
                    )
                    self._inputs[ticket.run] = False
                    self._schedulers[1].offer(uses, self.now)

    def _arrived(self, island: int, ticket: Ticket) -> None:
        self._orders[island].append(ticket)
        self._start(island)

    def _start(self, island: int) -> None:
        """Start the first gang if it has its inputs. Devices run in order, so all others wait for it."""
        order = self._orders[island]
        if order and not self._running[island] and self._has_inputs(order[0]):
            self._running[island] = True
            self._after(order[0].cost, lambda: self._ended(island, order.popleft()))

    def _has_inputs(self, ticket: Ticket) -> bool:
        return ticket.step == 0 or self._inputs[ticket.run]

    def _ended(self, island: int, ticket: Ticket) -> None:
        self._running[island] = False
        if island:
            self.busy += ticket.cost
        else:
            self._after(TRANSFER, lambda: self._transferred(ticket.run))
        self._after(CONTROL, lambda: self._reported(island, ticket))
        self._start(island)

    def _transferred(self, run: int) -> None:
        self._inputs[run] = True
        self._start(1)

    def _reported(self, island: int, ticket: Ticket) -> None:
        self._schedulers[island].finished(ticket)
        if not island:
            self._schedulers[1].ripen(self._uses[ticket.run])
        else:
            if ticket.client == 0:
                self.latencies.append(self.now - ticket.submitted)
            self._after(self._pause[ticket.client], lambda: self._submit(ticket.client))
        self._pump()


def late_inputs() -> list[tuple[str, Early, float, float, float]]:
    """(local load, early, idle % of the second island, makespan in ms, latency of a crossing run in ms)."""
    rows = []
    modes: tuple[Early, ...] = ("always", "idle", "never")
    for load in LOADS:
        for early in modes:
            world = TwoIslands(early, load)
            world.run()
            latency = sum(world.latencies) / len(world.latencies)
            rows.append((load, early, 100 * (1 - world.busy / world.now), world.now / MS, latency / MS))
    return rows


def main() -> None:
    print(f"Gangs ordered per CPU second, one island of {DEVICES} devices, {RUNS} runs waiting a client,")
    print(f"window {WINDOW}; median of {REPEATS}. In brackets the baseline.")
    print(f"{'policy':30}{'places':24}" + "".join(f"{f'{n} client' + 's' * (n > 1):>12}" for n in CLIENTS))
    for name, layout, row in rates():
        print(f"{name:30}{layout:24}" + "".join(f"{rate:12,.0f}" for rate in row))
    print()
    costs = [f"{cost / MS:g} ms" for cost in (MAKES, USES, LOCAL, CONTROL, TRANSFER)]
    print(
        f"Late inputs. {CROSSINGS} runs, one after the other, of a program that takes {costs[0]} on island 0 and"
    )
    print(
        f"{costs[1]} on island 1, where a local client has gangs of {costs[2]}: none; one at a time, with a pause"
    )
    print("after each; or some that wait at any time. The work is the same in each group of rows.")
    print(f"A control message takes {costs[3]}, a transfer {costs[4]}.")
    print(f"{'local load':12}{'early':10}{'island 1 idle':>14}{'makespan':>12}{'crossing run':>14}")
    for load, early, idle, makespan, latency in late_inputs():
        print(f"{load:12}{early:10}{idle:13.1f}%{makespan:9,.0f} ms{latency:11.2f} ms")
