"""Scenes: the actions of clients on a cluster, drawn from a seed, and played in a simulation of either fidelity.

A client is a list of acts with pauses. Its actions depend only on the simulated clock and on what it has received.
`play` returns everything observable: every row of the trace, what each client received and when, the order hash.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import msgspec

from core.client.client import Client
from core.client.client_limits import Blocked, Submitted
from core.controller import Config
from core.model.program import Node, Out, Program, SliceSpec
from core.protocol import effects as e
from core.schedule.policy import Deadline, Fifo, Policy, Priority, RoundRobin, Shortest, Stride
from sim.engine.jitter import Noise
from sim.hardware.kernels import Collective, Kernel
from sim.hardware.profiles import Profile, profile
from sim.hardware.setups import Setup, load
from sim.hosts.client_process import SimClient
from sim.hosts.context import RareTimes
from sim.simulation.faults import Fault
from sim.simulation.simulation import Simulation
from tests.fuzz import programs
from tests.fuzz.policies import Patient
from tests.intervals import intervals
from tests.reserving.backfill import EasyBackfill
from tests.reserving.gang_reservation import GangReservation

US, MS, S = 1_000, 1_000_000, 1_000_000_000
POLICIES: tuple[Callable[[], Policy], ...] = (Fifo, Stride, Priority, Shortest, Deadline, RoundRobin)
RESERVING: tuple[Callable[[], Policy], ...] = (
    EasyBackfill,
    partial(GangReservation, least=0, grace=300 * US),
    lambda: Patient(Random(0)),
)


class Scene(msgspec.Struct):
    seed: int
    hosts: int
    devices_per_host: int
    islands: int
    policy: int
    fanout: int
    noise: Noise
    slices: list[SliceSpec]
    programs: list[Program]
    clients: int
    acts: int
    troubles: list[tuple[int, str, int]]  # (when, what, target)
    shared: list[dict[str, object]] = []  # which processes share a machine
    faults: list[Fault] = []  # besides
    feeds: float = 0.0  # how often results are kept, as arguments of later calls
    setup: str = "B"
    memory: int = 0  # of a device; 0: as the setup has it
    chunk: int = 1 << 12
    oversubscription: float = 1.0
    tell: bool = False  # clients hear of each program that it is compiled
    window: int = 8
    kind: str = ""  # of devices; "": as the setup has it
    stops: float = 0.0  # how often a run is told to end early
    reduces: int = 0  # bytes of an all-reduce of each gang that is a collective; 0: it has none
    slow: bool = False  # links and cards


def draw(seed: int, *, moves: bool = True, troubles: tuple[str, ...] = ("slow",)) -> Scene:
    rng = Random(seed)
    islands = rng.choice((1, 1, 2))
    hosts, devices_per_host = rng.randint(2, 9), rng.choice((2, 4, 8))
    devices = hosts * devices_per_host
    slices = [
        SliceSpec(f"s{n}", rng.choice((devices, devices, rng.randint(1, devices)))) for n in range(rng.randint(1, 4))
    ]
    style = programs.Style(
        nodes=rng.randint(1, 7), costs=(3 * US, 40 * US, 700 * US), moves=moves, donation=0.3,
        irregular=rng.choice((0.0, 0.3)), sparse=0.2 if moves and rng.random() < 0.3 else 0.0,
        collective=rng.choice((1.0, 0.6)),
    )  # fmt: skip
    made = [
        programs.draw(rng, f"p{n}", slices if moves else [rng.choice(slices)], style) for n in range(rng.randint(1, 3))
    ]
    noise = Noise(latency=rng.choice((0, 9 * US)), compute=rng.choice((0.0, 0.1)), stragglers=rng.choice((0.0, 0.3)))
    befall = [
        (rng.randint(1, 4000) * US, rng.choice(troubles), rng.randrange(hosts * islands))
        for _ in range(rng.choice((0, 1, 2)) if troubles else 0)
    ]
    back = [(at + 5000 * US, "return_host", whom) for at, what, whom in befall if what in ("crash_host", "leave_host")]
    befall += back  # later gangs may need these hosts
    fanout = rng.choice((1, 2, 3, 100))
    return Scene(
        seed, hosts, devices_per_host, islands, rng.randrange(len(POLICIES)), fanout, noise, slices, made,
        rng.randint(1, 4), rng.randint(3, 12), befall,
    )  # fmt: skip


def draw_parts(seed: int) -> Scene:
    """A slice and sub-slices of it, arrays with meshes of their own, nodes without outputs, programs told of."""
    rng = Random(f"parts {seed}")
    drawn = draw(seed, troubles=())
    devices = drawn.hosts * drawn.devices_per_host
    whole = SliceSpec("whole", rng.choice((devices, rng.randint(1, devices))))
    drawn.slices = [whole]
    for number in range(rng.randint(1, 3)):
        count = rng.choice((1, 1, 2, rng.randint(1, whole.devices)))
        picks = tuple(rng.sample(range(whole.devices), min(count, whole.devices)))
        picks = tuple(sorted(picks)) if rng.random() < 0.4 else picks
        drawn.slices.append(SliceSpec(f"part{number}", len(picks), of="whole", picks=picks))
    style = programs.Style(
        nodes=rng.randint(1, 7), costs=(3 * US, 40 * US, 700 * US), silent=rng.choice((0.0, 0.3)),
        meshes=rng.choice((0.0, 0.5)), collective=rng.choice((1.0, 0.6)),
    )  # fmt: skip
    made = [programs.draw(rng, f"p{n}", drawn.slices, style) for n in range(rng.randint(1, 3))]
    drawn.programs = [programs.with_parents(each, drawn.slices) for each in made]
    drawn.feeds, drawn.tell = rng.choice((0.0, 0.5, 0.9)), True
    return drawn


def draw_reserving(seed: int, *, moves: bool, troubles: tuple[str, ...] = ("slow",)) -> Scene:
    """With a policy that keeps devices free."""
    rng = Random(f"reserving {seed}")
    drawn = draw(seed, moves=moves, troubles=troubles)
    drawn.policy, drawn.window = len(POLICIES) + rng.randrange(len(RESERVING)), rng.choice((1, 2, 8))
    return drawn


def draw_shared(drawn: Scene) -> list[dict[str, object]]:
    """Put some hosts, perhaps of both islands, perhaps with the controller and clients, on machines with few cores."""
    rng = Random(f"shared {drawn.seed}")
    hosts = list(range(drawn.hosts * drawn.islands))
    rng.shuffle(hosts)
    several = rng.randint(1, min(3, len(hosts)))
    first: dict[str, object] = {"cores": rng.choice((1, 2, 4)), "hosts": sorted(hosts[:several])}
    second: dict[str, object] = {"cores": rng.choice((1, 2)), "controller": True}
    if rng.random() < 0.5:
        second["clients"] = rng.choice((True, ["c0"]))
    return rng.choice(([first], [second], [first, second], [{**first, **second}]))


class Caller:
    """A client, what it has heard and when, and which of its runs are under way."""

    def __init__(self, sim: Simulation, name: str, rng: Random, weight: int = 1) -> None:
        self.sim, self.rng = sim, rng
        self.heard: list[tuple[int, str]] = []
        self.open: dict[int, None] = {}
        self.over = False
        self.client: SimClient = sim.client(name, weight=weight)
        self.client.on_effect = self.hear

    def hear(self, effect: e.Command) -> None:
        if not isinstance(effect, e.Fill):  # a cohort's contents come in one piece
            self.heard.append((self.sim.now, repr(effect)))
        if isinstance(effect, e.RunEnded):
            self.open.pop(effect.run, None)

    def call(self, act: Any) -> Any:
        while True:
            yield from self.client.turn()
            result = self.client.act(act)
            if not isinstance(result, Blocked):
                return result
            yield self.sim.env.timeout(20 * US)

    def all_ended(self) -> Any:
        while self.open:
            yield self.sim.env.timeout(50 * US)
        self.over = True


class User(Caller):
    """One client's script."""

    def __init__(self, sim: Simulation, scene: Scene, number: int, moves: bool) -> None:
        rng = Random(scene.seed * 31 + number)
        super().__init__(sim, f"c{number}", rng, rng.randint(1, 4))
        self.scene, self.moves = scene, moves
        self.buffers: dict[str, list[int]] = {}
        self.known: list[int] = []

    def live(self) -> Any:
        """A SimPy process."""
        env = self.sim.env
        for program in self.scene.programs:
            yield from self.call(partial(_register, program, self.scene.tell))
            self.known.append(len(self.known) + 1)
        for _ in range(self.scene.acts):
            yield from self.act()
            yield env.timeout(self.rng.choice((0, 10, 200, 900)) * US)
        yield from self.all_ended()

    def act(self) -> Any:
        number = self.rng.randrange(len(self.scene.programs))
        program = self.scene.programs[number]
        args: list[int | bytes] = []
        if not self.moves and sum(value.nbytes for value in program.args) > 4096:
            return
        for index, value in enumerate(program.args):
            wanted = str((value.shape, value.dtype))
            if self.moves and (value.nbytes > 1024 or self.rng.random() < 0.3):
                spec = program.slices[value.slice]
                mine = self.buffers.setdefault(wanted, [])
                if not mine or self.rng.random() < 0.3 or index in program.donate_args:
                    put = yield from self.call(partial(_put, _whole(value), spec))
                    if index in program.donate_args:
                        args.append(put)
                        continue
                    mine.append(put)
                args.append(self.rng.choice(mine))
            else:
                args.append(bytes(value.nbytes))
        mode = self.rng.choice(("parallel", "parallel", "sequential"))
        made: Submitted = yield from self.call(
            lambda c, now: c.submit(self.known[number], tuple(args), now, dispatch=mode)
        )
        self.open[made.run] = None
        if self.scene.stops and self.rng.random() < self.scene.stops:
            yield self.sim.env.timeout(self.rng.choice((0, 20, 100, 400)) * US)
            yield from self.call(lambda c, now: c.stop(made.run, now))
        if self.moves and made.results and self.rng.random() < 0.4:
            shard = (-1, -1, 0, 1)[made.run % 4]  # all of it, or a shard, of which there may be only one
            yield from self.call(lambda c, now: c.get(made.results[0], now, shard))
        if self.scene.feeds and self.rng.random() < self.scene.feeds:
            self.keep(program, made.results)
        elif self.rng.random() < 0.5:
            yield from self.call(lambda c, now: c.release(made.results, now))
        while self.rng.random() < 0.3 and self.open:
            yield self.sim.env.timeout(30 * US)

    def keep(self, program: Program, results: tuple[int, ...]) -> None:
        """Uses results as arguments of later calls, from now on, where arguments have such shapes."""
        for ref, result in zip(program.results, results, strict=True):
            node = program.nodes[ref.node] if isinstance(ref, Out) else None
            if isinstance(node, Node) and isinstance(ref, Out):
                value = node.outputs[ref.output]
                self.buffers.setdefault(str((value.shape, value.dtype)), []).append(result)


