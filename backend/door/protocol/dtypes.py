"""Types of elements, by their three names: the protocol's kind, numpy's dtype, and MLIR's text.

Host buffers hold one element of a sub-byte type (int4, float4) in one byte, as ml_dtypes does. Tokens and strings
have a kind but no dtype of fixed size. Neighbours: `ifrt_shardings`, `ops/array_requests`, `program_facts`.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from backend.xla import ELEMENT_TYPES

from .ifrt_messages import DTypeProto

TOKEN: int = DTypeProto.KIND_TOKEN
STRING: int = DTypeProto.KIND_STRING


def _dtypes() -> dict[int, np.dtype[Any]]:
    """numpy's name is looked up in ml_dtypes first; one that neither knows (an older ml_dtypes) is left out."""
    found = {}
    for protocol, numpy, _ in ELEMENT_TYPES:
        scalar = getattr(ml_dtypes, numpy, None) or getattr(np, numpy, None)
        if scalar is not None:
            found[DTypeProto.Kind.Value(f"KIND_{protocol}")] = np.dtype(scalar)
    return found


DTYPES = _dtypes()
KINDS = {dtype: kind for kind, dtype in DTYPES.items()}
MLIR = {mlir: DTypeProto.Kind.Value(f"KIND_{protocol}") for protocol, _, mlir in ELEMENT_TYPES}


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
