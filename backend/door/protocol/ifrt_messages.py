"""The messages of the IFRT proxy protocol, as classes; and types of elements, by their three names.

backend.xla   has the .proto files, and makes the classes

The classes are made when the module is imported (some milliseconds), by `protobuf`'s C code. Names are the protocol's
own, but for three that it has twice: `XlaLayoutProto` and `XlaShapeProto` are package xla's, and `StatusCode` is
tensorflow.error.Code. Nested ones are attributes: `InitResponse.Device`, `DTypeProto.KIND_F32`.

Host buffers hold one element of a sub-byte type (int4, float4) in one byte, as ml_dtypes does. Tokens and strings have
a kind but no dtype of fixed size.
"""

from typing import Any

import ml_dtypes
import numpy as np

from backend.xla import ELEMENT_TYPES, message_classes

RENAMED = {
    "xla.LayoutProto": "XlaLayoutProto",
    "xla.ShapeProto": "XlaShapeProto",
    "tensorflow.error.Code": "StatusCode",
}
PACKAGES = (
    "xla", "tensorflow.error", "tensorflow", "xla.ifrt", "xla.ifrt.proto", "xla.ifrt.proxy",
    "ifrt_proxy_contrib_pathways",
)  # fmt: skip

globals().update(
    {RENAMED.get(name, name.rpartition(".")[2]): found for name, found in message_classes(*PACKAGES).items()}
)


def __getattr__(name: str) -> Any:
    """So that type checkers know that there are more names."""
    raise AttributeError(f"the IFRT proxy protocol has no message {name}")


# --- types of elements ---------------------------------------------------------------------------------------------

DTypeProto: Any = globals()["DTypeProto"]
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
MLIR = {mlir: DTypeProto.Kind.Value(f"KIND_{protocol}") for protocol, _, mlir in ELEMENT_TYPES}


def dtype_of(kind: int) -> np.dtype[Any] | None:
    """numpy's dtype; None: elements of this kind have no fixed size, or are not known here."""
    return DTYPES.get(kind)


def kind_of_mlir(text: str) -> int | None:
    return MLIR.get(text)


def kind_of_xla(name: str) -> int | None:
    """Of XLA's own name, as BF16."""
    return next((kind for kind in DTYPES if DTypeProto.Kind.Name(kind) == f"KIND_{name}"), None)


def name_of(kind: int) -> str:
    """The kind's name, for error texts."""
    try:
        return str(DTypeProto.Kind.Name(kind)).removeprefix("KIND_").lower()
    except ValueError:
        return f"kind {kind}"
