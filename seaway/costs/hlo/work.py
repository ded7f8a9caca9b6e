"""Counts what one operation computes and moves: matrix flops, elementwise operations, and bytes of main memory.

A fusion reads each operand once, or only a slice of it if it only slices it. A fusion that updates a slice in place
writes only the slice. Data on the chip (memory space 1 and up) are not moved.

Text from before fusion is counted as if everything that can be fused were fused: only operations that need their
operands in memory move them (`MOVING`). Elementwise work, slices and layouts add no bytes.
"""

import re
from math import prod
from typing import Literal

import numpy as np

from .shapes import HloShape, Type, leaves, main_memory
from .text import HloComputation, HloError, Module, Op

LABELS = re.compile(r"dim_labels=([\w?]+)_([\w?]+)->([\w?]+)")
WINDOW = re.compile(r"window=\{([^}]*)\}")
CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
BATCH_GROUPS = re.compile(r"batch_group_count=(\d+)")

FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call", "conditional", "after-all",
    "add-dependency", "opt-barrier", "optimization-barrier", "partition-id", "replica-id", "domain",
}  # fmt: skip
MOVING = {
    "dot", "convolution", "reduce", "reduce-window", "select-and-scatter", "sort", "gather", "scatter", "fft",
    "cholesky", "triangular-solve", "custom-call", "dynamic-update-slice", "concatenate", "fusion",
}  # fmt: skip


SLOW = {
    "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh", "power", "sqrt", "rsqrt", "cbrt",
    "sine", "cosine", "tan", "atan2", "erf", "divide", "remainder",
}  # fmt: skip
SLOWNESS = 8  # plain operations that one of SLOW is worth, roughly
STILL = FREE | MOVING | {
    "broadcast", "iota", "slice", "dynamic-slice", "reshape", "transpose", "copy", "pad", "reverse",
    "rng-bit-generator",
}  # fmt: skip


class ModuleWork:
    """Counts the work of a module's operations. Results for computations that fusions call are cached."""

    def __init__(self, module: Module, fused: bool = True) -> None:
        self.module = module
        self.fused = fused
        self._sums: dict[tuple[str, str], float] = {}  # by computation, and what is summed
        self._reads: dict[tuple[str, int], int | None] = {}
        self._writes: dict[str, int | None] = {}

    # --- flops ------------------------------------------------------------------------------------------

    def flops(self, computation: HloComputation, op: Op) -> float:
        if op.opcode == "dot":
            return _dot(computation, op)
        if op.opcode == "convolution":
            return _convolution(computation, op)
        return self._inside(op, "flops") if op.opcode == "fusion" else 0.0

    # --- elementwise ------------------------------------------------------------------------------------

    def elementwise(self, computation: HloComputation, op: Op) -> float:
        """Operations of the vector unit: one for each element computed, more for slow functions."""
        if op.opcode == "fusion":
            return self._inside(op, "elementwise")
        if op.opcode in ("reduce", "reduce-window"):
            return float(_first(computation.operand(op, 0)).elements)
        if op.opcode in STILL or op.opcode.endswith(("-start", "-done")):
            return 0.0
        elements = sum(shape.elements for shape in leaves(op.kind))
        return float(elements * (SLOWNESS if op.opcode in SLOW else 1))

    def _inside(self, fusion: Op, what: Literal["flops", "elementwise"]) -> float:
        """The sum over the operations of the computations that a fusion calls."""
        for name in fusion.called("calls"):
            if (name, what) not in self._sums:
                inner = self.module[name]
                self._sums[name, what] = sum(getattr(self, what)(inner, op) for op in inner.ops.values())
        return sum(self._sums[name, what] for name in fusion.called("calls"))

    # --- bytes ------------------------------------------------------------------------------------------

    def moved(self, computation: HloComputation, op: Op) -> int:
        """Bytes that the operation reads from main memory and writes to it."""
        if op.opcode in FREE or op.opcode.endswith("-done"):
            return 0
        kinds = [computation.ops[name].kind for name in op.operands if name in computation.ops]
        if not self.fused:
            return _as_if_fused(op, kinds)
        if op.opcode == "fusion" and (called := op.called("calls")):
            inner = self.module[called[0]]
            total = sum(self._read(inner, index, kind) for index, kind in enumerate(kinds))
            return total + self._written(inner, op.kind)
        if op.opcode in ("dynamic-slice", "slice", "gather"):
            return 2 * main_memory(op.kind)
        if op.opcode in ("dynamic-update-slice", "scatter") and len(kinds) > 1:
            return 2 * main_memory(kinds[1 if op.opcode == "dynamic-update-slice" else -1])
        if op.opcode.endswith("-start"):
            return _transfer(op, kinds)
        return sum(map(main_memory, kinds)) + main_memory(op.kind)

    def _read(self, inner: HloComputation, index: int, kind: Type) -> int:
        if not main_memory(kind):
            return 0
        part = self._part_read(inner, index)
        return main_memory(kind) if part is None else min(part, main_memory(kind))

    def _part_read(self, inner: HloComputation, index: int) -> int | None:
        """The bytes that a computation reads of its parameter `index`; None means all."""
        key = (inner.name, index)
        if key not in self._reads:
            self._reads[key] = None  # a recursive question gets the answer "all"
            parameters = inner.parameters
            if index < len(parameters):
                self._reads[key] = self._used(inner, parameters[index].name)
        return self._reads[key]

    def _used(self, inner: HloComputation, name: str) -> int | None:
        total = 0
        for user in inner.users[name]:
            first = user.operands[0] == name and name not in user.operands[1:]
            if user.opcode == "dynamic-slice" and first:
                part: int | None = _size(user.kind)
            elif user.opcode == "dynamic-update-slice" and first:
                part = 0
            elif user.opcode in ("bitcast", "reshape"):
                part = self._used(inner, user.name)
            elif user.opcode == "fusion":
                part = self._read_by(user, name)
            else:
                part = None
            if part is None:
                return None
            total += part
        return total

    def _read_by(self, fusion: Op, name: str) -> int | None:
        inner = self.module[fusion.called("calls")[0]]
        parts = [self._part_read(inner, index) for index, operand in enumerate(fusion.operands) if operand == name]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None

    def _written(self, inner: HloComputation, kind: Type) -> int:
        if inner.name not in self._writes:
            self._writes[inner.name] = self._updated(inner, inner.root)
        part = self._writes[inner.name]
        return main_memory(kind) if part is None else min(part, main_memory(kind))

    def _updated(self, inner: HloComputation, name: str) -> int | None:
        """The bytes that a fusion writes if it only updates slices in place; None if it writes all of its result."""
        op = inner.ops.get(name)
        if op is None:
            return None
        if op.opcode == "dynamic-update-slice":
            return _size(inner.operand(op, 1).kind)
        if op.opcode == "bitcast":
            return self._updated(inner, op.operands[0])
        if op.opcode == "fusion":
            called = self.module[op.called("calls")[0]]
            return self._updated(called, called.root)
        if op.opcode == "tuple":
            parts = [self._updated(inner, part) for part in op.operands]
            sizes = [_size(inner.ops[part].kind) for part in op.operands]
            return sum(size if part is None else part for part, size in zip(parts, sizes, strict=True))
        return None


