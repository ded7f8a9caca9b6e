"""The programs of `cliff_rows`: what users write naturally, each as a function that makes gangs and counts them.

A program is called as `program(play, size)`. It makes gangs until `play.enough()`, and says `play.made(number)` when it
has made some and has waited for earlier ones, so that what it costs is spread evenly. `plain` is what all of them are
compared with. `test_cliff_counts` counts what these programs do.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

import seaway as sw
from seaway.api import schedules
from sim.simulation import Fault

PER_HOST = 4  # devices
AHEAD = 3  # calls unfinished
DURATION = "350us"
MS = 10**6
HOUR = 3600 * 10**9
CRASH = 500 * MS  # when a host does: gangs run by then, however many hosts there are
STAGES, MICROBATCHES = 16, 8
LONG = 2048  # numbers: 8 KiB, where messages carry arrays of up to 4 KiB
SMALL = (1, 2, 4, 8, 16, 32, 64)  # devices
OVERLAPPING = 0.4  # of the devices: the third slice must share

Program = Callable[["Play", int], None]


class Play(NamedTuple):
    """One play of a program. `made(number)` takes in that this many gangs were made, and says whether that is enough.
    `watch` is told the session as soon as it is open."""

    hosts: int
    made: Callable[[int], bool]
    fidelity: Literal["exact", "cohort"] = "cohort"
    watch: Callable[[Any], None] = lambda session: None

    @property
    def devices(self) -> int:
        return self.hosts * PER_HOST

    def session(self, **options: Any) -> Any:
        return sw.simulate(
            "A", hosts=self.hosts, policy="stride", profile="paper", fidelity=self.fidelity, progress=False, **options
        )

    def step(self, devices: int = 0, name: str = "step", **options: Any) -> Any:
        return sw.synthetic(name, devices=sw.slice(devices=devices or self.devices), duration=DURATION, **options)


def looped(
    play: Play, step: Callable[[Any], Any], x: Any, ahead: int = AHEAD,
    awaits: Callable[[Any], Any] = lambda x: x, gangs: int = 1,
) -> None:  # fmt: skip
    """`x = step(x)`, again and again. `awaits`: what of a result is waited for. gangs: of a step."""
    waiting: deque[Any] = deque()
    while True:
        x = step(x)
        waiting.append(awaits(x))
        if len(waiting) > ahead:
            sw.block_until_ready(waiting.popleft())
        if play.made(gangs):
            return


def scalar() -> Any:
    return np.float32(0)


def split(play: Play) -> tuple[Any, Any]:
    """(an array that is too long for a message, and how it is split over all devices)."""
    from jax.sharding import PartitionSpec

    return np.zeros(max(play.devices, LONG), np.float32), PartitionSpec("x")  # type: ignore[no-untyped-call]


# --- the plain case, and what should change nothing -------------------------------------------------------------------


def plain(play: Play, size: int = 0, **options: Any) -> None:
    with play.session(**options) as session:
        play.watch(session)
        looped(play, play.step(), scalar())


def jitter(play: Play, size: int) -> None:
    plain(play, noise={"latency": "8us", "compute": 0.05})


def stragglers(play: Play, size: int) -> None:
    plain(play, noise={"stragglers": 0.01, "straggler_factor": 1.5})


def calls_ahead(play: Play, ahead: int) -> None:
    with play.session() as session:
        play.watch(session)
        looped(play, play.step(), scalar(), ahead)


def clients(play: Play, number: int) -> None:
    with play.session() as session:
        play.watch(session)
        step = play.step()
        tasks = [session.spawn(looped, play, step, scalar(), name=f"client {at}") for at in range(number)]
        for task in tasks:
            task.join()


# --- reading and giving arrays ----------------------------------------------------------------------------------------


def reads(play: Play, size: int, *, like: str = "scalar", faults: Sequence[Fault] = ()) -> None:
    """A loop that reads its result. `like`: a scalar, or 1,025 numbers on each device, or an array split over them."""
    x: Any = scalar() if like == "scalar" else np.zeros(1025, np.float32)
    splits: Any = None
    if like == "sharded":
        x, splits = split(play)
    with play.session(values="compute", faults=faults) as session:  # synthetic work computes zeros
        play.watch(session)
        inner = play.step(in_shardings=splits, out_shardings=splits)

        def step(x: Any) -> Any:
            y = inner(x)
            np.asarray(y)
            return y

        looped(play, step, x)


def sharded_first(play: Play, size: int) -> None:
    """Its first argument is an array that is too long for a message, and split over all devices."""
    x, splits = split(play)
    with play.session() as session:
        play.watch(session)
        looped(play, play.step(in_shardings=splits, out_shardings=splits), x)


def array_a_call(play: Play, size: int, *, faults: Sequence[Fault] = ()) -> None:
    """A data loader's array at each call."""
    x, splits = split(play)
    with play.session(faults=faults) as session:
        play.watch(session)
        inner = play.step(in_shardings=(None, splits), out=lambda state, batch: state)
        looped(play, lambda state: inner(state, x), scalar())


