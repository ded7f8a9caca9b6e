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
MANY = 1000  # arrays of a call


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


def reads(program: Program, seed: int) -> Steps:
    """Read each result before the next call: of a small state, and of a large one now and then."""
    states: list[list[Any]] = [[program.values(1 << 12, seed), None], [program.values(1 << 22, seed), None]]

    def begin() -> bool:
        for state in states:
            state[1] = program.put(state[0])
        return True

    def step(state: list[Any]) -> bool:
        state[0], state[1] = stepped(state[0]), program.steps[0](state[1])
        return program.same(state[1], state[0])

    yield "put", begin
    for number in range(10**9):
        yield "read", partial(step, states[0])
        if number % 4 == 3:
            yield "get", partial(step, states[1])


def given(program: Program, seed: int) -> Steps:
    """Give arrays of 4 KiB to 4 MiB with each call, several calls ahead of the results."""

    def calls(count: int, seed: int) -> bool:
        values = [program.values(count, seed + each) for each in range(3)]
        found = [program.steps[0](each) for each in values]
        return all(program.same(one, stepped(other)) for one, other in zip(found, values, strict=True))

    for number in range(10**9):
        yield "given", partial(calls, 1 << (10 + number % 3 * 5), seed + number)


def many(program: Program, seed: int) -> Steps:
    """Calls of a thousand arrays, which return as many."""
    add = sw.jit(lambda tree, more: [x + more for x in tree], devices=program.meshes[0])

    def call(seed: int) -> bool:
        values = [program.values(64, seed + each) for each in range(MANY)]
        found = add(add(values, np.int32(1)), np.int32(2))
        if program.timed:
            found[-1].block_until_ready()
            return True
        return all(np.array_equal(x, value + 3) for x, value in zip(sw.get(found), values, strict=True))

    for number in range(10**9):
        yield "many", partial(call, seed + number)


def saves(program: Program, seed: int) -> Steps:
    """Save large arrays, and read them back."""
    values = program.values(1 << 20, seed)
    held: list[Any] = []

    def begin() -> bool:
        held.append(program.put(values))
        return True

    yield "put", begin
    while True:
        yield "save", lambda: _save(program, held[0], values, f"large-{seed}")


def moves(program: Program, seed: int) -> Steps:
    """Programs of several slices, with moves between them: on the next island, if there is one, or on one device."""
    last = program.meshes[-1]
    one = sw.slice(devices=1, name="one")
    alone = sw.jit(lambda x: (x * 3 + x.sum()) % PRIME, devices=one)

    @sw.program
    def around(x: Any) -> Any:
        y = program.steps[0](x)
        z = alone(sw.put(y, devices=one))
        w = program.steps[-1](sw.put(z, devices=last, sharding=P("data")))
        return program.steps[0](sw.put(w, devices=program.meshes[0], sharding=P("data"))), z

    def move(seed: int) -> bool:
        values = program.values(1 << 18, seed)
        wanted = [values]
        for _ in range(4):
            wanted.append(stepped(wanted[-1]))
        found, between = around(values)
        return program.same(found, wanted[4]) and program.same(between, wanted[2])

    for number in range(10**9):
        yield "move", partial(move, seed + number)


LOOPS: dict[str, Callable[[Program, int], Steps]] = {
    "train": train, "puts": puts, "small": small, "retry": retry, "transfer": transfer,
    "reads": reads, "given": given, "many": many, "saves": saves, "moves": moves,
}  # fmt: skip


class Client(LoopingClient):
    over = ("Unreachable", "SessionClosed", "client-lost")

    def session(self) -> bool:
        chosen = self.chosen
        with sw.connect(
            f"grpc://{chosen.controller}",
            client=chosen.name,
            **({"token_file": chosen.token_file} if chosen.token_file else {}),
            timeout=f"{chosen.patience}s",
            patience=f"{chosen.patience}s",
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
    parser.add_argument("--token-file")
    Client(parser.parse_args()).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
