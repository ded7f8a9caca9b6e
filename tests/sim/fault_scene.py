"""Scenes with announced faults of all kinds, in the middle of what is under way: gangs, puts, gets, moves, and repairs
of earlier faults.

Where that is, is looked up in a trace of the same scene without faults. It stays true up to the first fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from core.client.client import Client
from core.model.program import Program
from core.schedule.policy import Fifo
from sim.hardware import load
from sim.hardware.profiles import profile
from sim.simulation import Fault, Simulation
from tests.core.build import chain
from tests.sim import scene, wide_scene
from tests.sim.scene import MS, US, Scene

KINDS = (
    "crash_host", "leave_host", "return_host", "lose_device", "cut", "fail_gang", "crash_client", "drain_host",
    "move_client", "suspend_client",
)  # fmt: skip


def draw(
    seed: int, *, kinds: tuple[str, ...] = KINDS, hosts: int = 0, wide: bool | None = None, after: int = 0
) -> Scene:
    """`wide`: of programs that users write (`wide_scene`), or of any. `hosts`: of a wide scene. `after`: clients go on
    for up to so many calls more, and faults go on as well: perhaps in the middle of a repair, or long after it.
    """
    rng = Random(f"faults {seed}")
    if wide if wide is not None else rng.random() < 0.5:
        drawn = wide_scene.draw(seed, hosts=hosts or rng.choice((4, 4, 6, 8)))
    else:
        drawn = scene.draw(seed)
    drawn.acts += rng.randint(0, 12)
    moments = _moments(drawn)
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.choice(moments) if moments else rng.randint(1, 4000) * US
        drawn.faults += _fault(rng, drawn, at, rng.choice(kinds))
        if drawn.faults and rng.random() < 0.3:  # while what the first one has led to is under way
            moments = [at + rng.randint(0, 8 * MS)]
    if after:
        drawn.acts += rng.randint(0, after)
        last = max((fault.at for fault in drawn.faults), default=0)
        for _ in range(rng.choice((0, 1, 2))):
            drawn.faults += _fault(rng, drawn, last + rng.randint(0, 30 * MS), rng.choice(kinds))
    return drawn


def draw_growing(seed: int) -> Scene:
    """Hosts or an island come while clients compute on what was there before; and there may be faults."""
    rng = Random(f"growth {seed}")
    drawn = draw(seed, kinds=tuple(kind for kind in KINDS if kind != "fail_gang")) if rng.random() < 0.4 else None
    drawn = drawn or scene.draw(seed)
    at, first = rng.choice(_moments(drawn) or [MS]), drawn.hosts * drawn.islands
    if drawn.islands == 2:
        first = drawn.hosts if rng.random() < 0.5 else first
    if first == drawn.hosts * drawn.islands:
        drawn.kind, drawn.setup = "h100", "B"  # in whose islands there is no torus
        drawn.islands, drawn.hosts = 1, first * 2
    drawn.faults.append(Fault(at, "grow", first))
    if drawn.kind and rng.random() < 0.5:
        drawn.faults.append(Fault(at + rng.randint(0, 9 * MS), "grow", first + rng.randrange(1, drawn.hosts // 2)))
    drawn.acts += rng.randint(0, 30)
    return drawn


def _moments(drawn: Scene) -> list[int]:
    """Times in the middle of gangs and transfers, from their order to their end, and at the very nanosecond."""
    played = scene.play(drawn, "cohort")
    found = []
    for row in (*played["gangs"], *played["transfers"]):
        known = [time for name in ("entered", "enqueued", "started", "ended") if (time := row.get(name, -1)) > 0]
        found += [*known, (min(known) + max(known)) // 2, max(known) + 30 * US] if known else []
    return found


def _fault(rng: Random, drawn: Scene, at: int, kind: str) -> list[Fault]:
    host = rng.randrange(drawn.hosts * drawn.islands)
    match kind:
        case "crash_client" | "move_client":
            return [Fault(at, kind, f"c{rng.randrange(drawn.clients)}")]
        case "suspend_client":
            client = f"c{rng.randrange(drawn.clients)}"
            return [Fault(at, kind, client), Fault(at + rng.choice((MS, 10 * MS)), "resume_client", client)]
        case "lose_device":
            return [Fault(at, kind, host * drawn.devices_per_host + rng.randrange(drawn.devices_per_host))]
        case "cut":
            return [Fault(at, kind, host, duration=rng.choice((MS // 2, 20 * MS)))]
        case "fail_gang":
            program = rng.choice(drawn.programs)
            return [Fault(at, kind, host, name=rng.choice([node.name for node in program.nodes] or ["step"]))]
        case "crash_host" | "leave_host":
            return [Fault(at, kind, host), Fault(at + 5 * MS, "return_host", host)]
        case _:
            return [Fault(at, kind, host)]


def steady(*faults: Fault, programs: Sequence[Program] = (chain(1, 16),), **options: Any) -> Simulation:
    """An island of 4 hosts. A client calls each program once, and the last one each half millisecond, whatever ends."""
    setup = load("B", hosts=4, devices_per_host=4)
    sim = Simulation(setup, policy=Fifo, profile=profile("seaway"), faults=faults, **options)
    client = sim.client("a")

    def registered(program: Program) -> Callable[[Client, int], Any]:
        number: Any = client.call(lambda c, now: c.register(program, now))
        return lambda c, now: c.submit(number, (bytes(program.args[0].nbytes),), now)

    *once, again = [registered(program) for program in programs]
    for call in once:
        client.call(call)

    def calls() -> Any:
        while True:
            yield from client.turn()
            client.act(again)
            yield sim.env.timeout(MS // 2)

    sim.env.process(calls())
    return sim
