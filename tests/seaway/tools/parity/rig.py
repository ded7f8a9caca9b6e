"""One scene, played in the simulator and on a real cluster of timed devices in this process, over real gRPC.

All submissions are fixed beforehand: a gang of the first client holds all devices until all calls of all clients have
arrived, and then the order follows from the policy alone. (`one_by_one`: a client that waits for each of its runs.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from backend.agent.agent import Agent
from backend.client.remote import Head, Remote
from backend.devices.timed import TimedDevices
from backend.server import eventlogs
from backend.server.server import Server
from core.client.client import Client
from core.controller import ON_DEVICES, Bounds, Config, Controller
from core.model.plan import Plan
from core.model.program import Program
from core.model.topology import Cluster as Topology
from core.model.topology import small
from core.protocol import effects as e
from core.schedule.policy import Policy
from seaway.tools.parity import compare
from seaway.tools.parity.collect import ClusterSeen, Watched
from seaway.tools.parity.compare import Comparison
from sim.hardware import setups
from sim.hardware.profiles import profile
from sim.simulation.simulation import Fault, Simulation
from tests.backend.cluster import Cluster, User, wait_until
from tests.core.build import Build

from . import edge, forced
from .device_log import DeviceLog

S = 1_000_000_000
BEAT = S // 20  # hosts often report what they have received
GATE = "gate"
NOTHING: Mapping[int, Any] = {}


class Scene(msgspec.Struct):
    policy: Callable[[], Policy]
    programs: Sequence[Program]  # a client each
    dispatch: str = "parallel"
    runs: int = 4
    islands: int = 1
    hosts: int = 2
    devices_per_host: int = 2
    one_by_one: bool = False
    window: int = 1
    grows: bool = False  # the last island comes when all clients are there

    @property
    def first(self) -> int:
        """So many islands are there at first."""
        return self.islands - 1 if self.grows else self.islands

    def cluster(self, islands: int) -> Topology:
        return small(self.hosts, self.devices_per_host, islands)

    @property
    def gated(self) -> bool:
        """Limit the window to one gang ahead: then the gate is what the others wait for."""
        return self.window == 1 and not self.one_by_one

    @property
    def config(self) -> Config:
        return msgspec.structs.replace(ON_DEVICES, window=self.window, window_span=0, bounds=Bounds(hard=120))


def arguments(program: Program) -> tuple[bytes, ...]:
    return tuple(bytes(value.nbytes) for value in program.args)


def gate(scene: Scene) -> Program:
    """A gang on all devices of each island."""
    names = [f"all{island}" for island in range(scene.islands)]
    b = Build(GATE, **dict.fromkeys(names, scene.hosts * scene.devices_per_host))
    b.slices = [msgspec.structs.replace(each, island=f"i{island}") for island, each in enumerate(b.slices)]
    made = [b.call(GATE, name, [b.arg(name, 4)], cost=S, collective=False, node=f"{GATE} {name}") for name in names]
    return b.program(*made)


def submission(scene: Scene, program: int, ir: Program) -> Callable[[Any, int], Any]:
    return lambda client, now: client.submit(program, arguments(ir), now, dispatch=scene.dispatch)


# --- simulated ------------------------------------------------------------------------------------------------------


def simulated(scene: Scene) -> ClusterSeen:
    island = {
        "name": "i",
        "kind": "cpu",
        "count": scene.islands,
        "hosts": scene.hosts,
        "devices_per_host": scene.devices_per_host,
    }
    setup = setups.load({"name": "parity", "island": [island]})
    setup = msgspec.structs.replace(setup, cluster=scene.cluster(scene.islands))
    faults = [Fault(S // 100, "grow", scene.hosts * scene.first)] if scene.grows else []
    sim = Simulation(setup, policy=scene.policy, profile=profile("seaway"), config=scene.config, faults=faults)
    watched = Watched(sim.controller)
    sim.controller_process.machine = watched
    ended: list[e.RunEnded] = []

    def client(number: int, name: str) -> Any:
        found = sim.client(name, weight=1 << number, priority=number)
        found.on_effect = lambda effect: ended.append(effect) if isinstance(effect, e.RunEnded) else None
        return found

    clients = [client(number, f"user-{number}") for number in range(len(scene.programs))]
    gatekeeper = sim.client(GATE)
    wanted = 0
    if scene.grows:
        sim.run(until=lambda: len(running(sim.controller)) == scene.islands)
    if scene.gated:
        number: Any = gatekeeper.call(lambda client, now: client.register(gate(scene), now))
        gatekeeper.call(submission(Scene(scene.policy, ()), number, gate(scene)))
        sim.run(until=sim.now + S // 100)
    for user, program in zip(clients, scene.programs, strict=True):
        number = user.call(lambda client, now: client.register(program, now))  # noqa: B023
        for _ in range(scene.runs):
            wanted += 1
            user.call(submission(scene, number, program))
            if scene.one_by_one:
                sim.run(until=lambda: len(ended) == wanted)  # noqa: B023
        if scene.gated:
            sim.run(until=lambda: len(known_runs(sim.controller)) == wanted)  # noqa: B023
    sim.run(until=lambda: len(ended) == wanted)
    for user in [*clients, gatekeeper]:
        user.act(lambda client, now: client.close(now))
    sim.run(until=lambda: not sim.controller.state.sessions)
    return watched.collector.end()


# --- real -----------------------------------------------------------------------------------------------------------


class GatedDevices(TimedDevices):
    """The gang called `gate` ends when `open` is called."""

    held: e.Launch | None = None
    opened = False

    def launch(self, command: e.Launch, plan: Plan) -> None:
        if plan.program != GATE:
            super().launch(command, plan)
        elif self.opened:
            self._loop.call_soon(self.post, e.Finished(command.seq))
        else:
            self.held = command

    def open(self) -> None:
        self.opened = True
        if self.held is not None:
            self.post(e.Finished(self.held.seq))


Plant = Callable[[Agent], None]


async def start(scene: Scene, found: Cluster, folder: Path, host: int, kind: type[Agent] = Agent) -> Agent:
    agent = kind(found.server.address, GatedDevices(scene.devices_per_host), name=f"host-{host}", host=host)
    DeviceLog(folder).attach(agent)
    await agent.start()
    found.agents[host] = agent
    return agent


async def real(
    scene: Scene, folder: Path, kinds: Mapping[int, type[Agent]] = NOTHING, plants: Mapping[int, Plant] = NOTHING,
    play: Callable[[Scene, Cluster], Awaitable[None]] | None = None, **options: Any,
) -> None:  # fmt: skip
    """Play the scene for real. What it leaves in the folder is for `judged`. `kinds`, `plants`: what is wrong with some
    hosts, by number: their class, or what is done to them once they have started."""
    server = Server(
        scene.cluster(scene.first), folder=folder, policy=scene.policy,
        config=scene.config, record=folder / "controller.log", beat=BEAT, **options,
    )  # fmt: skip
    await server.start()
    found = Cluster(server)
    try:
        for host in range(scene.hosts * scene.first):
            agent = await start(scene, found, folder, host, kinds.get(host, Agent))
            if host in plants:
                plants[host](agent)
        await found.ready()
        await (play or partial(to_the_end, folder=folder))(scene, found)
    finally:
        await found.stop()


async def to_the_end(scene: Scene, found: Cluster, folder: Path) -> None:
    for user, run in await submit_all(scene, found, folder):
        await user.ended(run)
    await leave(found)


async def submit_all(scene: Scene, found: Cluster, folder: Path = Path()) -> list[tuple[User, int]]:
    """Submit all runs, and open the gate."""
    users = [await join(found, f"user-{at}", 1 << at, at) for at in range(len(scene.programs))]
    gatekeeper = await join(found, GATE, 1, 0)
    if scene.grows:
        found.server.node.turn(found.server.operating.grow, scene.cluster(scene.islands))
        for host in range(scene.hosts * scene.first, scene.hosts * scene.islands):
            await start(scene, found, folder, host)
        await found.ready()
    devices: Any = [agent.devices for agent in found.agents.values()]
    if scene.gated:
        number = gatekeeper.call(lambda client, now: client.register(gate(scene), now))
        gatekeeper.submit(number, *arguments(gate(scene)))
        await wait_until(lambda: all(each.held for each in devices))
    runs: list[tuple[User, int]] = []
    for user, program in zip(users, scene.programs, strict=True):
        number = user.call(lambda client, now: client.register(program, now))  # noqa: B023
        for _ in range(scene.runs):
            said = user.call(submission(scene, number, program))
            runs.append((user, said.run))
            if scene.one_by_one:
                await user.ended(said.run)
        if scene.gated:
            await wait_until(lambda: len(known_runs(found.server.controller)) == len(runs))
    if scene.gated:
        waiting = known_runs(found.server.controller)
        await wait_until(lambda: all(run.state == "running" for run in waiting))
        await wait_until(lambda: all(found.server.controller.compilation.ask(run.rows) for run in waiting))
    for each in devices:
        each.open()
    return runs


class Weighted(User):
    def __init__(self, server: Server, name: str, weight: int, priority: int) -> None:
        self.failures, self.heard = [], []
        self.head = Head(server.address, server.access)
        client = Client(name, server.cluster, weight=weight, priority=priority)
        self.remote = Remote(client, server.lease, self.head, heard=self.heard.append, failed=self.failures.append)
        self.remote.node.start()


async def join(found: Cluster, name: str, weight: int, priority: int) -> User:
    """Let hosts join one after another, so that they are numbered alike."""
    user = Weighted(found.server, name, weight, priority)
    found.users.append(user)
    await wait_until(lambda: any(each.name == name for each in list(found.server.controller.state.sessions.values())))
    return user


def running(controller: Controller) -> list[Any]:
    return [each for each in controller.state.islands if each.phase == "running"]


def known_runs(controller: Controller) -> list[Any]:
    """Runs that the controller knows, other than the gate's."""
    return [run for run in list(controller.state.runs.values()) if run.program.ir.name != GATE]


async def leave(found: Cluster) -> None:
    """Let clients leave, and wait until hosts have received the last message."""
    controller = found.server.controller
    for user in found.users:
        user.call(lambda client, now: client.close(now))
    await wait_until(lambda: not (controller.state.sessions or controller.buffers or controller.state.runs))
    await wait_until(lambda: not any(island.stream.backlog for island in controller.state.islands if island.members))


def judged(scene: Scene, folder: Path) -> tuple[ClusterSeen, Comparison]:
    """The decisions of the real controller, and what its devices were told."""
    log = eventlogs.read(folder / "controller.log")
    seen, commanded = edge.read(log, scene.policy)
    hosts = scene.hosts * scene.islands
    return seen, forced.compare(commanded, edge.witnessed(folder, hosts))


def both(scene: Scene, folder: Path) -> tuple[Comparison, Comparison]:
    asyncio.run(real(scene, folder))
    seen, devices = judged(scene, folder)
    return compare.compare(simulated(scene), seen), devices


def text(comparison: Comparison) -> str:
    return "\n".join(comparison.lines())
