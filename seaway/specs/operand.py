"""What arrays and traced values have in common: shape, type, place; and plain words for what they cannot do."""

from __future__ import annotations

from abc import abstractmethod
from math import prod
from typing import Any

from core.model import Sharding

from . import shardings
from .avals import Aval, jax_dtype
from .slices import Slice


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

    @abstractmethod
    def _operate(self, symbol: str, other: Any, turned: bool) -> Any:
        """An operator of Python's was applied."""

    @abstractmethod
    def _needs(self, does: str) -> Any:
        """Python asks for contents: they are returned, or an error says why not."""


def _binary(symbol: str, turned: bool = False) -> Any:
    def operate(self: Operand, other: Any) -> Any:
        return self._operate(symbol, other, turned)

    return operate


for _name, _symbol in (
    ("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/"), ("floordiv", "//"), ("mod", "%"), ("pow", "**"),
    ("matmul", "@"), ("and", "&"), ("or", "|"), ("xor", "^"), ("lshift", "<<"), ("rshift", ">>"),
):  # fmt: skip
    setattr(Operand, f"__{_name}__", _binary(_symbol))
    setattr(Operand, f"__r{_name}__", _binary(_symbol, turned=True))
for _name, _symbol in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
    setattr(Operand, f"__{_name}__", _binary(_symbol))
