"""Types of elements, by their three names: the protocol's kind, numpy's dtype, and MLIR's text.

Host buffers hold one element of a sub-byte type (int4, float4) in one byte, as ml_dtypes does. Tokens and strings
have a kind but no dtype of fixed size. Neighbours: `ifrt_shardings`, `ops/array_requests`, `stablehlo_programs`.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from .ifrt_messages import DTypeProto

__all__ = ["STRING", "TOKEN", "dtype_of", "kind_of", "kind_of_mlir", "name_of"]

# The protocol's name, numpy's, MLIR's. numpy's is looked up in ml_dtypes first; a name that neither knows (an older
# ml_dtypes) is left out.
NAMES = (
    ("PRED", "bool", "i1"),
    ("S2", "int2", "i2"), ("S4", "int4", "i4"), ("S8", "int8", "i8"), ("S16", "int16", "i16"),
    ("S32", "int32", "i32"), ("S64", "int64", "i64"),
    ("U2", "uint2", "ui2"), ("U4", "uint4", "ui4"), ("U8", "uint8", "ui8"), ("U16", "uint16", "ui16"),
    ("U32", "uint32", "ui32"), ("U64", "uint64", "ui64"),
    ("S1", "int1", "si1"), ("U1", "uint1", "ui1"),
    ("F16", "float16", "f16"), ("F32", "float32", "f32"), ("F64", "float64", "f64"), ("BF16", "bfloat16", "bf16"),
    ("C64", "complex64", "complex<f32>"), ("C128", "complex128", "complex<f64>"),
    *((f"F{name.upper()}", f"float{name}", f"f{name.upper()}") for name in (
        "8_e3m4", "8_e4m3", "8_e4m3fn", "8_e4m3b11fnuz", "8_e4m3fnuz", "8_e5m2", "8_e5m2fnuz", "8_e8m0fnu",
        "4_e2m1fn", "6_e2m3fn", "6_e3m2fn",
    )),
)  # fmt: skip

TOKEN: int = DTypeProto.KIND_TOKEN
STRING: int = DTypeProto.KIND_STRING


def _dtypes() -> dict[int, np.dtype[Any]]:
    found = {}
    for protocol, numpy, _ in NAMES:
        scalar = getattr(ml_dtypes, numpy, None) or getattr(np, numpy, None)
        if scalar is not None:
            found[DTypeProto.Kind.Value(f"KIND_{protocol.replace('_', '')}")] = np.dtype(scalar)
    return found


DTYPES = _dtypes()
KINDS = {dtype: kind for kind, dtype in DTYPES.items()}
MLIR = {
    mlir.replace("_", ""): DTypeProto.Kind.Value(f"KIND_{protocol.replace('_', '')}")
    for protocol, _, mlir in NAMES
}


def dtype_of(kind: int) -> np.dtype[Any] | None:
    """numpy's dtype; None: elements of this kind have no fixed size, or are not known here."""
    return DTYPES.get(kind)


def kind_of(dtype: np.dtype[Any]) -> int:
    return KINDS[dtype]


def kind_of_mlir(text: str) -> int | None:
    return MLIR.get(text)


def name_of(kind: int) -> str:
    """The kind's name, for error texts."""
    try:
        return str(DTypeProto.Kind.Name(kind)).removeprefix("KIND_").lower()
    except ValueError:
        return f"kind {kind}"
