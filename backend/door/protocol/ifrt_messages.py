"""The messages of the IFRT proxy protocol, as classes: what a client sends, and what it is answered.

backend.xla   has the .proto files, and makes the classes

The classes are made when the module is imported (some milliseconds), by `protobuf`'s C code. Names are the protocol's
own, but for three that it has twice: `XlaLayoutProto` and `XlaShapeProto` are package xla's, and `StatusCode` is
tensorflow.error.Code. Nested ones are attributes: `InitResponse.Device`, `DTypeProto.KIND_F32`.
"""

from __future__ import annotations

from typing import Any

from backend.xla import message_classes

RENAMED = {
    "xla.LayoutProto": "XlaLayoutProto",
    "xla.ShapeProto": "XlaShapeProto",
    "tensorflow.error.Code": "StatusCode",
}
PACKAGES = ("xla", "tensorflow.error", "tensorflow", "xla.ifrt", "xla.ifrt.proto", "xla.ifrt.proxy")

globals().update(
    {RENAMED.get(name, name.rpartition(".")[2]): found for name, found in message_classes(*PACKAGES).items()}
)


def __getattr__(name: str) -> Any:
    """So that type checkers know that there are more names."""
    raise AttributeError(f"the IFRT proxy protocol has no message {name}")
