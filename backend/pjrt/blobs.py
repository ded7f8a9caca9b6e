"""Turns code from clients into functions that JAX can trace: exported computations and reshardings.

A blob is what `jax.export` serialises: StableHLO for several platforms, with the shapes and shardings for which it
was traced. Each function takes a gang's inputs and returns its outputs, flat, and one more number at the end,
which is ready when the program has run (`Flight.token`). For an irregular gang, that number is the count of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from core.model import Code, Gang, Layout

from .device_arrays import device_dtype

Function = Callable[..., tuple[Any, ...]]
RESHARD = "reshard:"


class Unusable(ValueError):
    """Code that does not fit the plan."""


def function_of(
    code: Code, gang: Gang, inputs: Sequence[Layout], outputs: Sequence[Layout], blobs: Mapping[str, bytes]
) -> Function:
    if code.key.startswith(RESHARD):
        return _resharding
    call = _Exported(code, len(outputs) + gang.irregular, blobs)
    if gang.irregular:
        return _counted(call, outputs)

    def called(*leaves: Any) -> tuple[Any, ...]:
        return *call(*leaves), jnp.int32(0)

    return called


def _resharding(x: Any) -> tuple[Any, ...]:
    """The identity: the program's shardings say what moves where."""
    return x, jnp.int32(0)


class _Exported:
    """One exported computation, as a function of flat arguments."""

    def __init__(self, code: Code, outputs: int, blobs: Mapping[str, bytes]) -> None:
        if not code.code:
            raise Unusable(
                f"computation {code.name!r} has a duration and no code, so it runs in simulations and on `timed` "
                "devices; for real ones, write it with sw.jit"
            )
        blob = blobs.get(code.code)
        if blob is None:
            raise Unusable(f"the code of computation {code.name!r}, {code.code[:12]}, has not arrived")
        self._name, self._outputs = code.name, outputs
        try:
            self._exported: Any = export.deserialize(bytearray(blob))
        except Exception as error:
            raise Unusable(f"the code of computation {code.name!r} cannot be read: {error}") from error

    def __call__(self, *leaves: Any) -> list[Any]:
        self._check(leaves)
        args, kwargs = jax.tree.unflatten(self._exported.in_tree, leaves)
        made = jax.tree.leaves(self._exported.call(*args, **kwargs))
        if len(made) != self._outputs:
            raise Unusable(
                f"computation {self._name!r} makes {len(made)} arrays, but the plan has {self._outputs}"
            )
        return made

    def _check(self, leaves: Sequence[Any]) -> None:
        has = [(leaf.shape, leaf.dtype) for leaf in leaves]
        wants = [(aval.shape, aval.dtype) for aval in self._exported.in_avals]
        if has != wants:
            raise Unusable(
                f"computation {self._name!r} takes {_looks(wants)}, but the plan gives it {_looks(has)}"
            )


def _looks(avals: Sequence[tuple[Any, Any]]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for shape, dtype in avals) or "nothing"


def _counted(call: _Exported, bounds: Sequence[Layout]) -> Function:
    """Wraps an irregular computation, which returns (arrays, count): cuts each array to `count` rows, and pads it
    with zeros up to its bound."""

    def cut(*leaves: Any) -> tuple[Any, ...]:
        *made, count = call(*leaves)
        count = jnp.asarray(count, jnp.int32)
        return *(_fit(x, bound, count) for x, bound in zip(made, bounds, strict=True)), count

    return cut


def _fit(x: Any, bound: Layout, count: Any) -> Any:
    rows = bound.shape[0]
    x = x[:rows]
    meant = jnp.arange(x.shape[0]).reshape(-1, *(1,) * (x.ndim - 1)) < count
    x = jnp.where(meant, x, jnp.zeros((), x.dtype))
    return jnp.pad(x, [(0, rows - x.shape[0])] + [(0, 0)] * (x.ndim - 1))


def look(layout: Layout, sharding: Any) -> Any:
    shape: Any = jax.ShapeDtypeStruct
    return shape(layout.shape, device_dtype(layout), sharding=sharding)
