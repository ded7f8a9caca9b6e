"""What both drivers run: a cluster of two hosts, a program that sums over it, and the user who calls it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import sha256

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import export
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from core import effects as e
from core.client import Client
from core.clientside import ClientSide
from core.dataplane import Chunk
from core.messages import Blame
from core.plan import Layout
from core.presets import small
from core.program import Arg, Computation, Node, Out, Program, Sharding, SliceSpec, Value
from core.resharding import Shards
from core.session import Blocked

Array = npt.NDArray[np.float32]

CLUSTER = small(hosts=2, per_host=1)
VALUE: Array = np.array([[1, 2, 3], [10, 20, 30]], np.float32)
COST = 100_000  # nanoseconds


def psum_blob() -> bytes:
    """x + its sum over all devices, traced for devices that this process does not have."""
    mesh = AbstractMesh((CLUSTER.devices,), ("x",), axis_types=(AxisType.Auto,))

    def body(x: jax.Array) -> jax.Array:
        total: jax.Array = x + jax.lax.psum(x, "x")  # type: ignore[no-untyped-call]
        return total

    split = PartitionSpec("x")  # type: ignore[no-untyped-call]
    sharding = NamedSharding(mesh, split)
    step = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=split, out_specs=split), out_shardings=sharding)
    shape = jax.ShapeDtypeStruct(VALUE.shape, jnp.float32, sharding=sharding)  # type: ignore[no-untyped-call]
    return bytes(export.export(step, platforms=("cpu", "tpu", "cuda"))(shape).serialize())


def hash_of(blob: bytes) -> str:
    return sha256(blob).hexdigest()


def psum_program(blob: bytes) -> Program:
    value = Value(VALUE.shape, "float32", 0, Sharding(((0,), ())))
    code = hash_of(blob)
    return Program(
        name="psum",
        slices=(SliceSpec("all", CLUSTER.devices),),
        computations=(Computation("add the sum", code, COST, code=code),),
        args=(value,),
        nodes=(Node("add the sum", 0, 0, (Arg(0),), (value,), (value,)),),
        results=(Out(0),),
    )


def expected(runs: int) -> Array:
    value = VALUE
    for _ in range(runs):
        value = value + value.sum(axis=0)
    return value


def piece_start(layout: Layout, piece: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where shard `piece` lies in the array, and its shape: pieces of a Get or Put are whole shards."""
    shards = Shards(layout)
    index = np.unravel_index(piece, shards.parts)
    return tuple(int(i) * size for i, size in zip(index, shards.size, strict=True)), shards.size


class Fetch:
    """What a Get brings. `value` is there when all of it has come."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.pieces: dict[int, bytearray] = {}
        self.value: Array | None = None

    def fill(self, chunk: Chunk, contents: bytes) -> None:
        piece = self.pieces.setdefault(chunk.piece, bytearray())
        assert (len(piece), len(contents)) == (chunk.offset, chunk.nbytes)
        piece += contents

    def end(self) -> None:
        value = np.zeros(self.layout.shape, np.float32)
        covered = 0
        for number, piece in self.pieces.items():
            start, shape = piece_start(self.layout, number)
            box = tuple(slice(low, low + size) for low, size in zip(start, shape, strict=True))
            value[box] = np.frombuffer(piece, np.float32).reshape(shape)
            covered += math.prod(shape)
        self.value = value if covered == value.size else None


class User:
    """A user's process, less its driver. Of a round all is called at once: no call awaits an answer."""

    def __init__(self, blob: bytes) -> None:
        self.client = Client("ann")
        self.machine = ClientSide(self.client, CLUSTER)
        self.blob = blob
        self.runs = 0
        self.blames: list[Blame | None] = []  # of each run that has ended
        self.fetches: list[Fetch | Blame] = []  # that are over
        self.told: list[str] = []
        self._program = 0
        self._coming: dict[int, Fetch] = {}
        self._requests: dict[int, int] = {}  # transfer -> request
        self._open: set[int] = set()  # gets that are not over

    def call(self, runs: int, now: int) -> None:
        """A chain: each run's argument is the result of the one before; only the last result is looked at."""
        if not self._program:
            self._program = _said(self.client.register(psum_program(self.blob), now))
        argument: int | bytes = VALUE.tobytes()
        results: list[int] = []
        for _ in range(runs):
            submitted = self.client.submit(self._program, (argument,), now)
            assert not isinstance(submitted, Blocked), submitted
            argument = submitted.results[0]
            results.append(argument)
        self._open.add(_said(self.client.get(results[-1], now)))
        self.client.release(tuple(results), now)
        self.runs += runs

    @property
    def over(self) -> bool:
        return len(self.blames) == self.runs and not self._open

    def saw(self, effect: e.Effect, contents: bytes = b"") -> None:
        match effect:
            case e.RunEnded(_, blame):
                self.blames.append(blame)
            case e.GetComing(request, transfer, layout):
                self._requests[transfer], self._coming[request] = request, Fetch(layout)
            case e.Fill(request, chunk) if contents:
                self._coming[request].fill(chunk, contents)
            case e.Received(transfer, blame):
                request = self._requests.pop(transfer)
                fetch = self._coming.pop(request)
                fetch.end()
                self._got(request, blame or fetch)
            case e.CallRefused("get", request, blame):
                self._got(request, blame)
            case e.Tell(text):
                self.told.append(text)
            case _:
                pass  # BuffersReady, and what the transfer's halves say

    def _got(self, request: int, what: Fetch | Blame) -> None:
        """The first answer counts: a host that dies behind the last byte of a get has it refused, too."""
        if request in self._open:
            self._open.remove(request)
            self.fetches.append(what)


def _said(answer: int | Blocked) -> int:
    assert not isinstance(answer, Blocked), answer
    return answer


Rounds = Sequence[int]  # lengths of chains; one is called when the one before is over
