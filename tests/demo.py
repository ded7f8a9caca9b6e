"""`make demo`: core at work in its in-memory world, until the simulator and the backend are there.

Four clients with weights 1:2:4:8 keep 64 hosts busy under proportional share; then a host is lost in the middle.
Every message is encoded, every invariant is checked after every event; nothing here sleeps or opens a socket.
"""

from __future__ import annotations

import sys
import time

from core.controller import Config
from core.policy import Stride
from core.presets import small
from core.program import Program
from tests.core.build import Build
from tests.world.script import RunHandle, Script
from tests.world.world import MS, US, World

HOSTS, PER_HOST, GANGS = 16, 4, 600
WEIGHTS = {"ann": 1, "bob": 2, "cat": 4, "dan": 8}


def step(devices: int) -> Program:
    """A third of a millisecond on all devices, as in the paper's figure 9."""
    b = Build("step", s=devices)
    x = b.arg("s", devices, split="0", dtype="int8")
    return b.program(b.call("step", "s", [x], cost=330 * US))


class Greedy:
    """A client that always has a few runs waiting."""

    def __init__(self, world: World, name: str, weight: int, program: Program) -> None:
        self.client: Script = world.client(name, weight=weight)
        self.name, self.weight, self.program = name, weight, program
        self.runs: list[RunHandle] = []

    def top_up(self) -> None:
        while sum(not run.ended for run in self.runs[-8:]) < 8:
            self.runs.append(self.client.submit(self.program, bytes(self.program.args[0].nbytes)))
            if len(self.runs) > 8:
                self.client.release(*self.runs[-9].results)

    @property
    def done(self) -> int:
        return sum(run.good for run in self.runs)


def shares(world: World, program: Program) -> None:
    clients = [Greedy(world, name, weight, program) for name, weight in WEIGHTS.items()]
    start = before = 0  # when the first had ended, and how many had by then
    while sum(each.done for each in clients) < GANGS:
        for each in clients:
            each.top_up()
        world.run_for(330 * US)
        if not start and any(each.done for each in clients):
            start, before = world.now, sum(each.done for each in clients)
    total, asked = sum(each.done for each in clients), sum(WEIGHTS.values())
    print(f"\n  {'client':8}{'weight':>8}{'gangs':>8}{'share asked':>14}{'share got':>12}")
    for each in clients:
        print(
            f"  {each.name:8}{each.weight:>8}{each.done:>8}{each.weight / asked:>13.1%}{each.done / total:>12.1%}"
        )
    busy = (total - before) * 330 * US / (world.now - start)
    print(f"  devices busy {busy:.1%} of {(world.now - start) / MS:.0f} ms\n")
    world.run()


def lost_host(world: World, program: Program) -> None:
    client = world.client("eve")
    run = client.submit(program, bytes(program.args[0].nbytes))
    world.run_until(lambda: bool(world.fabric.jobs) and not run.ended)
    world.crash_host(7)
    print("  host 7 dies while a gang runs on all hosts; what the controller says:\n")
    world.run()
    for line in world.told[-2:]:
        print(f"    {line}")
    print(f"\n    eve's run: {run.blame}\n")


def main() -> int:
    start = time.perf_counter()
    print(f"Seaway's core in memory: {HOSTS} hosts x {PER_HOST} devices, one island, stride policy")
    world = World(small(HOSTS, PER_HOST), seed=1, policy=Stride, config=Config(window=2, fanout=8))
    program = step(HOSTS * PER_HOST)
    shares(world, program)
    lost_host(world, program)
    print(
        f"  in {time.perf_counter() - start:.1f} s; {len(world.gangs)} gangs; faults found: {len(world.faults)}"
    )
    print("  how it works: docs/architecture.md; why it cannot deadlock: docs/ordering.md")
    return 1 if world.faults else 0


if __name__ == "__main__":
    sys.exit(main())