def _as_if_fused(op: Op, kinds: list[Type]) -> int:
    if op.opcode not in MOVING:
        return 0
    match op.opcode:
        case "dynamic-update-slice":
            return main_memory(kinds[1])
        case "scatter":
            return 2 * main_memory(kinds[-1])
        case "gather":
            return 2 * main_memory(op.kind)
        case _:
            return sum(map(main_memory, kinds)) + main_memory(op.kind)


def _size(kind: Type) -> int:
    return sum(shape.nbytes for shape in leaves(kind))


def _transfer(op: Op, kinds: list[Type]) -> int:
    """Bytes of an asynchronous copy, once for each end that is in main memory."""
    if op.opcode not in ("copy-start", "slice-start", "async-start"):
        return 0  # a collective; its bytes are counted elsewhere
    result = op.kind[0] if isinstance(op.kind, tuple) and op.kind else op.kind
    moved = _size(result)
    ends = [main_memory(result) > 0, any(main_memory(kind) for kind in kinds)]
    return moved * sum(ends)


def _shape(computation: HloComputation, op: Op, index: int) -> HloShape:
    kind = computation.operand(op, index).kind
    if not isinstance(kind, HloShape):
        raise HloError(f"{op.opcode} {op.name!r} has a tuple for operand {index}")
    return kind


def _first(op: Op) -> HloShape:
    return next(leaves(op.kind))


def _dot(computation: HloComputation, op: Op) -> float:
    left = _shape(computation, op, 0)
    contracted = [int(axis) for axis in op.attribute(CONTRACTED).split(",") if axis]
    return 2.0 * _first(op).elements * prod(left.dims[axis] for axis in contracted)


def _convolution(computation: HloComputation, op: Op) -> float:
    """Flops that use data, not padding: the TPU compiler writes batched products as convolutions of mostly padding."""
    labels = LABELS.search(op.attributes)
    if labels is None:
        raise HloError(f"convolution {op.name!r} in {computation.name!r} has no dim_labels")
    left, right, out = _shape(computation, op, 0), _shape(computation, op, 1), _first(op)
    window = _window(op.attribute(WINDOW), len(labels[1]) - 2)
    valid = 1.0
    for axis in range(len(labels[1]) - 2):
        size = left.dims[labels[1].index(str(axis))]
        places = out.dims[labels[3].index(str(axis))]
        valid *= _valid(size, places, {key: values[axis] for key, values in window.items()})
    per_group = right.dims[labels[2].index("i")]
    features = out.dims[labels[3].index("f")]
    batch = left.dims[labels[1].index("b")] // int(op.attribute(BATCH_GROUPS) or 1)
    return 2.0 * per_group * features * batch * valid


def _window(text: str, axes: int) -> dict[str, list[tuple[int, int]]]:
    """`size=3x3 pad=1_1x1_1 lhs_dilate=2x1` as lists by key, one entry an axis. A plain number is (number, 0)."""
    default = {"size": 1, "stride": 1, "lhs_dilate": 1, "rhs_dilate": 1, "pad": 0}
    found = {key: [(value, 0)] * axes for key, value in default.items()}
    for part in text.split():
        key, _, values = part.partition("=")
        if key in found:
            found[key] = [_pair(value) for value in values.split("x")]
    return found


def _pair(text: str) -> tuple[int, int]:
    low, _, high = text.partition("_")
    return int(low), int(high or 0)


def _valid(size: int, places: int, window: dict[str, tuple[int, int]]) -> int:
    """The number of pairs of a result's place and a kernel's place that meet an element of the input."""
    stride, spread, dilation = window["stride"][0], window["lhs_dilate"][0], window["rhs_dilate"][0]
    kernel = np.arange(window["size"][0], dtype=np.int64) * dilation - window["pad"][0]
    total = 0
    for start in range(0, places, 1024):  # in parts: long axes make large tables
        place = np.arange(start, min(places, start + 1024), dtype=np.int64) * stride
        at = place[:, None] + kernel[None, :]
        total += int(((at >= 0) & (at % spread == 0) & (at // spread < size)).sum())
    return total
