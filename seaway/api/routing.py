"""`sw.route`: rows that data send to other shards. What arrives is known only when it has; nobody waits for all to all.

Rows travel with two numbers, where to and where from, whose bits ride behind their own: one buffer, read by the hosts
that send it. Around the exchange there are two small computations, which pack and unpack.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from core.model import Sharding
from sim.hardware import Kernel

from ..errors import NotNow
from ..graph import Graph, Signature, Tracer, leaf_aval, tracing
from ..sessions import ambient
from ..specs import Aval, Operand, Slice, as_slice, aval, jax_dtype, shardings, trees
from .jitted import Evaluator

PACKING = 2_000  # nanoseconds that packing takes, and unpacking
WORD = 4  # bytes
HEAD = 2  # words of each packed row: the shard it goes to, the row it was


def route(
    x: Any, dest: Any, *, devices: Slice | int | None = None, capacity: int | None = None, name: str = "route"
) -> tuple[Any, Any]:
    """Send row i of `x` to shard `dest[i]` of the slice `devices` (x's own, without one). A negative one is not sent.

    x: (rows, ...), split along rows over all devices of its slice; or a tree of such arrays, whose rows stay together.
    dest: (rows,), whole numbers. capacity: rows that y has a shard; without it, as many as could come.
    Returns (y, source). y is like x, with `capacity` rows a shard: first those that came, in the order of their source.
    source[j] is the row of `x` that y[j] was, or -1 where nothing came.

        >>> two = sw.slice(devices=2)
        >>> with sw.simulate("B", hosts=2, values="compute"):
        ...     x = sw.put(np.float32([10, 20, 30, 40]), two, two.sharding("x"))
        ...     y, source = sw.route(x, np.int32([1, 0, 1, 0]), capacity=2)
        ...     print(np.asarray(y), np.asarray(source))
        [20. 40. 10. 30.] [1 3 0 2]
    """
    leaves, tree = trees.flatten(x)
    rows = tuple(leaf_aval(leaf, "sw.route: x") for leaf in leaves)
    to = leaf_aval(dest, "sw.route: dest")
    home = next((leaf.slice for leaf in leaves if isinstance(leaf, Operand) and leaf.slice), None)
    if home is None:
        raise NotNow("sw.route(x, ...): x lies on no slice yet; sw.put it, or make it in a computation")
    target = home if devices is None else as_slice(devices, "sw.route")
    for each in rows:
        if not each.shape or to.shape != each.shape[:1] or "int" not in to.dtype:
            raise ValueError(f"sw.route(x, dest): dest is one whole number a row of x; x is {each!r}, dest {to!r}")
    if to.shape[0] % home.devices:
        raise ValueError(f"sw.route: the {to.shape[0]} rows of x do not divide by {home!r}")
    if capacity is not None and capacity < 1:
        raise ValueError(f"sw.route(capacity={capacity}): rows that a shard has room for, at least 1")
    room = (to.shape[0] if capacity is None else capacity) * target.devices
    tracer = tracing.tracer()
    if tracer is not None:
        *made, source = _Plan(name, rows, to, home, target, room).trace(tracer, leaves, dest)
    else:
        graph = _graph(name, rows, to, home, target, room)
        *made, source = ambient.caller("sw.route").submit(graph, [*leaves, dest])
    return tree.unflatten(made), source


class _Plan:
    """Pack, exchange, unpack."""

    def __init__(self, name: str, x: tuple[Aval, ...], dest: Aval, home: Slice, target: Slice, room: int) -> None:
        self.name, self.x, self.dest, self.home, self.target, self.room = name, x, dest, home, target, room
        self.words = HEAD + sum(map(words_of, x))
        self.packed = aval((dest.shape[0], self.words), "int32")
        self.arrived = aval((room, self.words), "int32")
        self.y = tuple(aval((room, *each.shape[1:]), each.dtype) for each in x)
        self.source = aval((room,), "int32")

    def trace(self, tracer: Tracer, leaves: Sequence[Any], dest: Any) -> list[Any]:
        packing = self._step("pack", self.home, (*self.x, self.dest), (self.packed,), pack)
        (packed,) = tracer.call(packing, [*leaves, dest])
        over = shardings.along_all(self.target, 2)
        arrived = tracer.route(self.name, packed, self.arrived, self.target, over, self._exchange)
        outputs, function = (*self.y, self.source), unpacker(self.y)
        unpacking = self._step("unpack", self.target, (self.arrived,), outputs, function)
        return list(tracer.call(unpacking, [arrived]))

    def _step(self, what: str, home: Slice, inputs: Any, outputs: Any, function: Any) -> Signature:
        def split(each: Aval) -> Sharding:
            return shardings.along_all(home, len(each.shape))

        text = repr((inputs, outputs, home.shape))
        key = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
        return Signature(
            name=f"{self.name}.{what}", home=home, inputs=inputs, expects=tuple(map(split, inputs)), outputs=outputs,
            out_shardings=tuple(map(split, outputs)), out_tree=trees.flatten((0,) * len(outputs))[1],
            key=f"{what}:{key}", collective=False, kernel=Kernel(f"{self.name}.{what}", PACKING),
            evaluate=Evaluator(function), function=function,
        )  # fmt: skip

    def _exchange(self, packed: Any) -> Any:
        rows, shards = np.asarray(packed), self.target.devices
        if rows.size and rows[:, 0].max() >= shards:
            raise ValueError(f"dest names shard {rows[:, 0].max()}, and {self.target!r} has {shards}")
        room = self.room // shards
        made = np.zeros((self.room, self.words), np.int32)
        made[:, 1] = -1
        for shard in range(shards):
            mine = rows[rows[:, 0] == shard]
            if len(mine) > room:
                raise ValueError(f"{len(mine)} rows go to shard {shard}, and its capacity is {room}; raise `capacity`")
            made[shard * room : shard * room + len(mine)] = mine
        return made


@functools.lru_cache(maxsize=1024)
def _graph(name: str, x: tuple[Aval, ...], dest: Aval, home: Slice, target: Slice, room: int) -> Graph:
    """As a program of its own."""
    tracer = Tracer(name, [*x, dest], ())
    *leaves, to = tracer.arguments
    made = _Plan(name, x, dest, home, target, room).trace(tracer, leaves, to)
    return tracer.finish(made, tuple(map(str, range(len(made)))))


# --- rows as whole words ---------------------------------------------------------------------------------


def pack(*args: Any) -> Any:
    """(x's leaves, dest) -> packed rows."""
    import jax.numpy as jnp

    *rows, dest = args
    head = jnp.stack([dest.astype(jnp.int32), jnp.arange(len(dest), dtype=jnp.int32)], axis=1)
    return jnp.concatenate([head, *map(_words, rows)], axis=1)


def unpacker(leaves: Sequence[Aval]) -> Callable[[Any], tuple[Any, ...]]:
    """Packed rows -> (y's leaves, source)."""

    def unpack(packed: Any) -> tuple[Any, ...]:
        at, made = HEAD, []
        for leaf in leaves:
            width = words_of(leaf)
            made.append(_values(packed[:, at : at + width], leaf))
            at += width
        return *made, packed[:, 1]

    return unpack


def _width(leaf: Aval) -> int:
    return leaf.nbytes // max(1, leaf.shape[0])


def words_of(leaf: Aval) -> int:
    """Of a row."""
    return -(-_width(leaf) // WORD)


def _words(rows: Any) -> Any:
    """The bits of each row, filled up to whole words."""
    import jax
    import jax.numpy as jnp

    if rows.dtype == bool:
        rows = rows.astype(jnp.uint8)
    if jnp.iscomplexobj(rows):
        rows = jnp.stack([rows.real, rows.imag], axis=-1)
    count = rows.shape[0]
    own = jax.lax.bitcast_convert_type(rows, jnp.uint8).reshape(count, -1)
    own = jnp.pad(own, ((0, 0), (0, -own.shape[1] % WORD)))
    return jax.lax.bitcast_convert_type(own.reshape(count, -1, WORD), jnp.int32)


def _values(words: Any, leaf: Aval) -> Any:
    import jax
    import jax.numpy as jnp

    kind = jnp.dtype(jax_dtype(leaf.dtype))
    count = words.shape[0]
    own = jax.lax.bitcast_convert_type(words, jnp.uint8).reshape(count, -1)[:, : _width(leaf)]
    if kind == jnp.dtype(bool):
        return own.reshape(leaf.shape).astype(bool)
    part = jnp.zeros((), kind).real.dtype  # of complex numbers, two of these
    size = part.itemsize
    numbers = own.reshape(count, -1, size)
    found = numbers[..., 0].view(part) if size == 1 else jax.lax.bitcast_convert_type(numbers, part)
    if kind != part:
        pairs = found.reshape(*leaf.shape, 2)
        return jax.lax.complex(pairs[..., 0], pairs[..., 1])
    return found.reshape(leaf.shape)
