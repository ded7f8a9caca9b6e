"""Runs one program twice: in a simulated session, and on real devices of this machine with the same shape and settings.

    shape --simulated--> session --the program--> Seen, from the controller's commands as it gives them
    shape --real-------> session --the program--> event log --replayed--> Seen, from the same commands again

Neither run sees the other. Both get what a deployer gives in advance: the cluster, the policy, the settings, and each
computation's assumed cost.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from backend.server import Server, eventlogs
from backend.streams import LoopThread
from core.controller import Config
from core.model import Cluster, Computation, Impossible
from core.record import Log, replayed
from core.schedule.policy import Policy
from sim.engine import Stuck
from sim.hardware import Setup, setups

from ...graph import Signature
from ...sessions import Dispatch, Session
from ...sessions.connected import CONFIG, ClusterOptions, ConnectedPricing, LocalCluster, LocalDriver, brought_up
from ...sessions.simulated import simulate
from . import compare
from .collect import ClusterSeen, Watched
from .compare import Comparison

Program = Callable[[Session], None]


class ParityShape(msgspec.Struct, frozen=True):
    """The settings of both runs."""

    setup: Setup
    policy: Callable[[], Policy]
    platform: str = "timed"
    config: Config = CONFIG
    dispatch: Dispatch = "parallel"
    profile: str = "seaway"
    values: Any = "shapes"
    timeout: float = 60.0

    @property
    def cluster(self) -> Cluster:
        return self.setup.cluster


def setup_of(cluster: str, **changes: int) -> Setup:
    """The cluster's set-up. `cluster`: a name or a TOML file; "": equal islands of this machine's CPU."""
    if cluster:
        return setups.load(cluster, **changes)
    island = {"name": "i", "kind": "cpu", "count": changes.get("islands", 1), "hosts": changes.get("hosts", 2)}
    return setups.load(
        {"name": "parity", "island": [{**island, "devices_per_host": changes.get("devices_per_host", 2)}]}
    )


def nobody(code: object) -> None:
    """Store no code, since hosts of a simulation need none."""


# --- simulated ------------------------------------------------------------------------------------------------------


def simulated(shape: ParityShape, program: Program) -> ClusterSeen:
    session = simulate(
        shape.setup, policy=shape.policy, profile=shape.profile, config=shape.config, values=shape.values,
        dispatch=shape.dispatch, progress=False,
    )  # fmt: skip
    simulation = session.simulation
    watched = Watched(simulation.controller)
    simulation.controller_process.machine = watched
    session.driver.price_of = PricedBoth(session.driver.price_of, shape.platform)  # type: ignore[attr-defined]
    session.compiles_first = True
    with session:
        program(session)
    controller = simulation.controller
    try:
        simulation.run(until=lambda: not any(map(controller.left().get, ("clients", "buffers", "runs"))))
    except Stuck:
        pass  # `end` counts what is left over
    return watched.collector.end()


class PricedBoth:
    """Prices computations for the simulator, but tells the controller the cost and memory of real devices."""

    def __init__(self, simulated: Any, platform: str) -> None:
        self._simulated, self._real = simulated, ConnectedPricing((platform,), nobody)
        self.kernels = simulated.kernels

    def __call__(self, signature: Signature) -> Computation:
        made: Computation = self._simulated(signature)
        told = self._real(signature)
        return msgspec.structs.replace(made, cost=told.cost, temp=told.temp)


# --- real -----------------------------------------------------------------------------------------------------------


class RecordedCluster(LocalCluster):
    """Like the cluster of `sw.local`, but of any shape, with the controller's event log."""

    def __init__(self, shape: ParityShape, folder: Path, loop: LoopThread) -> None:
        self._shape = shape
        island = shape.cluster.islands[0]
        made = ClusterOptions(
            hosts=island.hosts, devices=island.devices_per_host, islands=len(shape.cluster.islands),
            platform=shape.platform, memory=0, policy=shape.policy, config=shape.config, record=log_of(folder),
        )  # fmt: skip
        super().__init__(made, loop)

    async def _begin(self) -> Server:
        self.cluster = self._shape.cluster
        return await super()._begin()


class RecordedDriver(LocalDriver):
    def recorded(self) -> dict[str, tuple[int, int]]:
        """Nothing, since recorded times would change costs, and so the order, during the run."""
        return {}


def log_of(folder: Path) -> Path:
    return folder / "controller.log"


def real(shape: ParityShape, program: Program, folder: Path) -> None:
    """Run the program on real devices. Leaves the controller's event log in the folder."""
    if len(numbers := sorted({island.devices_per_host for island in shape.cluster.islands})) > 1:
        raise Impossible(
            f"hosts with {', '.join(map(str, numbers))} devices: on one machine all hosts must have the same number"
        )
    make = partial(RecordedCluster, shape, folder)
    driver = brought_up(make, shape.timeout, partial(RecordedDriver, "real cluster"))
    session = Session(driver, dispatch=shape.dispatch)
    session.compiles_first = True  # how long that takes is not core's decision, and it is not compared
    with session:
        program(session)


def recorded(log: Log, policy: Callable[[], Policy] | None = None) -> ClusterSeen:
    """The decisions of a recorded controller. Its events lead a fresh one to the same commands."""
    watched = Watched(eventlogs.machine_of(log.about, policy=policy))
    for _ in replayed(log, watched):
        pass
    return watched.collector.end()


def judged(shape: ParityShape, simulation: ClusterSeen, folder: Path) -> Comparison:
    """Compares core's decisions in both runs."""
    return compare.compare(simulation, recorded(eventlogs.read(log_of(folder)), shape.policy))
