"""The program as a client sends it: a compact IR with one node for each *sharded* computation.

A client sends a `Program` once. It names slices, not devices, and its size does not depend on the number of
shards: `Arg -> A -> B -> Result` is four entries for 2 shards and for 2048. `compile` turns it into a `plan.Plan`.
"""

from __future__ import annotations

from math import prod
from typing import Literal

import msgspec

from .errors import ProgramError

ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4,
    "int64": 8, "uint64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8,
    "complex64": 8, "complex128": 16, "key<fry>": 8,
    "float8_e3m4": 1, "float8_e4m3": 1, "float8_e4m3b11fnuz": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    # less than a byte: each element takes one, as in numpy
    "int1": 1, "uint1": 1, "int2": 1, "uint2": 1, "int4": 1, "uint4": 1,
    "float4_e2m1fn": 1, "float6_e2m3fn": 1, "float6_e3m2fn": 1,
}  # fmt: skip


class SliceSpec(msgspec.Struct, frozen=True):
    """A client's request for virtual devices. A session binds each slice once, by its name.

    With `of` it is a *sub-slice*: the devices `picks` of another slice of this session, in this order. It takes no
    devices of its own: it lies where they lie, moves with them, and is released with them. The other slice is listed
    before it in the same program, or was bound in the session before.
    """

    name: str
    devices: int
    mesh: tuple[int, ...] = ()  # () means (devices,)
    kind: str = ""  # "" means any
    island: str = ""  # "" means any
    layout: Literal["packed", "spread"] = "packed"
    exclusive: bool = False
    of: str = ""  # the name of the slice that it is a part of
    picks: tuple[int, ...] = ()  # its devices, as numbers of virtual devices of that slice
    absent: Literal["wait", "fail"] = "wait"  # what becomes of calls that need it while too few hosts are up
    # For policies, if its client says so: for how many nanoseconds it needs devices, by kind ("": any other), ...
    expected: tuple[tuple[str, int], ...] | msgspec.UnsetType = msgspec.UNSET
    due: int | msgspec.UnsetType = msgspec.UNSET  # ... and after which that should be over, since it was asked for

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        return self.mesh or (self.devices,)


class Sharding(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """The mesh axes that split each dimension of an array (major first). All other axes replicate.

    With mesh (4, 2), dims ((0,), ()) split dimension 0 into 4 parts, and both devices along axis 1 hold the
    same part.
    """

    dims: tuple[tuple[int, ...], ...] = ()
    mesh: tuple[int, ...] = ()  # the mesh that the axes are of; () stands for that of the array's slice

    def parts(self, mesh: tuple[int, ...]) -> tuple[int, ...]:
        """Return the number of parts along each dimension of the array."""
        return tuple(prod(mesh[axis] for axis in axes) for axes in self.dims)


class Value(msgspec.Struct, frozen=True):
    """The type of one logical array, with its slice and its sharding there."""

    shape: tuple[int, ...]
    dtype: str
    slice: int = 0  # index into Program.slices
    sharding: Sharding = Sharding()  # dims () means fully replicated

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * ITEM_BYTES[self.dtype]


class Computation(msgspec.Struct, frozen=True):
    """A compiled function. Its cost and its shapes are known before it runs."""

    name: str
    key: str  # hash of its code and options
    cost: int  # expected nanoseconds on each device, for all of its steps
    temp: int = 0  # bytes of scratch memory on each device while it runs
    collective: bool = True  # whether its devices wait for each other
    code: str = ""  # content hash under which hosts find the code; "" for a synthetic computation
    steps: int = 1  # equal steps that it consists of: it may be told to end with any of them
    # where the cost depends on the devices: it by kind of island, and no other kind will do
    costs: tuple[tuple[str, int], ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def by_kind(self) -> dict[str, int]:
        return {} if self.costs is msgspec.UNSET else dict(self.costs)

    def cost_on(self, kind: str) -> int:
        """Raises ProgramError if it has no cost on such devices."""
        if self.by_kind and kind not in self.by_kind:
            raise ProgramError(
                f"computation {self.name!r} has a time on {', '.join(self.by_kind)}, and its slice is on an island of "
                f"kind {kind!r}: state a time for that, or give the slice a kind="
            )
        return self.by_kind.get(kind, self.cost)


class Arg(msgspec.Struct, frozen=True, tag="arg"):
    index: int


class Out(msgspec.Struct, frozen=True, tag="out"):
    """Output `output` of node `node` (an index into `Program.nodes`)."""

    node: int
    output: int = 0


Ref = Arg | Out


class Node(msgspec.Struct, frozen=True, tag="node"):
    """One execution of one computation on one slice. A program lists its nodes in the order they were traced."""

    name: str
    computation: int  # index into Program.computations
    slice: int
    inputs: tuple[Ref, ...]
    expects: tuple[Value, ...]  # the shape and sharding that the computation needs of each input
    outputs: tuple[Value, ...]  # of an irregular node: the largest shapes that it may produce
    donate: tuple[int, ...] = ()  # indices of the inputs whose memory it takes over
    irregular: bool = False  # whether output sizes are known only after it has run


class Exchange(msgspec.Struct, frozen=True, tag="exchange"):
    """A sparse exchange: each shard of the input sends rows to a few shards of the output, chosen by its data.

    Which shard sends to which is known only when it runs. Progress tracking tells a receiver when it has all rows.
    """

    name: str
    input: Ref
    output: Value  # the largest shape that it may produce

    @property
    def inputs(self) -> tuple[Ref, ...]:
        return (self.input,)

    @property
    def outputs(self) -> tuple[Value, ...]:
        return (self.output,)


class Reshard(msgspec.Struct, frozen=True, tag="reshard"):
    """The same arrays on another slice, or in another sharding: output k is input k. They go as one. Nothing is
    computed."""

    name: str
    inputs: tuple[Ref, ...]
    outputs: tuple[Value, ...]  # all on one slice


class Program(msgspec.Struct, frozen=True, cache_hash=True):
    name: str
    slices: tuple[SliceSpec, ...]
    computations: tuple[Computation, ...]
    args: tuple[Value, ...]
    nodes: tuple[Node | Exchange | Reshard, ...]
    results: tuple[Ref, ...]
    donate_args: tuple[int, ...] = ()  # arguments the caller gives up
