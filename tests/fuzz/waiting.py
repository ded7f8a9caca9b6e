"""Describes what waits for what, for the report of a case that does not end."""

from __future__ import annotations

from collections.abc import Sequence

from tests.world.script import Script
from tests.world.world import World

from .case import MS


def who_waits(world: World, living: Sequence[Script], events: int) -> str:
    controller = world.machine
    lines = [f"now {world.now / MS:.3f} ms, {events} events"]
    for island in controller.state.islands:
        lines.append(
            f"island {island.island.name}: {island.phase}, epoch {island.epoch}, members {island.members},"
            f" missing {island.stream.missing}, coming {sorted(island.coming)}"
        )
        lines += [
            f"    offered: {wait.ticket.run}.{wait.ticket.step}: {wait.text}" for wait in island.scheduler.waiting()
        ]
    for run in list(controller.state.runs.values())[:12]:
        lines.append(
            f"run {run.id} of {run.session.name}/{run.program.ir.name} is {run.state}, waits for {run.waits!r}"
        )
    for flight in list(controller.state.in_flight.values())[:12]:
        lines.append(
            f"flight {flight.seq} {flight.kind} step {flight.step} left {flight.left} transfer {flight.transfer}"
        )
    lines += [f"stuck: {text}" for text in world.fabric.stuck()]
    for script in living:
        waits = [run.name for run in script.runs.values() if not run.ends]
        gets = [(fetch.request, fetch.handle.name) for fetch in script.fetches.values() if not fetch.over]
        puts = [h.name for h in script.buffers.values() if h.is_put and not (h.ready or h.blame or h.released)]
        if waits or gets or puts:
            state = f"{script.machine.state}, {'alive' if script.actor.alive else 'dead'}"
            lines.append(f"client {script.name} ({state}) waits for runs {waits}, gets {gets}, puts {puts}")
    return "\n  ".join(lines)
