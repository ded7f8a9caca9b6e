"""Rows as whole words, in JAX: what `route` sends, as devices make it and read it.

A packed row is the shard it goes to, the row it was, and the bits of its own values behind. `routing` has the same
in numpy, for simulations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..specs import Aval, jax_dtype

WORD = 4  # bytes
HEAD = 2  # words of each packed row: the shard it goes to, the row it was


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
            width = -(-_width(leaf) // WORD)
            made.append(_values(packed[:, at : at + width], leaf))
            at += width
        return *made, packed[:, 1]

    return unpack


def _width(leaf: Aval) -> int:
    return leaf.nbytes // max(1, leaf.shape[0])


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
