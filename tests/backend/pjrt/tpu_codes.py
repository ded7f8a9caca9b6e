"""Compiles all code of an example program for TPUs. It runs in a process of its own, since libtpu can be loaded only
once.

    python -m tests.backend.pjrt.tpu_codes examples/experts.py NAME ...

Calls the program's functions NAME in a session on this machine's CPU, whose client exports for TPUs too. Then it passes
the controller's plans and code to the TPU compiler, by the path that a host with TPUs takes. Prints a line for each
code.
"""

from __future__ import annotations

import argparse
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import seaway as sw
from backend.pjrt.code.launchable_code import lower
from backend.pjrt.world import WorldMembership
from core.model.plan import Gang, Plan
from seaway.costs.topologies import example, find
from seaway.sessions.connected.pricing import ConnectedPricing

DEVICES, ISLANDS = 4, 2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=Path)
    parser.add_argument("calls", nargs="+", help="functions of it, called without arguments")
    chosen = parser.parse_args()
    program = runpy.run_path(str(chosen.program))
    with sw.local(hosts=1, devices_per_host=DEVICES, islands=ISLANDS) as session:
        driver: Any = session.driver
        driver.price_of = ConnectedPricing(("cpu", "tpu"), driver._keep, driver.recorded)
        for name in chosen.calls:
            program[name]()
        with driver.server.node.lock:
            shapes = dict(driver.server.controller.compilation.known())
        found = {name: driver.server.blobs.find(name) for name in names_in(shapes.values())}
    for plan in (shape.plan for shape in shapes.values()):
        for number in range(len(plan.codes)):
            print(compiled(plan, number, found), flush=True)


def names_in(shapes: Any) -> Iterator[str]:
    for shape in shapes:
        for code in shape.plan.codes:
            if code.code:
                yield code.code


def compiled(plan: Plan, number: int, blobs: dict[str, bytes]) -> str:
    code = plan.codes[number]
    gang = plan.steps[code.step]
    assert isinstance(gang, Gang)
    inputs, outputs = (tuple(plan.slots[slot].layout for slot in slots) for slots in (gang.inputs, gang.outputs))
    made, lowered = lower(tpus(gang), code, gang, inputs, outputs, blobs)
    for each in lowered:
        each.compile()
    return f"{code.name}: {gang.place.size} TPUs, gives {list(made.given)}, {len(lowered)} compiled"


def tpus(gang: Gang) -> WorldMembership:
    """A world of as many TPUs as the gang has devices."""
    from jax.experimental import topologies

    wanted = find(example("v5e", gang.place.size))
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in wanted.options.items()}
    devices = topologies.get_topology_desc(platform="tpu", topology_name=wanted.name, **options).devices
    world = WorldMembership()
    numbers = sorted(gang.place.devices())
    world.devices = dict(zip(numbers, devices, strict=False))
    world.mine, world.ready = tuple(numbers), True
    return world


if __name__ == "__main__":
    main()
