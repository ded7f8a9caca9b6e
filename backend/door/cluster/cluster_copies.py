"""Copies of arrays to other devices of the session, or beside themselves.

Core moves an array when a program wants it elsewhere. So a copy is a program whose computation returns what it gets,
shard for shard: its StableHLO knows one shard, of which each device has a replica. Neighbours: `cluster_programs`,
`cluster_devices`. This module imports JAX's dialects.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

from backend.contents import StableHLOCode
from core.client import Blocked, Client

from ..protocol import MLIR, CompileOptionsProto
from ..session import ArrayType, StatusError, unsupported
from .cluster_executables import ClusterPrograms
from .cluster_programs import Places, copy_program

TEXTS = {kind: text for text, kind in MLIR.items()}
Copy = tuple[ArrayType, ArrayType]
MOST = 1024  # programs of copies that are kept


class ClusterCopies:
    """`came()` is called when a program's code has got where hosts find it."""

    def __init__(self, places: Places, programs: ClusterPrograms, came: Any) -> None:
        self._places, self._programs, self._came = places, programs, came
        self._codes: dict[tuple[int, tuple[int, ...], int], str | StatusError | None] = {}  # None: on its way
        self._registered: dict[Copy, int] = {}

    def program(self, source: ArrayType, target: ArrayType) -> str | StatusError | None:
        """The code of such copies; None: not yet."""
        key = target.kind, target.shard_shape, len(target.sharding.devices)
        if key in self._codes:
            return self._codes[key]
        self._codes[key] = None

        def come(found: str | StatusError) -> None:
            self._codes[key] = found
            self._came()

        try:
            code = copy_code(*key)
        except StatusError as fault:
            self._codes[key] = fault
        else:
            self._programs.begin(self._programs.keep(code), come, come)
        return self._codes[key]

    def registered(self, source: ArrayType, target: ArrayType, client: Client, now: int) -> int:
        """The program by its name at core's client; 0: there is no room for it now."""
        code = self._codes[target.kind, target.shard_shape, len(target.sharding.devices)]
        assert isinstance(code, str)
        known = self._registered.get((source, target))
        if known is None:
            if len(self._registered) >= MOST:
                client.unregister(self._registered.pop(next(iter(self._registered))), now)
            found = client.register(copy_program(self._places, source, target, code), now)
            if isinstance(found, Blocked):
                return 0
            known = self._registered[source, target] = found
        return known


@lru_cache(maxsize=1024)
def copy_code(kind: int, shape: tuple[int, ...], count: int) -> StableHLOCode:
    """Returns its argument, of this shape on each of so many devices."""
    if kind not in TEXTS:
        raise unsupported("arrays of this type cannot be copied")
    shard = f"tensor<{''.join(f'{dim}x' for dim in shape)}{TEXTS[kind]}>"
    text = (
        f"module @copy attributes {{mhlo.num_partitions = 1 : i32, mhlo.num_replicas = {count} : i32}} {{\n"
        f"  func.func public @main(%arg0: {shard}) -> {shard} {{ return %arg0 : {shard} }}\n}}"
    )
    stablehlo: Any = importlib.import_module("jax.extend.mlir.dialects.stablehlo")
    mlir: Any = importlib.import_module("jax._src.interpreters.mlir")
    ir: Any = importlib.import_module("jax._src.lib.mlir").ir
    with mlir.make_ir_context():
        artifact = stablehlo.serialize_portable_artifact(ir.Module.parse(text), stablehlo.get_minimum_version())
    options = CompileOptionsProto()
    build = options.executable_build_options
    build.num_replicas, build.num_partitions = count, 1
    build.device_ordinal = -1
    assignment = build.device_assignment
    assignment.replica_count, assignment.computation_count = count, 1
    assignment.computation_devices.add(replica_device_ids=range(count))
    return StableHLOCode(bytes(artifact), bytes(options.SerializeToString()))
