"""Compile options as a client of the protocol sends them. `backend.xla` says what of them is safe.

safe_options(XlaCompileOptionsProto bytes, known devices) -> (CompileOptionsProto bytes, devices of the program)
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from backend import xla

from ..protocol import XlaCompileOptionsProto
from .session_devices import invalid


def safe_options(data: bytes, known: int) -> tuple[bytes, tuple[int, ...]]:
    """Raises StatusError. `known`: the session's devices are numbered below this."""
    try:
        given = XlaCompileOptionsProto.FromString(data).compile_options
        return xla.safe_options(given.SerializeToString(), known)
    except DecodeError:
        raise invalid("the compile options cannot be read") from None
    except xla.UnsafeOptions as wrong:
        raise invalid(str(wrong)) from None
