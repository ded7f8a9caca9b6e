"""A host's real devices, through JAX: an executor's commands, one thread for each kind that blocks.

Nothing here decides: a command comes, an event goes back through `post`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import numpy as np
from jax import export
from jax.sharding import AxisType, Mesh

from . import vocabulary as v

JOIN_TIMEOUT_S = 20


class Devices:
    def __init__(self, post: Callable[[v.Event], None], fail: Callable[[BaseException], None]) -> None:
        self._post, self._fail = post, fail
        self._enqueue = ThreadPoolExecutor(1)  # the one thread from which programs are enqueued
        self._compile = ThreadPoolExecutor(1)  # never in a device's queue
        self._await = ThreadPoolExecutor(1)  # completions, in order
        self._mesh: Mesh | None = None
        self._built: dict[v.Key, tuple[jax.stages.Compiled, jax.sharding.Sharding | None]] = {}
        self._buffers: dict[v.Key, jax.Array] = {}

    def join(self, command: v.JoinWorld, coordination: str) -> None:
        self._checked(self._enqueue.submit(self._join, command, coordination))

    def build(self, command: v.Build) -> None:
        self._compile.submit(self._build, command)

    def launch(self, command: v.Launch) -> None:
        self._enqueue.submit(self._launch, command)

    def drop(self, command: v.Drop) -> None:
        self._checked(self._enqueue.submit(lambda: self._buffers.pop(command.buffer).delete()))

    def local(self, buffer: v.Key) -> bytes:
        """This host's shard, as bytes."""
        return np.asarray(self._buffers[buffer].addressable_data(0)).tobytes()

    def _checked(self, work: Future[None]) -> None:
        def check(done: Future[None]) -> None:
            if error := done.exception():
                self._fail(error)

        work.add_done_callback(check)

    def _join(self, command: v.JoinWorld, coordination: str) -> None:
        # Rank 0 always starts a service too. Ours runs elsewhere: rank 0's gets a port that no one is told.
        jax.distributed.initialize(
            coordination,
            len(command.members),
            command.rank,
            coordinator_bind_address="127.0.0.1:0",
            initialization_timeout=JOIN_TIMEOUT_S,
        )
        devices = sorted(jax.devices(), key=lambda d: (d.process_index, d.id))
        self._mesh = Mesh(np.array(devices), ("x",), axis_types=(AxisType.Auto,))
        self._post(v.WorldJoined(command.epoch))

    def _build(self, command: v.Build) -> None:
        try:
            assert self._mesh, "build before join"
            exported = export.deserialize(bytearray(command.blob))
            shardings = exported.in_shardings_jax(self._mesh)
            inputs = [
                jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s)  # type: ignore[no-untyped-call]
                for a, s in zip(exported.in_avals, shardings, strict=True)
            ]
            compiled = jax.jit(exported.call).lower(*inputs).compile()
            self._built[command.computation] = compiled, shardings[0]
            self._post(v.Built(command.computation, ""))
        except Exception as error:
            self._post(v.Built(command.computation, str(error)))

    def _launch(self, command: v.Launch) -> None:
        try:
            compiled, sharding = self._built[command.computation]
            assert sharding, "an input without a sharding"
            literal = command.argument
            count = math.prod(literal.shape)
            value = np.frombuffer(literal.data, literal.dtype, count).reshape(literal.shape).copy()
            argument = jax.make_array_from_callback(literal.shape, sharding, lambda index: value[index])
            (output,) = jax.tree.leaves(compiled(argument))
            self._buffers[command.output] = output
        except Exception as error:
            self._post(v.Ended(command.order, str(error)))
            return
        self._post(v.Launched(command.order))
        self._await.submit(self._wait, command.order, output)

    def _wait(self, order: int, output: jax.Array) -> None:
        try:
            output.block_until_ready()
            self._post(v.Ended(order, ""))
        except Exception as error:
            self._post(v.Ended(order, str(error)))
