"""Estimates the work of a JAX function from its jaxpr, in milliseconds, without a compiler or a device.

Floating-point operations are counted exactly for matrix products and convolutions, and as one an element for the rest.
Bytes are the least that must cross HBM: the operands and results of matrix products, and arguments and results that do
not go with these. Operations that a compiler fuses add no bytes. Collectives that a compiler would insert are not seen:
for them, and for reliable figures, give costs (`cost=`, `sw.simulate(costs=...)`).
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import msgspec

from core.model import ITEM_BYTES, Sharding

from ..specs import dtype_name

FREE = {
    "broadcast_in_dim", "reshape", "squeeze", "transpose", "convert_element_type", "copy", "slice", "concatenate",
    "dynamic_slice", "dynamic_update_slice", "gather", "iota", "pad", "rev", "stop_gradient", "bitcast_convert_type",
    "split", "expand_dims", "device_put", "sharding_constraint",
}  # fmt: skip


PRODUCTS = {"dot_general", "conv_general_dilated"}
LOOPS = {"scan", "while", "cond"}


class WorkEstimate(msgspec.Struct, frozen=True):
    """A computation's work on each device."""

    flops: float
    hbm_bytes: float


def work_of(jaxpr: Any, mesh: Sequence[int], used: Sequence[Sharding]) -> WorkEstimate:
    """The jaxpr's work divided by the devices along mesh axes that split any array.

    Devices along the other axes hold replicas and do the same work.
    """
    flops, nbytes = _count(jaxpr.jaxpr)
    inner = jaxpr.jaxpr
    read = [var for var in (*inner.invars, *inner.constvars) if _beside(inner, var)]
    written = [var for var in inner.outvars if not _written(inner, var)]
    nbytes += sum(_bytes(edge.aval) for edge in (*read, *written))
    axes = sorted({axis for sharding in used for dims in sharding.dims for axis in dims})
    share = prod(mesh[axis] for axis in axes)
    return WorkEstimate(flops / share, nbytes / share)


def _beside(jaxpr: Any, var: Any) -> bool:
    """Whether anything but matrix products reads a value."""
    return any(out is var for out in jaxpr.outvars) or any(
        _reads(jaxpr, equation, at) for equation in jaxpr.eqns for at, each in enumerate(equation.invars) if each is var
    )


def _reads(jaxpr: Any, equation: Any, at: int) -> bool:
    """Whether an equation reads its input for anything but a matrix product."""
    if equation.primitive.name in PRODUCTS:
        return False
    insides = _insides(equation)
    if insides:
        return any(
            len(inside.invars) != len(equation.invars) or _beside(inside, inside.invars[at]) for inside in insides
        )
    return equation.primitive.name not in FREE or any(_beside(jaxpr, out) for out in equation.outvars)


def _written(jaxpr: Any, made: Any) -> bool:
    """Whether a result is what a matrix product writes, or is made of that, element by element."""
    maker = next((each for each in jaxpr.eqns if any(out is made for out in each.outvars)), None)
    if maker is None:
        return False
    if maker.primitive.name in PRODUCTS:
        return True
    insides = _insides(maker)
    if len(insides) == 1 and len(insides[0].outvars) == len(maker.outvars):
        at = next(number for number, out in enumerate(maker.outvars) if out is made)
        if _written(insides[0], insides[0].outvars[at]):
            return True
    if maker.primitive.name in LOOPS:
        return False
    size = _elements(made.aval)
    return any(_elements(var.aval) >= size and _written(jaxpr, var) for var in maker.invars if hasattr(var, "aval"))


def _insides(equation: Any) -> list[Any]:
    """The jaxprs that an equation contains."""
    parameters = equation.params
    found = parameters.get("branches") or [
        parameters[key] for key in ("jaxpr", "call_jaxpr", "body_jaxpr", "cond_jaxpr", "fun_jaxpr") if key in parameters
    ]
    return [getattr(each, "jaxpr", each) for each in found]


def _count(jaxpr: Any) -> tuple[float, float]:
    flops = nbytes = 0.0
    for equation in jaxpr.eqns:
        more = _inner(equation) or _own(equation)
        flops, nbytes = flops + more[0], nbytes + more[1]
    return flops, nbytes


def _inner(equation: Any) -> tuple[float, float] | None:
    """The work of an equation that contains others; None if it does not.

    A loop of unknown length counts once. The most expensive of several branches counts.
    """
    counts = [_count(each) for each in _insides(equation)]
    if "branches" in equation.params:
        return max(counts, default=(0.0, 0.0))
    times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
    return (times * sum(f for f, _ in counts), times * sum(b for _, b in counts)) if counts else None


def _own(equation: Any) -> tuple[float, float]:
    name = equation.primitive.name
    if name in FREE:
        return 0.0, 0.0
    made = sum(_elements(out.aval) for out in equation.outvars)
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        length = prod(equation.invars[0].aval.shape[axis] for axis in contracted)
        return 2.0 * made * length, _crossing(equation)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        numbers = equation.params["dimension_numbers"]
        outputs = kernel[numbers.rhs_spec[0]]
        return 2.0 * made * prod(kernel) / max(1, outputs), _crossing(equation)
    if name.startswith(("reduce", "arg", "cum", "sort")):
        return float(sum(_elements(var.aval) for var in equation.invars)), 0.0
    return float(made), 0.0


def _crossing(equation: Any) -> float:
    return float(sum(_bytes(var.aval) for var in (*equation.invars, *equation.outvars)))


def _elements(aval: Any) -> int:
    return prod(getattr(aval, "shape", ()))


def _bytes(aval: Any) -> int:
    dtype = getattr(aval, "dtype", None)
    return 0 if dtype is None else _elements(aval) * ITEM_BYTES.get(dtype_name(dtype), 4)
