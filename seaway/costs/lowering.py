"""Traces a user's JAX function into bytes that another process can compile, for devices that need not exist.

The bytes are `jax.export`'s StableHLO. Arguments and results are flattened first, so that the compiling process needs
none of the user's classes. Donations are numbers of flat arguments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import msgspec

from ..errors import CostError
from .meshes import abstract_mesh, described, jax_, shardings
from .quiet import quiet_start

Axes = tuple[tuple[str, int, str], ...]


class Lowered(msgspec.Struct, frozen=True):
    name: str
    blob: bytes
    axes: Axes  # of the mesh: name, size and type (Auto, Explicit or Manual)
    donated: tuple[int, ...]  # flat arguments
    digest: str  # of the StableHLO without source locations

    @property
    def devices(self) -> int:
        return prod(size for _, size, _ in self.axes)


def lower(
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    platform: str,
    mesh: object = None,
    in_shardings: object = None,
    out_shardings: object = None,
    donate: int | Sequence[int] = (),
    name: str | None = None,
) -> Lowered:
    """Trace `fn(*args)`. `args`: pytrees of arrays or of `jax.ShapeDtypeStruct`s."""
    jax = jax_()
    if not isinstance(args, tuple | list):
        raise CostError(
            f"args is the tuple of the function's arguments, not a {type(args).__name__}: write (x,)"
        )
    args = tuple(args)
    given = abstract_mesh(mesh, (args, in_shardings, out_shardings))
    specs = shardings(in_shardings, args, given, "in_shardings")
    leaves, tree = jax.tree.flatten(args)
    flat = [described(leaf, spec, given) for leaf, spec in zip(leaves, specs, strict=True)]

    def computation(*flat: Any) -> Any:
        result = fn(*jax.tree.unflatten(tree, flat))
        wanted = shardings(out_shardings, result, given, "out_shardings")
        return _placed(tuple(jax.tree.leaves(result)), tuple(wanted))

    donated = _donated(donate, args)
    with quiet_start(), jax.sharding.use_abstract_mesh(given):
        jitted = jax.jit(computation, donate_argnums=donated)
        lowered = jitted.trace(*flat).lower(lowering_platforms=(platform,))
        from jax import export

        exported = export.export(jitted, platforms=(platform,))(*flat)
    types = [kind.name for kind in given.axis_types]
    axes = tuple(zip(given.axis_names, given.axis_sizes, types, strict=True))
    digest = hashlib.sha256(repr((axes, donated)).encode() + lowered.as_text().encode()).hexdigest()
    return Lowered(name or _name(fn), bytes(exported.serialize()), axes, donated, digest)


def _placed(leaves: tuple[Any, ...], wanted: tuple[Any, ...]) -> tuple[Any, ...]:
    if all(one is None for one in wanted):
        return leaves
    place: Callable[..., tuple[Any, ...]] = jax_().jit(lambda *leaves: leaves, out_shardings=wanted)
    return place(*leaves)


def _donated(donate: int | Sequence[int], args: Sequence[Any]) -> tuple[int, ...]:
    """The numbers of the flat arguments that belong to donated arguments."""
    donate = (donate,) if isinstance(donate, int) else tuple(donate)
    for index in donate:
        if not 0 <= index < len(args):
            raise CostError(f"donate names argument {index}; there are {len(args)}, the first is 0")
    sizes = [len(jax_().tree.leaves(arg)) for arg in args]
    return tuple(at for index in sorted(donate) for at in range(sum(sizes[:index]), sum(sizes[: index + 1])))


def _name(fn: Callable[..., Any]) -> str:
    while hasattr(fn, "func"):  # functools.partial
        fn = fn.func
    return str(getattr(fn, "__name__", type(fn).__name__))