def _register(program: Program, tell: bool, client: Client, now: int) -> Any:
    return client.register(program, now, tell)


def _put(value: Any, where: SliceSpec, client: Client, now: int) -> Any:
    return client.put(value, where, now)


def _whole(value: Any) -> Any:
    return msgspec.structs.replace(value, slice=0)


def draw_reducing(drawn: Scene) -> Scene:
    """Its gangs are mostly collectives, on TPUs or GPUs, and links and cards are slow."""
    rng = Random(f"reducing {drawn.seed}")
    drawn.reduces, drawn.slow = rng.choice((1 << 12, 1 << 16, 1 << 20)), True
    drawn.kind = rng.choice(("", "h100"))
    drawn.setup = "B" if drawn.kind else drawn.setup
    return drawn


def kernels(scene: Scene) -> dict[str, Kernel]:
    each = [one for program in scene.programs for one in program.computations if scene.reduces and one.collective]
    reduce = Collective("all-reduce", scene.reduces)
    return {one.key: Kernel(one.name, one.cost // one.steps // 10, (reduce,)) for one in each}


def setup(scene: Scene) -> Setup:
    more: dict[str, Any] = {"memory": scene.memory} if scene.memory else {}
    if scene.kind:
        more["kind"] = scene.kind
    if scene.oversubscription > 1:
        more["dcn"] = {"oversubscription": scene.oversubscription}
    if scene.slow:
        more["ici_bandwidth"] = "1 GB/s"
        more["dcn"] = {"bandwidth": "1 GB/s", **more.get("dcn", {})}
    return load(
        scene.setup, hosts=scene.hosts, devices_per_host=scene.devices_per_host, islands=scene.islands,
        shared=scene.shared, **more,
    )  # fmt: skip


def play(scene: Scene, fidelity: Any, *, moves: bool = True, costs: Profile | None = None) -> dict[str, Any]:
    costs = costs or profile(("paper", "seaway")[scene.seed % 2])
    config = Config(fanout=scene.fanout, window=scene.window, max_reserved=20 * MS)
    sim = Simulation(
        setup(scene), policy=(*POLICIES, *RESERVING)[scene.policy], profile=costs, fidelity=fidelity, seed=scene.seed,
        noise=scene.noise, config=config, times=RareTimes(lease=3 * MS, form=MS, join=MS, restart=MS, beat=MS),
        faults=[*[Fault(*trouble) for trouble in scene.troubles], *scene.faults], chunk=scene.chunk, pool=1 << 20,
    )  # fmt: skip
    sim.kernels.update(kernels(scene))
    users = [User(sim, scene, number, moves) for number in range(scene.clients)]
    for user in users:
        sim.env.process(user.live())
    sim.run(until=lambda: all(user.over for user in users) or sim.now > 3 * S)
    sim.run(until=sim.now + 2 * MS)  # contents that nobody waits for
    return {
        "heard": [user.heard for user in users],
        "over": [user.over for user in users],
        "order": sim.controller.order.whole(),
        **rows(sim, "gangs", "transfers", "runs", "reservations"),
        "intervals": sorted(intervals(sim.trace)),
    }


def rows(sim: Simulation, *tables: str) -> dict[str, Any]:
    """Rows without the index of their arrivals in another table."""
    return {
        table: [
            {name: value for name, value in row.items() if name not in ("hosts", "ends")}
            for row in sim.trace.rows(table)
        ]
        for table in tables
    }


def agree(played: Callable[[str], dict[str, Any]], about: object) -> dict[str, Any]:
    """All that can be seen is the same in both fidelities. Returns it."""
    exact, cohort = played("exact"), played("cohort")
    for what in exact:
        assert cohort[what] == exact[what], f"{about}: {what}"
    return exact


def assert_equal(drawn: Scene, *, moves: bool = True) -> dict[str, Any]:
    return agree(lambda fidelity: play(drawn, fidelity, moves=moves), f"seed {drawn.seed}, {drawn.faults}")
