"""The compact, location-free IR: one node a *sharded* computation, whatever the number of its shards.

A client sends a `Program` once; it names slices, not devices. Its size is the size of the user's source:
`Arg -> A -> B -> Result` is four things for 2 shards and for 2048. `compile` turns it into a `plan.Plan`.
"""

from __future__ import annotations

from math import prod
from typing import Literal

import msgspec

ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4,
    "int64": 8, "uint64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8,
    "complex64": 8, "complex128": 16, "key<fry>": 8,
}  # fmt: skip


class SliceSpec(msgspec.Struct, frozen=True):
    """What a client asks of the resource manager: virtual devices. A session binds it once, by name."""

    name: str
    devices: int
    mesh: tuple[int, ...] = ()  # () stands for (devices,)
    kind: str = ""  # "" any
    island: str = ""  # "" any
    layout: Literal["packed", "spread"] = "packed"
    exclusive: bool = False

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        return self.mesh or (self.devices,)


class Sharding(msgspec.Struct, frozen=True):
    """Which mesh axes split each dimension of an array (major first); an axis that is not named replicates.

    Mesh (4, 2) and dims ((0,), ()) split dimension 0 in 4; both devices of axis 1 hold the same quarter.
    """

    dims: tuple[tuple[int, ...], ...] = ()

    def parts(self, mesh: tuple[int, ...]) -> tuple[int, ...]:
        """Number of pieces along each array dimension."""
        return tuple(prod(mesh[axis] for axis in axes) for axes in self.dims)


class Value(msgspec.Struct, frozen=True):
    """Type of one logical array on one slice (an index into `Program.slices`)."""

    shape: tuple[int, ...]
    dtype: str
    slice: int = 0
    sharding: Sharding = Sharding()  # dims () stands for fully replicated

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * ITEM_BYTES[self.dtype]


class Computation(msgspec.Struct, frozen=True):
    """A compiled function: costs and shapes known before it runs. `key`: hash of its code and options."""

    name: str
    key: str
    cost: int  # expected nanoseconds on each device
    temp: int = 0  # bytes of scratch on each device while it runs
    collective: bool = True  # its devices wait for each other
    code: str = ""  # content hash under which hosts find the code; "" for synthetic


class Arg(msgspec.Struct, frozen=True, tag="arg"):
    index: int


class Out(msgspec.Struct, frozen=True, tag="out"):
    """Output `output` of node `node` (an index into `Program.nodes`)."""

    node: int
    output: int = 0


Ref = Arg | Out


class Node(msgspec.Struct, frozen=True, tag="node"):
    """One execution of one computation on one slice. Nodes stand in the order in which they were traced.

    irregular: output sizes are known only when it has run; `outputs` then declare the bound (largest shapes).
    donate: indices of inputs whose memory it takes over.
    """

    name: str
    computation: int  # index into Program.computations
    slice: int
    inputs: tuple[Ref, ...]
    expects: tuple[
        Value, ...
    ]  # what the computation wants of each input: its shape, and its sharding on its slice
    outputs: tuple[Value, ...]
    donate: tuple[int, ...] = ()
    irregular: bool = False


class Exchange(msgspec.Struct, frozen=True, tag="exchange"):
    """A sparse, data-chosen exchange: every shard of the input sends rows to the few shards its data name.

    Nobody knows who sends to whom until it runs; progress tracking says when all that will come has come.
    `output` declares the bound.
    """

    name: str
    input: Ref
    output: Value


class Program(msgspec.Struct, frozen=True, cache_hash=True):
    name: str
    slices: tuple[SliceSpec, ...]
    computations: tuple[Computation, ...]
    args: tuple[Value, ...]
    nodes: tuple[Node | Exchange, ...]
    results: tuple[Ref, ...]
    donate_args: tuple[int, ...] = ()  # arguments the caller gives up
