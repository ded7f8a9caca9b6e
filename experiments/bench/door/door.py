"""Measures an unmodified JAX program through the door, against the same program on local devices.

`python -m experiments.bench door [--rounds 3]`. Both run by turns, as processes of their own. "ratio" is how many times
as long it takes through the door, or, of MB a second, how many times as much goes locally. With `--hosts 2`, the same
program runs through a door to a cluster of so many agents too, which share the devices, and as multi-controller JAX in
so many processes, of which the slowest counts. `--platform cuda`: on the GPUs of this machine.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from statistics import median

from ..frame import options, processes
from ..frame.door_server import on_cluster, opened
from ..frame.options import Table
from .programs import measured, member

CALLS, MIB = 3_000, 64
BOUND = 600.0  # seconds for a process
# Microseconds, by what a program goes through.
AIMS: dict[str, dict[str, float]] = {
    "door": {"scalar call": 100.0, "scalar call that is read": 150.0, "put of a scalar": 80.0},
    "cluster": {
        "scalar call that is read": 500.0,
        "call of 1000 arrays, CPU of the controller": 1_000.0,
        "step that donates 1000, CPU of the controller": 1_000.0,
    },
}
SHARES = {"put to one device": 0.6}  # MB a second through the door: how many times what goes locally
NO_COPY = 50_000.0  # MB/s: more than memory can copy, so a local array was read where it is
MORE_IS_BETTER = ("put to", "read of")
MULTI = "multi JAX"
UNITS = {"compile": "ms", "put to": "MB/s", "read of": "MB/s", "training": "ms"}


def unit_of(name: str) -> str:
    return next((unit for begins, unit in UNITS.items() if name.startswith(begins)), "us")


def slowest(processes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {
        name: (min if name.startswith(MORE_IS_BETTER) else max)(each[name] for each in processes)
        for name in processes[0]
    }


def show(here: Mapping[str, float], there: Mapping[str, float], names: tuple[str, str] = ("local", "door")) -> None:
    table = Table("a JAX program's <46", f"{names[0]} >12,.1f", f"{names[1]} >12,.1f", "  <6", "ratio >9.1fx", "  <12")
    table.begin()
    for name, through in there.items():
        alone = here.get(name)
        ratio: float | str | None = None
        if alone and alone > NO_COPY and name.startswith("read of"):
            alone, ratio = None, "no copy"
        elif alone:
            ratio = alone / through if name.startswith(MORE_IS_BETTER) else through / alone
        aim = AIMS.get(names[1], {}).get(name)
        missed = aim is not None and through > aim
        if names[1] == "door" and name in SHARES and alone:
            aim = SHARES[name] * alone
            missed = through < aim
        verdict = "" if aim is None else f"  aim {aim:,.0f}" + ("  MISSED" if missed else "")
        table.row(name, alone, through, f"  {unit_of(name)}", ratio, verdict)


def main(arguments: Sequence[str] = ()) -> dict[str, dict[str, float]]:
    """Print the tables, and return the medians by what the program went through."""
    parser = options.parser("door", __doc__)
    parser.number("--rounds", 3, "processes of either kind, in turns, for a median")
    parser.number("--devices", 8, "CPU devices, or GPUs, all of this machine")
    parser.number("--calls", CALLS, "scalar calls in a loop", at_least=20)
    parser.number("--mib", MIB, "MiB of an array that is put and read")
    parser.number("--hosts", 0, "agents of a cluster, and processes of JAX, that are measured too; 0: none", at_least=0)
    parser.platform()
    chosen = parser.parse_args(arguments)
    platform = chosen.platform
    with ExitStack() as stack:
        door = stack.enter_context(opened(chosen.devices if platform == "cpu" else 0))
        sizes, own = (chosen.calls, chosen.mib), door.child.pid
        alone = {"the door": [own]}
        quiet, own_devices = {"TF_CPP_MIN_LOG_LEVEL": "3"}, processes.environment(chosen.devices, platform)
        works: dict[str, Callable[[], dict[str, float]]] = {
            "local": lambda: processes.answer(measured, *sizes, 0, {}, env=own_devices | quiet, bound=BOUND),
            "door": lambda: processes.answer(measured, *sizes, own, alone, env=door.env | quiet, bound=BOUND),
        }
        if chosen.hosts:
            cluster = stack.enter_context(on_cluster(chosen.hosts, chosen.devices // chosen.hosts, platform=platform))
            server, env = cluster.door.child.pid, cluster.door.env | quiet
            pids = {
                "the door": [server],
                "the controller": [cluster.cluster.controller.pid],
                "the agents": [agent.pid for agent in cluster.cluster.agents],
            }
            works["cluster"] = lambda: processes.answer(measured, *sizes, server, pids, env=env, bound=BOUND)
            each = processes.environment(chosen.devices // chosen.hosts, platform) | quiet
            works[MULTI] = lambda: slowest(processes.answers(member, chosen.hosts, each, sizes, bound=BOUND))
        # by turns, since a machine's speed changes from second to second
        rounds = [{where: work() for where, work in works.items()} for _ in range(chosen.rounds)]
    medians = {
        where: {name: median(each[where][name] for each in rounds) for name in found}
        for where, found in rounds[0].items()
    }
    show(medians["local"], medians["door"])
    if chosen.hosts:
        show(medians["door"], medians["cluster"], ("door", "cluster"))
        both = {name: found for name, found in medians["cluster"].items() if name in medians[MULTI]}
        show(medians[MULTI], both, (MULTI, "cluster"))
    return medians
