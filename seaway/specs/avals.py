"""Abstract values: shape and type of an array without its contents. Equal ones are one object, so they compare fast."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from core.model import ITEM_BYTES

KEY = "key<fry>"
_NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}
_known: dict[tuple[tuple[int, ...], str, bool], Aval] = {}
_numpy: dict[tuple[tuple[int, ...], np.dtype[Any]], Aval] = {}
LOOKS = 4096  # looks of numpy arrays that are kept


class Aval:
    """`weak`: a Python number, which takes its type from what it meets, as in JAX."""

    __slots__ = ("dtype", "nbytes", "shape", "weak")

    def __init__(self, shape: tuple[int, ...], dtype: str, weak: bool) -> None:
        self.shape = shape
        self.dtype = dtype
        self.weak = weak
        self.nbytes = prod(shape) * ITEM_BYTES[dtype]

    def __repr__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return aval, (self.shape, self.dtype, self.weak)

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        return numpy_dtype(self.dtype)

    def abstract(self) -> Any:
        """For JAX's own abstract evaluation."""
        import jax

        made: Any = jax.ShapeDtypeStruct
        return made(self.shape, jax_dtype(self.dtype), weak_type=self.weak)


def aval(shape: Sequence[int], dtype: Any, weak: bool = False) -> Aval:
    name = dtype if isinstance(dtype, str) else dtype_name(dtype)
    key = (tuple(shape), name, weak)
    found = _known.get(key)
    if found is None:
        if name not in ITEM_BYTES:
            raise TypeError(f"arrays of {name} are not supported; there are: {', '.join(ITEM_BYTES)}")
        found = _known[key] = Aval(tuple(int(size) for size in shape), name, weak)
    return found


def dtype_name(dtype: Any) -> str:
    name = getattr(dtype, "name", None)  # of JAX's extended types too, which numpy does not know
    return name if isinstance(name, str) else str(np.dtype(dtype))


def numpy_dtype(name: str) -> np.dtype[Any]:
    if name == KEY:
        raise TypeError("a random key is no numpy array; jax.random.key_data makes it one, in a computation")
    if name in ("bfloat16", "float8_e4m3fn"):
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
    return np.dtype(name)


def jax_dtype(name: str) -> Any:
    if name == KEY:
        import jax

        return jax.eval_shape(jax.random.key, 0).dtype  # so that no device is looked for
    return numpy_dtype(name)


def canonical(name: str) -> str:
    """64-bit types are 32-bit ones, unless JAX is told otherwise."""
    return name if name not in _NARROW or _wide() else _NARROW[name]


def _wide() -> bool:
    if "jax" in sys.modules:
        import jax  # another thread may be importing it: this waits

        config: Any = jax.config
        return bool(config.jax_enable_x64)
    return os.environ.get("JAX_ENABLE_X64", "").lower() in ("1", "true", "yes", "on")


_SCALARS = ((bool, "bool"), (int, "int64"), (float, "float64"), (complex, "complex128"))


def of(leaf: Any) -> Aval | None:
    """The aval of a number, a numpy or JAX array, or anything with a shape and a type; else None."""
    if isinstance(leaf, bool | int | float | complex) and not isinstance(leaf, np.generic):
        name = next(name for kind, name in _SCALARS if isinstance(leaf, kind))
        return aval((), canonical(name), weak=name != "bool")
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if shape is None or dtype is None:
        return None
    return aval(shape, canonical(dtype_name(dtype)), bool(getattr(leaf, "weak_type", False)))


def of_numpy(array: np.ndarray[Any, Any]) -> Aval:
    """As `of`, faster for shapes and types that came before."""
    look = array.shape, array.dtype
    found = _numpy.get(look)
    if found is None:
        found = aval(array.shape, canonical(dtype_name(array.dtype)))
        if found.dtype not in _NARROW and dtype_name(array.dtype) not in _NARROW:  # else it depends on JAX's settings
            if len(_numpy) >= LOOKS:
                _numpy.clear()
            _numpy[look] = found
    return found


def traced_by_jax(leaf: Any) -> bool:
    """It stands for contents, while JAX traces the function around."""
    if "jax" not in sys.modules:
        return False
    import jax  # another thread may be importing it: this waits

    return isinstance(leaf, jax.core.Tracer)


def host_bytes(leaf: Any, wanted: Aval) -> bytes:
    """As it travels: row-major, in its canonical type."""
    return host_array(leaf, wanted).tobytes()


def host_array(leaf: Any, wanted: Aval) -> np.ndarray[Any, Any]:
    if wanted.dtype == KEY:
        import jax

        return np.asarray(jax.random.key_data(leaf))
    return np.asarray(leaf, dtype=wanted.numpy_dtype)
