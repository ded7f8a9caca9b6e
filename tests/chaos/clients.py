"""Seaway's own clients: `python -m tests.chaos.clients --role train --controller ... --journal FILE`, until ended.

Each call is checked against numpy. Neighbours: `looping`, which has the loop and the journal; `cluster` starts them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import PartitionSpec

import seaway as sw

from .looping import PRIME, LoopingClient, SeenError, Steps, drawn, options, put_sizes, stepped

P: Any = PartitionSpec


class Program:
    """The computations and programs that calls use. `devices` of each island; `timed`: they compute nothing, so nothing
    can be compared."""

    def __init__(self, islands: list[str], devices: int, folder: Path, timed: bool) -> None:
        self.folder, self.devices, self.timed = folder, devices, timed
        self.meshes = [sw.slice(mesh={"data": devices}, island=island, name=island) for island in islands]
        self.steps = [self.computation(mesh, lambda x: (x * 3 + x.sum()) % PRIME) for mesh in self.meshes]

    @staticmethod
    def computation(mesh: Any, fn: Any) -> Any:
        return sw.jit(fn, devices=mesh, in_shardings=P("data"), out_shardings=P("data"))

    def put(self, values: Any, at: int = 0) -> Any:
        return sw.put(values, devices=self.meshes[at], sharding=P("data"))

    def same(self, array: Any, wanted: Any) -> bool:
        if self.timed:
            array.block_until_ready()
            return True
        return np.array_equal(np.asarray(array), wanted)

    def values(self, count: int, seed: int) -> Any:
        return drawn(count, self.devices, seed)


def train(program: Program, seed: int) -> Steps:
    """A state in shards, stepped by a sum over all devices, saved now and then. New code is compiled now and then."""
    state: list[Any] = [program.values(4096, seed), None]

    def begin() -> bool:
        state[1] = program.put(state[0])
        state[1].block_until_ready()
        return True

    def steps() -> bool:
        for _ in range(4):
            state[0], state[1] = stepped(state[0]), program.steps[0](state[1])
        return program.same(state[1], state[0])

    yield "put small", begin
    for number in range(1, 10**9):
        yield "steps", steps
        if number % 8 == 3:
            yield "compile", partial(_compile, program, seed + number)
        if number % 12 == 7 and not program.timed:
            yield "save", lambda: _save(program, state[1], state[0], f"{seed}")


def _compile(program: Program, seed: int) -> bool:
    """Compile code that no host has yet."""
    values, factor = program.values(1024, seed), seed % 1000
    compute = program.computation(program.meshes[0], lambda x: (x + factor + x.sum()) % PRIME)
    return program.same(compute(program.put(values)), (values + factor + values.sum(dtype=np.int32)) % PRIME)


def _save(program: Program, array: Any, values: Any, name: str) -> bool:
    """Save the state, and read it back."""
    path = program.folder / f"saved-{name}-{os.getpid()}"
    saved = sw.checkpoint.save(path, {"x": array}, step=int(time.monotonic() * 1000), keep=1)
    saved.block_until_ready()
    return program.same(sw.checkpoint.restore(path, {"x": array})["x"], values)


def puts(program: Program, seed: int) -> Steps:
    """Put arrays and get them back, of 32 KiB to 64 MiB."""
    for number, (what, size) in enumerate(put_sizes()):
        yield what, partial(_put, program, size // 4, seed + number)


def _put(program: Program, count: int, seed: int) -> bool:
    values = program.values(count, seed)
    return program.same(program.put(values), values)


def small(program: Program, seed: int) -> Steps:
    """Puts that nobody reads, one right after another: a fault at any time meets one of their many phases."""
    values = program.values(8192, seed)

    def put() -> bool:
        program.put(values).block_until_ready()
        return True

    for _ in range(10**9):
        yield "put small", put


def retry(program: Program, seed: int) -> Steps:
    """A chain of steps that is submitted again. It may still fail."""

    @sw.program(retries=3)
    def chain(x: Any) -> Any:
        return program.steps[0](program.steps[0](program.steps[0](x)))

    def checked(seed: int) -> bool:
        values = program.values(4096, seed)
        return program.same(chain(values), stepped(stepped(stepped(values))))

    for number in range(10**9):
        yield "chain", partial(checked, seed + number)


def transfer(program: Program, seed: int) -> Steps:
    """Move arrays from island to island and back."""

    def there_and_back(seed: int) -> bool:
        wanted = program.values(1 << 16, seed)
        found = program.put(wanted)
        for at in (1, 0, 1):
            found = program.steps[at](program.put(found, at))
            wanted = stepped(wanted)
        return program.same(found, wanted)

    for number in range(10**9):
        yield "transfer", partial(there_and_back, seed + number)


LOOPS: dict[str, Callable[[Program, int], Steps]] = {
    "train": train, "puts": puts, "small": small, "retry": retry, "transfer": transfer
}  # fmt: skip


class Client(LoopingClient):
    over = ("Unreachable", "SessionClosed", "client-lost")

    def session(self) -> bool:
        chosen = self.chosen
        with sw.connect(
            f"grpc://{chosen.controller}",
            client=chosen.name,
            timeout=chosen.patience,
            patience=chosen.patience,
        ) as session:
            self._session = session
            self.opened()
            self.work()
        return True

    def flush(self) -> None:
        self._session.main.flush()

    def steps(self) -> Steps:
        chosen = self.chosen
        program = Program(chosen.islands.split(","), chosen.devices, Path(chosen.folder), chosen.timed)
        return LOOPS[chosen.role](program, self.seed)

    def named(self, error: Exception) -> SeenError:
        ours = isinstance(error, sw.errors.SeawayError)
        return SeenError(type(error).__name__, str(getattr(error, "code", "")), ours)


def main() -> int:
    parser = options(str(__doc__), ("role", "controller", "islands", "folder"))
    parser.add_argument("--patience", type=float, default=60.0)
    parser.add_argument("--timed", action="store_true")
    Client(parser.parse_args()).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