def arrays(play: Play, number: int) -> None:
    """A call that takes and returns this many arrays."""
    with play.session() as session:
        play.watch(session)
        looped(play, play.step(), [scalar()] * number)


def model(play: Play, number: int) -> None:
    """A training step: this many parameters split over all devices, which are made there and given back as they were
    taken; a batch; a loss."""
    x, splits = split(play)
    with play.session() as session:
        play.watch(session)
        step = play.step(
            in_shardings=(splits, None), out=lambda parameters, batch: (parameters, scalar()),
            out_shardings=(splits, None), donate_argnums=0,
        )  # fmt: skip
        init = sw.synthetic("init", devices=step.slice, duration=DURATION, out=[x] * number, out_shardings=splits)
        looped(play, lambda state: step(state[0], scalar()), (init(), scalar()), awaits=lambda state: state[1])


# --- slices -----------------------------------------------------------------------------------------------------------


def slices(play: Play, sizes: list[int]) -> None:
    """Rounds of a call on each of these slices, each with its own last result. A round waits for the last one."""
    with play.session() as session:
        play.watch(session)
        turns(play, [play.step(devices, f"step {at}") for at, devices in enumerate(sizes)])


def turns(play: Play, steps: list[Any]) -> None:
    made = [scalar() for _ in steps]
    while True:
        before, made = made, [step(x) for step, x in zip(steps, made, strict=True)]
        sw.block_until_ready([x for x in before if isinstance(x, sw.Array)])
        if play.made(len(steps)):
            return


