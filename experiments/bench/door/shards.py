"""Counts what a JAX program asks a cluster for that makes arrays of shards, and computes with shards.

`python -m experiments.bench shards [--times 5]`. The program runs through a door to two hosts of four CPU devices. The
controller records its calls: a call of the function `mark` stands between two operations, so each operation's runs,
views, gets and puts are known. Beside them are the milliseconds until its results are ready (a median), with 2 KiB and
with 256 KiB a shard, and, to compare, those of a step on all devices.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from backend.server import eventlogs
from core.protocol import Calls, Get, MessageReceived, Put, Register, Submit, View

from ..frame import options, processes
from ..frame.door_server import on_cluster
from ..frame.table import Table

SIZES = {"2 KiB a shard": 512, "256 KiB a shard": 65_536}  # numbers of a shard
BOUND = 600.0  # seconds for the program
MARK = "mark"  # the name of a function
COUNTED: dict[type, str] = {Submit: "runs", View: "views", Get: "gets", Put: "puts"}


def program(times: int) -> list[tuple[str, str, float]]:
    """Each operation in its turn: its name, with which shards, and its milliseconds. Nothing here is ours."""
    import jax
    import numpy as np

    devices = jax.devices()
    rows: Any = jax.sharding.NamedSharding(
        jax.sharding.Mesh(np.array(devices), "x"), jax.sharding.PartitionSpec("x")
    )
    step, alone = jax.jit(lambda x: x * 2 + 1), jax.jit(lambda x: x + 1)

    one = jax.device_put(np.float32(1), devices[0])

    @jax.jit
    def mark(x: Any) -> Any:
        return x + 1

    def parts(x: Any) -> list[Any]:
        return [part.data for part in x.addressable_shards]

    def made(arrays: Any) -> Any:
        return jax.make_array_from_single_device_arrays((len(devices) * len(arrays[0]),), rows, arrays)

    operations: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
        "a step, to compare": (lambda x: x, step),
        "an array is made of eight": (lambda x: [alone(part) for part in parts(x)], made),
        "each shard is read": (lambda x: x, lambda x: [np.asarray(part) for part in parts(x)]),
        "each shard is computed with": (lambda x: x, lambda x: [alone(part) for part in parts(x)]),
    }
    found = []
    for size, numbers in SIZES.items():
        x = jax.device_put(np.ones(len(devices) * numbers, np.float32), rows)
        for name, (prepared, work) in operations.items():
            for _ in range(times + 1):
                x = step(x)
                given = jax.block_until_ready(prepared(x))
                mark(one).block_until_ready()
                begun = time.perf_counter()
                jax.block_until_ready(work(given))
                took = 1e3 * (time.perf_counter() - begun)
                mark(one).block_until_ready()
                found.append((name, size, took))
    return found


def calls_of(log: Path) -> Iterator[Any]:
    """All calls of clients, and other messages, in their order."""
    for entry in eventlogs.read(log, partial=True).entries:
        if isinstance(entry.event, MessageReceived):
            message = entry.event.message
            yield from message.calls if isinstance(message, Calls) else (message,)


def operations_in(calls: Iterator[Any]) -> list[Counter[str]]:
    """What is asked for in each operation: between the first mark and the second, the third and the fourth, ..."""
    marks, found, open_ = set[int](), list[Counter[str]](), False
    for call in calls:
        if isinstance(call, Register) and call.ir.nodes[0].name == MARK:
            marks.add(call.program)
        elif isinstance(call, Submit) and call.program in marks:
            open_ = not open_
            if open_:
                found.append(Counter())
        elif open_ and type(call) in COUNTED:
            found[-1][COUNTED[type(call)]] += 1
    return found


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("shards", __doc__)
    parser.number("--times", 5, "each operation is repeated, after a first time")
    chosen = parser.read(arguments)
    with TemporaryDirectory() as place:
        log = Path(place) / "log"
        with on_cluster(controller=["--record", str(log)]) as served:
            env = served.door.env | {"TF_CPP_MIN_LOG_LEVEL": "3"}
            said = processes.answer(program, chosen.times, env=env, bound=BOUND)
        show(said, operations_in(calls_of(log)))


def show(said: Sequence[tuple[str, str, float]], asked: Sequence[Counter[str]]) -> None:
    if len(said) != len(asked):
        raise RuntimeError(f"{len(said)} operations were made, but the controller's log has {len(asked)}")
    table = Table("on all devices <30", "shards <18", "ms >8.1f", "  asked for <30").begin()
    rows: dict[tuple[str, str], list[tuple[float, Counter[str]]]] = {}
    for (name, size, took), counts in zip(said, asked, strict=True):
        rows.setdefault((name, size), []).append((took, counts))
    for (name, size), found in rows.items():
        _, *warm = found
        each = ", ".join(f"{count} {what}" for what, count in sorted(warm[-1][1].items())) or "nothing"
        table.row(name, size, median(took for took, _ in warm), f"  {each}")
