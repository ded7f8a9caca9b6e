"""A JAX program that knows nothing of Seaway: `python -m tests.chaos.jax_clients --name jax-0 --journal FILE ...`.

It finds its door in its environment, as any program does. Its calls are those of a training program: steps of a
sharded state that is donated, with a sum over all devices; now and then code that no host has yet, large arrays there
and back, copies to other devices, and what programs for Cloud Pathways do: resharding by one request, MPMD programs,
arrays that hosts save and restore. With several islands it computes on each, moves arrays between them, and has a
stage of the MPMD program on either. Each call is checked against numpy. When its session is over, it opens another one
as docs/door.md says. Neighbours: `looping`, which has the loop and the journal; `cluster` starts it and its door.
"""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.errors import JaxRuntimeError
from jax.extend.backend import clear_backends
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from . import staged_step
from .looping import PRIME, LoopingClient, SeenError, Steps, drawn, options, put_sizes, stepped

P: Any = PartitionSpec
helper: Any = importlib.import_module("orbax.checkpoint._src.serialization.cloud_pathways_helper")
PATIENCE = timedelta(minutes=10)
UNREACHABLE = "Unreachable"  # the session is over
STATUS = re.compile(r"(?:Unable to initialize backend 'proxy': )?([A-Z_]+): ")
CODE = re.compile(r"\[([a-z]+(?:-[a-z]+)*)\] ")  # of a blame, whose text the door passes on
# with a blame's code
NAMED = {"DATA_LOSS", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED", "INTERNAL"}


class Program:
    def __init__(self, devices: int, islands: int, folder: Path) -> None:
        found = jax.devices()
        if len(found) != devices * islands:
            raise RuntimeError(f"the session has {len(found)} devices, not {devices * islands}")
        self.folder = folder
        self.slices = [found[at : at + devices] for at in range(0, len(found), devices)]
        self.devices = self.slices[0]
        self.rows, *self.others = (rows(each) for each in self.slices)
        self.turned = rows(self.devices[::-1])
        self.step: Any = jax.jit(lambda x: (x * 3 + x.sum()) % PRIME, donate_argnums=0)
        halves = found if islands > 1 else self.devices
        self.halves = [rows(some) for some in (halves[: len(halves) // 2], halves[len(halves) // 2 :])]
        self.stages: Any = None

    def put(self, values: Any) -> Any:
        return jax.device_put(values, self.rows)

    def steps(self, state: list[Any]) -> bool:
        for _ in range(4):
            state[0], state[1] = stepped(state[0]), self.step(state[1])
        return np.array_equal(np.asarray(state[1]), state[0])

    def compile(self, seed: int) -> bool:
        """Code that no host has yet."""
        values, factor = drawn(1024, len(self.devices), seed), seed % 1000
        compute = jax.jit(lambda x: (x + factor + x.sum()) % PRIME)
        found = np.asarray(compute(self.put(values)))
        return np.array_equal(found, (values + factor + values.sum(dtype=np.int32)) % PRIME)

    def there_and_back(self, count: int, seed: int) -> bool:
        values = drawn(count, len(self.devices), seed)
        return np.array_equal(np.asarray(self.put(values)), values)

    def copies(self, seed: int) -> bool:
        """From device to device, from host to host."""
        values = drawn(1 << 14, len(self.devices), seed)
        turned = jax.device_put(self.put(values), self.turned)
        last = jax.device_put(jax.device_put(values, self.devices[0]), self.devices[-1])
        return np.array_equal(np.asarray(turned), values) and np.array_equal(np.asarray(last), values)

    def reshards(self, seed: int) -> bool:
        """Several at once: rows here become columns there."""
        rows, columns = 4 * len(self.devices), 16 * len(self.devices)
        values = [drawn(rows * columns, 1, seed + at).reshape(rows, columns) for at in range(8)]
        place = NamedSharding(self.turned.mesh, P(None, "data"))
        pathways: Any = importlib.import_module("jaxlib._pathways")
        found = pathways._transfer_to_shardings(tuple(map(self.put, values)), (place,) * len(values), False)
        return all(np.array_equal(np.asarray(one), other) for one, other in zip(found, values, strict=True))

    def runs_stages(self, seed: int) -> bool:
        """An MPMD program: half of the devices, and then the other half."""
        if self.stages is None:
            devices = [*self.halves[0].mesh.devices.flat, *self.halves[1].mesh.devices.flat]
            self.stages = staged_step.compiled_stages(jax, devices, self.halves[1])
        values = (
            np.random.default_rng(seed).standard_normal((staged_step.BATCHES, *staged_step.SHAPE)).astype(np.float32)
        )
        found = self.stages.execute([jax.device_put(each, self.halves[0]) for each in values])
        return np.allclose([np.asarray(each) for each in found], np.tanh(np.tanh(values)), atol=1e-5)

    def saves(self, seed: int) -> bool:
        """Hosts write an array, and read it for other devices."""
        values, folder = drawn(1 << 14, len(self.devices), seed), self.folder / f"orbax-{seed}"
        there = [str(folder), ["x"]]
        helper.write_arrays(*there, [self.put(values)], PATIENCE).result()
        devices = np.array(self.devices[::-1])
        (found,), read = helper.read_arrays(*there, [values.dtype], [values.shape], [self.turned], devices, PATIENCE)
        read.result()
        shutil.rmtree(folder)
        return np.array_equal(np.asarray(found), values)

    def goes_round(self, seed: int) -> bool:
        """From island to island, with a step on each."""
        values = drawn(1 << 12, len(self.devices), seed)
        found = self.step(self.put(values))
        for place in (*self.others, self.rows):
            values, found = stepped(values), self.step(jax.device_put(found, place))
        return np.array_equal(np.asarray(found), stepped(values))


def rows(devices: Sequence[Any]) -> NamedSharding:
    return NamedSharding(Mesh(np.array(devices), "data"), P("data"))


class JaxClient(LoopingClient):
    over = (UNREACHABLE,)

    def session(self) -> bool:
        clear_backends()  # type: ignore[no-untyped-call]
        jax.clear_caches()  # type: ignore[no-untyped-call]
        self._program = Program(self.chosen.devices, self.chosen.islands, Path(self.chosen.folder))
        self.opened()
        self.work()
        return True

    def steps(self) -> Steps:
        program, seed, sizes = self._program, self.seed, put_sizes()
        state: list[Any] = [drawn(4096, len(program.devices), seed), None]

        def begin() -> bool:
            state[1] = program.put(state[0])
            state[1].block_until_ready()
            # JAX's client keeps as many threads as these need, so they count as what it had before any fault
            return program.reshards(seed) and program.runs_stages(seed)

        yield "put small", begin
        for number in range(1, 10**9):
            yield "steps", partial(program.steps, state)
            if number % 8 == 3:
                yield "compile", partial(program.compile, seed + number)
            if number % 8 == 5:
                yield "copies", partial(program.copies, seed + number)
            if number % 8 == 7:
                yield "reshard", partial(program.reshards, seed + number)
            if number % 8 == 1:
                yield "stages", partial(program.runs_stages, seed + number)
            if number % 8 == 6:
                yield "save", partial(program.saves, seed + number)
            if program.others:
                yield "move", partial(program.goes_round, seed + number)
            if number % 4 == 2:
                what, size = next(sizes)
                yield what, partial(program.there_and_back, size // 4, seed + number)

    def named(self, error: Exception) -> SeenError:
        return named(error)

    def flush(self) -> None:
        """JAX's client does that by itself, at once."""


def named(error: Exception) -> SeenError:
    """A door's errors have a status that docs/door.md names, and the cause: a blame's code, or that the door or the
    controller is gone."""
    text, kind = str(error), type(error).__name__
    status, code = STATUS.match(text), CODE.search(text)
    if status is not None and status[1] == "UNAVAILABLE":
        return SeenError(UNREACHABLE, "", True)
    if status is not None and code is not None and status[1] in NAMED:
        return SeenError(kind, code[1], isinstance(error, JaxRuntimeError))
    return SeenError(kind, "", False)


def main() -> int:
    parser = options(str(__doc__), ("folder",))
    parser.add_argument("--islands", type=int, required=True)
    JaxClient(parser.parse_args()).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