def disjoint_slices(play: Play, number: int) -> None:
    slices(play, [play.devices // number] * number)


def overlapping_slices(play: Play, number: int) -> None:
    slices(play, [int(play.devices * OVERLAPPING)] * number)


def small_slices(play: Play, number: int) -> None:
    """Clients with slices of 1 to 64 devices each."""
    with play.session() as session:
        play.watch(session)
        tasks = []
        for client in range(number):
            steps = [play.step(devices, f"step {client} {devices}") for devices in SMALL]
            tasks.append(session.spawn(turns, play, steps, name=f"client {client}"))
        for task in tasks:
            task.join()


# --- programs ---------------------------------------------------------------------------------------------------------


def sequential(play: Play, size: int) -> None:
    plain(play, dispatch="sequential")


def first_run(play: Play, nodes: int) -> None:
    """A program of many nodes in a row, at its first call."""
    with play.session() as session:
        play.watch(session)
        step = play.step()
        step(scalar()).block_until_ready()
        play.made(0)

        def chain(x: Any) -> Any:
            for _ in range(nodes):
                x = step(x)
            return x

        sw.program(chain)(scalar()).block_until_ready()
        play.made(nodes)


def routes(play: Play, size: int) -> None:
    """A mixture of experts: 8 rows of each device go to the devices that data name, and back. Each step is six gangs
    and two exchanges, of no more pieces than there are rows."""
    home = sw.slice(devices=play.devices)
    split = home.sharding("x")
    rows, dest = np.zeros((8 * play.devices, 16), np.float32), np.zeros(8 * play.devices, np.int32)
    gate, expert = (
        sw.synthetic(name, devices=home, duration=DURATION, in_shardings=split, out_shardings=split)
        for name in ("gate", "expert")
    )

    @sw.program
    def layer(x: Any) -> Any:
        y, source = sw.route(gate(x), where, capacity=8)
        return sw.route(expert(y), source, capacity=8)[0]

    with play.session() as session:
        play.watch(session)
        where = sw.put(dest, home, split)
        looped(play, layer, sw.put(rows, home, split), gangs=6)


def transfers(play: Play, hosts: int) -> None:
    """An array that goes to and fro between two slices of this many hosts: a gang and a transfer a call."""
    from jax.sharding import PartitionSpec

    devices, splits = hosts * PER_HOST, PartitionSpec("x")  # type: ignore[no-untyped-call]
    with play.session() as session:
        play.watch(session)
        here, there = (
            play.step(devices, name, in_shardings=splits, out_shardings=splits) for name in ("here", "there")
        )
        looped(play, lambda x: there(here(x)), np.zeros(devices, np.float32), gangs=2)


def pipeline(play: Play, size: int) -> None:
    """A program of 16 stages on slices of their own, forward and backward, in the order of 1F1B."""
    from jax.sharding import PartitionSpec

    devices, splits = play.devices // STAGES, PartitionSpec("x")  # type: ignore[no-untyped-call]
    order = list(schedules.merged(schedules.SCHEDULES["1f1b"](STAGES, MICROBATCHES)))
    with play.session() as session:
        play.watch(session)
        stages = [play.step(devices, f"stage {at}", in_shardings=splits, out_shardings=splits) for at in range(STAGES)]

        def run(x: Any) -> Any:
            kept: dict[tuple[str, int], Any] = {}
            for kind, stage, micro in order:
                key = kind, micro
                kept[key] = stages[stage](
                    kept["forward", micro] if (kind, stage) == ("backward", STAGES - 1) else kept.get(key, x)
                )
            return [kept["backward", micro] for micro in range(MICROBATCHES)]

        program = sw.program(run)
        play.made(0)
        while True:
            sw.block_until_ready(program(np.zeros(devices, np.float32)))
            if play.made(2 * STAGES * MICROBATCHES):
                return


def exchange(play: Play, number: int) -> None:
    """Two halves of the devices send each other a tree of so many alike arrays, 64 MiB for each host in all."""
    nbytes = (64 << 20) * play.hosts // 2
    with play.session() as session:
        play.watch(session)
        homes = [sw.slice(devices=play.devices // 2) for _ in range(2)]
        splits = [home.sharding("x") for home in homes]
        tree = [np.broadcast_to(np.float32(0), nbytes // 4 // number)] * number
        made = [
            sw.synthetic(f"gradients {at}", devices=homes[at], duration=DURATION, out=tree, out_shardings=splits[at])
            for at in range(2)
        ]
        update = [
            sw.synthetic(f"update {at}", devices=homes[at], duration=DURATION, out=scalar(),
                         in_shardings=(splits[at], splits[at]))
            for at in range(2)
        ]  # fmt: skip

        @sw.program
        def step() -> Any:
            both = [one() for one in made]
            return [update[at](both[at], sw.put(both[1 - at], homes[at], splits[at])) for at in range(2)]

        play.made(0)
        while True:
            sw.block_until_ready(step())
            if play.made(4):
                return


# --- faults -----------------------------------------------------------------------------------------------------------


def fault_later(play: Play, size: int) -> None:
    plain(play, faults=[Fault(HOUR, "crash_host", 1)])


def fault_later_read(play: Play, size: int, *, like: str = "scalar") -> None:
    reads(play, size, like=like, faults=[Fault(HOUR, "crash_host", 1)])


def fault_later_array(play: Play, size: int) -> None:
    array_a_call(play, size, faults=[Fault(HOUR, "crash_host", 1)])


def after_fault(play: Play, size: int) -> None:
    """A host crashes in the middle of gangs, comes back, and the program goes on from its first argument."""
    with play.session(faults=[Fault(CRASH, "crash_host", 1), Fault(CRASH + 10 * MS, "return_host", 1)]) as session:
        play.watch(session)
        step = play.step()

        def over(gangs: int) -> bool:
            assert session.now() < 2 * CRASH / 1e9, "the crash has failed no call"
            return False

        with contextlib.suppress(sw.errors.RunError):
            looped(play._replace(made=over), step, scalar())
        looped(play, step, scalar())
