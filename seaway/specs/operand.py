"""What arrays and traced values have in common: shape, type, place; and plain words for what they cannot do."""

from __future__ import annotations

import sys
from abc import abstractmethod
from math import prod
from types import FrameType
from typing import Any, NoReturn

from core.model import Sharding

from . import shardings
from .avals import Aval, jax_dtype
from .slices import Slice


def _binary(symbol: str, turned: bool = False) -> Any:
    def operate(self: Operand, other: Any) -> Any:
        return self._operate(symbol, other, turned)

    return operate


def _both(symbol: str) -> tuple[Any, Any]:
    return _binary(symbol), _binary(symbol, turned=True)


class Operand:
    """One logical array on one slice. What is abstract here is checked by the type checker alone: an `ABC` may be no
    msgspec Struct, and arrays are Structs."""

    __slots__ = ()
    _abstract: Aval

    @property
    def shape(self) -> tuple[int, ...]:
        return self._abstract.shape

    @property
    def dtype(self) -> Any:
        return jax_dtype(self._abstract.dtype)

    @property
    def ndim(self) -> int:
        return len(self._abstract.shape)

    @property
    def size(self) -> int:
        return prod(self._abstract.shape)

    @property
    def nbytes(self) -> int:
        return self._abstract.nbytes

    @property
    def aval(self) -> Any:
        """As a `jax.ShapeDtypeStruct`."""
        return self._abstract.abstract()

    @property
    @abstractmethod
    def slice(self) -> Slice | None: ...

    @property
    @abstractmethod
    def _split(self) -> Sharding: ...

    @property
    def sharding(self) -> Any:
        """A `jax.sharding.NamedSharding` over its slice's mesh."""
        return None if self.slice is None else shardings.named(self._split, self.slice)

    def __len__(self) -> int:
        if not self._abstract.shape:
            raise TypeError("len() of an array without dimensions")
        return self._abstract.shape[0]

    __add__, __radd__ = _both("+")
    __sub__, __rsub__ = _both("-")
    __mul__, __rmul__ = _both("*")
    __truediv__, __rtruediv__ = _both("/")
    __floordiv__, __rfloordiv__ = _both("//")
    __mod__, __rmod__ = _both("%")
    __pow__, __rpow__ = _both("**")
    __matmul__, __rmatmul__ = _both("@")
    __and__, __rand__ = _both("&")
    __or__, __ror__ = _both("|")
    __xor__, __rxor__ = _both("^")
    __lshift__, __rlshift__ = _both("<<")
    __rshift__, __rrshift__ = _both(">>")
    __lt__, __le__, __gt__, __ge__ = map(_binary, ("<", "<=", ">", ">="))

    @abstractmethod
    def _operate(self, symbol: str, other: Any, turned: bool) -> Any:
        """An operator of Python's was applied."""

    @abstractmethod
    def _computes(self, function: str) -> NoReturn:
        """A function of JAX's was called with it, outside of any computation. `function`: "jnp.sum(...)"."""

    @property
    def __jax_array__(self) -> NoReturn:
        """JAX looks for this where it is given what is no array of its own: here, one that is elsewhere.

        To convert it or to ask for its type is fine, and goes by `__array__`, `shape` and `dtype`. To compute with it
        is not, and JAX's own error does not say what to do.
        """
        asked = _asked_by()
        if asked in HARMLESS or asked.startswith("_operator"):  # an operator is then ours
            raise AttributeError("__jax_array__")
        self._computes(_as_called(asked))

    @abstractmethod
    def _needs(self, does: str) -> Any:
        """Python asks for contents: they are returned, or an error says why not."""


# Functions of JAX's that are given such an array and compute nothing with it, as their code is called.
HARMLESS = frozenset(("array", "asarray", "eval_shape", "make_jaxpr_f", "lower", "trace"))
# Code that stands for many functions of JAX's -> the variable that has the function.
WRAPPERS = {"cache_miss": "fun", "__call__": "self"}


def _asked_by() -> str:
    """The function of JAX's that the user called, as its code is called: the outermost of its frames."""
    name = ""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("jax", "jaxlib"):
        code = frame.f_code.co_name
        if code != "reraise_with_filtered_traceback":
            called = frame.f_locals.get(WRAPPERS.get(code, ""))
            name = str(getattr(called, "__name__", code))
        frame = frame.f_back
    return name


def _as_called(name: str) -> str:
    """As the user wrote it, if it is one that has a name there."""
    import jax
    import jax.numpy as jnp

    for module, prefix in ((jnp, "jnp"), (jax, "jax"), (jax.lax, "jax.lax")):
        if hasattr(module, name):
            return f"{prefix}.{name}(...)"
    return "a function of JAX"
