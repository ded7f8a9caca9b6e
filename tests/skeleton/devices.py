"""A host's real devices, through JAX: what an executor commands, one thread for each kind that blocks.

Nothing here decides: a command comes, an event goes back through `post`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jax import export
from jax.extend.backend import clear_backends
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from core import effects as e
from core import spans
from core.dataplane import Chunk
from core.messages import Blame
from core.plan import Gang, Layout, Plan
from core.topology import Cluster

from .work import piece_start

JOIN_TIMEOUT_S = 20
Code = tuple[int, int]  # plan, code


class Devices:
    def __init__(
        self,
        host: int,
        cluster: Cluster,
        post: Callable[[e.Effect], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._host, self._cluster, self._post, self._fail = host, cluster, post, fail
        self._enqueue = ThreadPoolExecutor(1)  # the one thread from which programs are enqueued
        self._compile = ThreadPoolExecutor(1)  # never in a device's queue
        self._await = ThreadPoolExecutor(1)  # completions, in order
        self._devices: dict[int, jax.Device] = {}  # by their numbers in the cluster
        self._compiled: dict[Code, jax.stages.Compiled] = {}
        self._buffers: dict[int, tuple[Layout, jax.Array]] = {}
        self._failed = -1  # a launch that failed: what comes behind it is held until it is abandoned
        self._held: list[tuple[e.Launch, Plan]] = []
        jax.config.update("jax_enable_recoverability", True)  # type: ignore[no-untyped-call]

    # --- commands; each returns at once ---------------------------------------------------------------------

    def reform(self, command: e.Reform, coordination: str) -> None:
        self._do(self._enqueue, self._reform, command, coordination)

    def compile(self, command: e.CompileCode, plan: Plan, blob: bytes) -> None:
        self._do(self._compile, self._build, command, plan, blob)

    def launch(self, command: e.Launch, plan: Plan) -> None:
        self._do(self._enqueue, self._launch, command, plan)

    def make(self, command: e.MakeBuffer) -> None:
        self._do(self._enqueue, self._make, command)

    def free(self, buffer: int) -> None:
        self._do(self._enqueue, self._free, buffer)

    def abandon(self, seqs: tuple[int, ...]) -> None:
        """A collective whose member has died ends by itself, with an error: only the queue is to be cleared."""
        self._do(self._enqueue, self._abandon, seqs)

    def read(self, buffer: int, chunk: Chunk) -> bytes:
        """Of a buffer whose contents are there."""
        layout, array = self._buffers[buffer]
        start, _ = piece_start(layout, chunk.piece)
        for shard in array.addressable_shards:
            if tuple(each.start or 0 for each in shard.index) == start:
                return np.asarray(shard.data).tobytes()[chunk.offset : chunk.offset + chunk.nbytes]
        raise LookupError(f"{chunk} of buffer {buffer}")

    def _do(self, pool: ThreadPoolExecutor, work: Callable[..., None], *arguments: Any) -> None:
        def check(done: Future[None]) -> None:
            if error := done.exception():
                self._fail(error)

        pool.submit(work, *arguments).add_done_callback(check)

    # --- in their threads -----------------------------------------------------------------------------------

    def _reform(self, command: e.Reform, coordination: str) -> None:
        if self._devices:
            jax.distributed.shutdown()  # type: ignore[no-untyped-call]
            jax.clear_caches()  # type: ignore[no-untyped-call]
            clear_backends()  # type: ignore[no-untyped-call]
        members = list(spans.items(command.members))
        # Rank 0 always starts a service too. Ours runs elsewhere: rank 0's gets a port that no one is told.
        jax.distributed.initialize(
            coordination,
            len(members),
            members.index(self._host),
            coordinator_bind_address="127.0.0.1:0",
            initialization_timeout=JOIN_TIMEOUT_S,
        )
        found = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
        numbers = [number for host in members for number in self._cluster.devices_of(host)]
        self._devices = dict(zip(numbers, found, strict=True))
        self._post(e.Reformed(command.epoch))

    def _sharding(self, layout: Layout) -> NamedSharding:
        devices = np.array([self._devices[number] for number in layout.place.devices()])
        names = tuple(f"axis{axis}" for axis in range(len(layout.mesh)))
        mesh = Mesh(devices.reshape(layout.mesh), names, axis_types=(AxisType.Auto,) * len(names))
        dims = (tuple(names[axis] for axis in axes) for axes in layout.sharding.dims)
        return NamedSharding(mesh, PartitionSpec(*dims))  # type: ignore[no-untyped-call]

    def _build(self, command: e.CompileCode, plan: Plan, blob: bytes) -> None:
        blame = None
        try:
            gang = plan.steps[plan.codes[command.code].step]
            assert isinstance(gang, Gang)
            inputs = [
                jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
                    layout.shape, layout.dtype, sharding=self._sharding(layout)
                )
                for layout in (plan.slots[slot].layout for slot in gang.inputs)
            ]
            exported = export.deserialize(bytearray(blob))
            self._compiled[command.plan, command.code] = jax.jit(exported.call).lower(*inputs).compile()
        except Exception as error:
            blame = Blame("user", str(error))
        self._post(e.CodeReady(command.plan, command.code, blame))

    def _make(self, command: e.MakeBuffer) -> None:
        layout, literal = command.layout, command.literal
        assert literal is not None, "what is received is not made here yet"
        count = math.prod(layout.shape)
        value = np.frombuffer(literal, layout.dtype, count).reshape(layout.shape).copy()
        array = jax.make_array_from_callback(layout.shape, self._sharding(layout), lambda index: value[index])
        self._buffers[command.buffer] = layout, array

    def _free(self, buffer: int) -> None:
        if buffer in self._buffers:  # else it was to come of a launch that failed
            self._buffers.pop(buffer)[1].delete()

    def _abandon(self, seqs: tuple[int, ...]) -> None:
        if self._failed in seqs:
            self._failed = -1
        held, self._held = self._held, []
        for command, plan in held:
            if command.seq not in seqs:
                self._launch(command, plan)

    def _launch(self, command: e.Launch, plan: Plan) -> None:
        if self._failed >= 0:
            self._held.append((command, plan))
            return
        gang = plan.steps[command.step]
        assert isinstance(gang, Gang)
        try:
            inputs = [self._buffers[buffer][1] for buffer in command.inputs]
            outputs = jax.tree.leaves(self._compiled[plan.id, gang.computation](*inputs))
        except Exception as error:
            self._failed = command.seq
            self._post(e.LaunchFailed(command.seq, Blame("user", str(error))))
            return
        for buffer, slot, output in zip(command.outputs, gang.outputs, outputs, strict=True):
            self._buffers[buffer] = plan.slots[slot].layout, output
        self._do(self._await, self._wait, command.seq, outputs)

    def _wait(self, seq: int, outputs: list[jax.Array]) -> None:
        blame = None
        try:
            jax.block_until_ready(outputs)  # type: ignore[no-untyped-call]
        except Exception as error:
            blame = Blame("user", str(error))
        self._post(e.Finished(seq, blame))
