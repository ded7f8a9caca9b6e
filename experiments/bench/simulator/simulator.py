"""Measures the simulator: gang steps per CPU second through `sw.simulate`, with core's scheduler and a stride policy.

`python -m experiments.bench simulator`. A client makes calls of one computation on all devices and keeps three
unfinished. The baseline is `naive`, a simple model with a process a host, and without scheduler, memory or failures.
Each play runs in a process of its own, whose peak memory is printed. A row is that of three rounds (one, where start-up
is long) which has the median rate, or the median ratio, where naive model and ours take turns. Start-up is not in the
rates, but printed beside them.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any, TypeVar

from ..frame import processes
from ..frame.table import Table

T = TypeVar("T")
HOSTS = (64, 512, 4096, 25_000)
PER_HOST = 4
STEPS = {64: 1000, 512: 1000, 4096: 300, 25_000: 100}  # of ours
NAIVE_STEPS = {64: 200, 512: 30, 4096: 5, 25_000: 3}
AIMS = {512: 300, 25_000: 5000}  # times the naive model
ROUNDS, LARGEST = 3, 100_000  # of plays with fewer hosts than that, since a shared machine changes its speed
PATIENCE = 400  # seconds for a play
LATE = f"  not within {PATIENCE} s"
AHEAD = 3  # calls unfinished
LARGE = (  # hosts, clients, gangs of each, profile, aim in CPU seconds
    (512, 1, 1000, "paper", 0.35),
    (512, 4, 1000, "paper", 1.5),
    (25_000, 1, 100, "paper", 1.0),
    (25_000, 1, 100, "seaway", 1.0),
    # only "seaway": a flat fan-out to this many hosts takes longer than the controller waits
    (250_000, 1, 10, "seaway", None),
)


# --- in a process of its own ------------------------------------------------------------------------------------


def ours(hosts: int, clients: int, gangs: int, profile: str) -> dict[str, Any]:
    begun = process_time()
    trace, spent, simulated = simulate(hosts, clients, gangs, profile)
    intervals = clients * gangs * hosts * PER_HOST
    return {
        "start": process_time() - begun - spent, "spent": spent, "simulated": simulated,
        "bytes": trace.core.nbytes / intervals,
    }  # fmt: skip


def simulate(hosts: int, clients: int, gangs: int, profile: str) -> tuple[Any, float, float]:
    """(trace, CPU seconds without start-up, seconds of simulated time).

    The first call counts as start-up, since it chooses devices and imports libraries.
    """
    import seaway as sw

    with sw.simulate("A", hosts=hosts, policy="stride", profile=profile) as session:
        step = sw.synthetic("step", devices=sw.slice(devices=hosts * PER_HOST), duration="350us")

        started: list[float] = []

        def client() -> None:
            waiting = [step()]
            waiting[0].block_until_ready()
            started.append(process_time())
            for _ in range(gangs - 1):
                waiting.append(step(waiting[-1]))
                if len(waiting) > AHEAD:
                    waiting.pop(0).block_until_ready()
            waiting[-1].block_until_ready()

        for task in [session.spawn(client, name=f"client {number}") for number in range(clients)]:
            task.join()
        spent = process_time() - started[0]
        return session.trace, spent, session.now()


def naive(hosts: int, steps: int) -> dict[str, Any]:
    from .naive import Counted, Naive

    begun = process_time()
    env = Counted(initial_time=0)
    model = Naive(hosts, env=env)
    model.start(steps)
    env.run(until=model.begun)
    first, events = process_time(), env.events
    env.run(until=model.over)
    spent = process_time() - first
    return {"start": first - begun, "spent": spent, "events": (env.events - events) / (steps - 1)}


def play(work: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any] | None:
    """A play in a process of its own, with its peak memory in megabytes; None if it failed or took too long."""
    try:
        found: dict[str, Any] = processes.answer(weighed, work.__name__, *arguments, bound=PATIENCE)
        return found
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return None


def weighed(work: str, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = globals()[work](*arguments)
    return found | {"rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def middle(found: Sequence[T], key: Callable[[T], float]) -> T:
    return sorted(found, key=key)[len(found) // 2]


# --- what is printed ----------------------------------------------------------------------------------------------


def rates() -> None:
    table = Table("hosts >8,", "naive steps/s >15,.2f", "events a step >15,.0f", "ours steps/s >14,.0f",
                  "x naive >10,.0fx", "aim >8", "start-up s >12.2f", "peak RSS MB >13,.0f")  # fmt: skip
    table.begin(
        f"One client, one computation a call on all devices, {AHEAD} calls unfinished; stride; profile paper"
    )
    for hosts in HOSTS:
        rounds = [
            (play(naive, hosts, NAIVE_STEPS[hosts]), play(ours, hosts, 1, STEPS[hosts], "paper"))
            for _ in range(ROUNDS)
        ]
        known = [(base, mine) for base, mine in rounds if base is not None and mine is not None]
        if len(known) < ROUNDS:
            table.row(hosts, LATE)
            continue
        base, mine = middle(known, lambda pair: pair[0]["spent"] / pair[1]["spent"])
        slow, fast = (NAIVE_STEPS[hosts] - 1) / base["spent"], STEPS[hosts] / mine["spent"]
        table.row(
            hosts, slow, base["events"], fast, fast / slow, AIMS.get(hosts), mine["start"], mine["rss"]
        )  # fmt: skip


def sizes() -> None:
    table = Table("devices >10,", "clients >9", "gangs >9,", "profile >9", "CPU s >9.2f", "aim >7", "start-up s >12.2f",
                  "bytes an interval >19.3f", "peak RSS MB >13,.0f")  # fmt: skip
    table.begin("\nStart-up left out; the aim is CPU seconds")
    for hosts, clients, gangs, profile, aim in LARGE:
        rounds = [play(ours, hosts, clients, gangs, profile) for _ in range(ROUNDS if hosts < LARGEST else 1)]
        known = [each for each in rounds if each is not None]
        head = hosts * PER_HOST, clients, clients * gangs, profile
        if len(known) < len(rounds):
            table.row(*head, LATE)
            continue
        found = middle(known, lambda each: each["spent"])
        table.row(*head, found["spent"], aim, found["start"], found["bytes"], found["rss"])


def main() -> None:
    rates()
    sizes()
