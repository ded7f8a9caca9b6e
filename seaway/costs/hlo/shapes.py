"""Parses types in HLO text, such as `bf16[64,1024]{1,0:T(8,128)(2,1)S(1)}`, and tuples of them."""

import re
from collections.abc import Iterator
from math import prod

import msgspec

LEAF = re.compile(r"([a-z][a-z0-9]*)\[([^\]]*)\](?:\{([^}]*)\})?")
SPACE = re.compile(r"S\((\d+)\)")
SKIPPED = re.compile(r"(?:\s|,|/\*.*?\*/)*")

BITS = {
    "pred": 8, "token": 0, "opaque": 0,
    "s1": 1, "u1": 1, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "f4e2m1fn": 4,
    "s8": 8, "u8": 8, "s16": 16, "u16": 16, "s32": 32, "u32": 32, "s64": 64, "u64": 64,
    "bf16": 16, "f16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128,
}  # fmt: skip


class BadShape(ValueError):
    pass


class HloShape(msgspec.Struct, frozen=True):
    dtype: str
    dims: tuple[int, ...] = ()
    space: int = 0  # 0: the device's main memory; others are on the chip

    @property
    def elements(self) -> int:
        return prod(self.dims)

    @property
    def nbytes(self) -> int:
        return (self.elements * _bits(self.dtype) + 7) // 8


Type = HloShape | tuple["Type", ...]


def _bits(dtype: str) -> int:
    if dtype in BITS:
        return BITS[dtype]
    if dtype.startswith("f8"):
        return 8
    raise BadShape(f"no element type {dtype!r} is known")


def parse_type(text: str, at: int) -> tuple[Type, int]:
    """The type that starts at `at`, and where it ends."""
    if text.startswith("(", at):
        parts: list[Type] = []
        at = _skip(text, at + 1)
        while not text.startswith(")", at):
            part, at = parse_type(text, at)
            parts.append(part)
            at = _skip(text, at)
        return tuple(parts), at + 1
    match = LEAF.match(text, at)
    if match is None:
        raise BadShape(f"no type at {text[at : at + 40]!r}")
    dtype, dims, layout = match.groups()
    sizes = tuple(int(size.strip().lstrip("<=")) for size in dims.split(",") if size.strip() not in ("", "?"))
    space = SPACE.search(layout) if layout else None
    return HloShape(dtype, sizes, int(space[1]) if space else 0), match.end()


def _skip(text: str, at: int) -> int:
    match = SKIPPED.match(text, at)
    return match.end() if match else at


def leaves(kind: Type) -> Iterator[HloShape]:
    if isinstance(kind, HloShape):
        yield kind
    else:
        for part in kind:
            yield from leaves(part)


def main_memory(kind: Type) -> int:
    """Bytes of this type that are in the device's main memory."""
    return sum(shape.nbytes for shape in leaves(kind) if shape.space == 0)
