"""Options of the micro-benchmarks, and functions that measure their rates."""

from core.controller import Config
from core.schedule.policy import named
from sim.baselines import SYSTEMS, BaselineWork, Mode, run
from sim.hardware import Kernel, Setup, load
from sim.simulation import Simulation, fanout_of

from ..framework.options import Option, Point, profile_of
from .clients import Failed, Loop, rate
from .programs import chain

PROFILE = Option("profile", "paper", "host costs: paper, seaway, ideal, a TOML file, or changed: paper:send*2+step=5us")
SEED = Option("seed", 0, "seed of all random draws")
FIDELITY = Option("fidelity", "cohort", "simulate equal hosts as one, or each host", choices=("cohort", "exact"))
POLICY = Option("policy", "fifo", "scheduling policy: fifo, stride, priority, shortest, deadline, round_robin")
WINDOW = Option("window", 256, "gangs that the controller may order ahead of the devices", least=1)
NODES = Option("nodes", 128, "computations in a call of a chained or fused program", least=1)

PATHWAYS = "pathways"
ALL_SYSTEMS = (PATHWAYS, *SYSTEMS)


def island(cluster: str, hosts: int, hop: int = 0) -> Setup:
    """A set-up with this many hosts in its island. `hop`: another ICI latency a hop, if not 0."""
    setup = load(cluster, hosts=hosts)
    if not hop:
        return setup
    name = setup.chips[0].name
    return load(cluster, hosts=hosts, chip={name: {"like": name, "ici_latency": hop}})


def simulated(setup: Setup, point: Point) -> Simulation:
    """As a point says that has all of PROFILE, POLICY, FIDELITY, SEED and WINDOW."""
    profile, policy = profile_of(point["profile"]), point["policy"]
    named(policy)  # raises if the name is wrong, before anything runs
    return Simulation(
        setup, policy=lambda: named(policy), profile=profile, fidelity=point["fidelity"], seed=point["seed"],
        config=Config(window=point["window"], fanout=fanout_of(profile, setup.cluster)),
    )  # fmt: skip


def pathways(setup: Setup, point: Point, kernel: Kernel, mode: Mode, nodes: int, *, ahead: int, calls: int) -> float:
    """Computations a second of one client of Pathways that calls repeatedly."""
    sim = simulated(setup, point)
    in_a_row, held = (nodes if mode == "chained" else 1), (nodes if mode == "fused" else 1)
    client = Loop(sim, "client", chain(setup, kernel, in_a_row, held), ahead=ahead, calls=calls)
    sim.run(until=lambda: client.done)
    if client.failures:
        raise Failed(client.failures[0])
    return rate(sim, held, period=in_a_row * (ahead + 1))


def other(system: str, setup: Setup, kernel: Kernel, mode: Mode, nodes: int, profile: str, calls: int) -> float:
    """Computations a second of another system."""
    return run(system, setup, BaselineWork(kernel, mode, nodes), profile_of(profile), calls=calls).per_second
