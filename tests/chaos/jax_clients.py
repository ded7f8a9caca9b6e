"""A JAX program that knows nothing of Seaway: `python -m tests.chaos.jax_clients --name jax-0 --journal FILE ...`.

It finds its door in its environment, as any program does. Its calls are those of a training program: steps of a
sharded state that is donated, with a sum over all devices; now and then code that no host has yet, large arrays there
and back, and copies to other devices. Each is checked against numpy. When its session is over, it opens another one as
docs/door.md says. Neighbours: `looping`, which has the loop and the journal; `cluster` starts it and its door.
"""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.errors import JaxRuntimeError
from jax.extend.backend import clear_backends
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .looping import PRIME, LoopingClient, SeenError, Steps, drawn, options, put_sizes, stepped

P: Any = PartitionSpec
UNREACHABLE = "Unreachable"  # the session is over
STATUS = re.compile(r"(?:Unable to initialize backend 'proxy': )?([A-Z_]+): ")
CODE = re.compile(r"\[([a-z]+(?:-[a-z]+)*)\] ")  # of a blame, whose text the door passes on
# with a blame's code
NAMED = {"DATA_LOSS", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED", "INTERNAL"}


class Program:
    def __init__(self, devices: int) -> None:
        found = jax.devices()
        if len(found) != devices:
            raise RuntimeError(f"the session has {len(found)} devices, not {devices}")
        self.devices = found
        self.rows = NamedSharding(Mesh(np.array(found), "data"), P("data"))
        self.turned = NamedSharding(Mesh(np.array(found[::-1]), "data"), P("data"))
        self.step: Any = jax.jit(lambda x: (x * 3 + x.sum()) % PRIME, donate_argnums=0)

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


class JaxClient(LoopingClient):
    over = (UNREACHABLE,)

    def session(self) -> bool:
        clear_backends()  # type: ignore[no-untyped-call]
        jax.clear_caches()  # type: ignore[no-untyped-call]
        self._program = Program(self.chosen.devices)
        self.opened()
        self.work()
        return True

    def steps(self) -> Steps:
        program, seed, sizes = self._program, self.seed, put_sizes()
        state: list[Any] = [drawn(4096, len(program.devices), seed), None]

        def begin() -> bool:
            state[1] = program.put(state[0])
            state[1].block_until_ready()
            return True

        yield "put small", begin
        for number in range(1, 10**9):
            yield "steps", partial(program.steps, state)
            if number % 8 == 3:
                yield "compile", partial(program.compile, seed + number)
            if number % 8 == 5:
                yield "copies", partial(program.copies, seed + number)
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
    JaxClient(options(str(__doc__), ()).parse_args()).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
