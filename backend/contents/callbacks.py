"""Calls of a compiled program into its client's process, as bytes: what is asked, and what is answered.

    a host's forwarder --asked--> the door --> jax_plugins.seaway.callbacks, in the client's process
                       <--answered-----------

On each of these ways a message has a number ahead of it, by which its answer is known. Neighbours:
`pjrt.code.forwarders`, `agent.callback_lines`, `door.session`. This module does not import JAX.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any

import ml_dtypes  # noqa: F401 (so that numpy knows its types by their names)
import msgspec
import numpy as np

STREAM = "Callbacks"  # what a door asks a host for, to answer its programs' calls
NUMBER = Struct("<Q")
REST = Struct("<I")  # how many pieces of a message follow this one
PIECE = 16 << 20  # bytes of a message that travel as one
LONGEST_ERROR = 1800  # characters
LARGEST = 1 << 30  # bytes of a message
CALLBACK_S = 60.0  # seconds that a program waits for a function of its client's process, if nobody says otherwise
Operand = tuple[str, tuple[int, ...], bytes]  # type, shape, contents; no type: a token, which has no contents


class CallbackFault(Exception):
    """A function of the client's process that failed, or could not be called. The text is for the client."""


class CallAsked(msgspec.Struct, frozen=True, array_like=True):
    """`function`: as its client's process has numbered it."""

    function: int
    operands: tuple[Operand, ...]


class CallAnswered(msgspec.Struct, frozen=True, array_like=True):
    """`error`: why there are no results."""

    results: tuple[Operand, ...] = ()
    error: str = ""


def asked(function: int, operands: Sequence[Any]) -> bytes:
    return msgspec.msgpack.encode(CallAsked(function, tuple(map(_operand, operands))))


def answered(results: Sequence[Any]) -> bytes:
    return msgspec.msgpack.encode(CallAnswered(tuple(map(_operand, results))))


def failed(why: str) -> bytes:
    """What is left out of a long reason is its middle: a traceback says at its end what was wrong."""
    if len(why) > LONGEST_ERROR:
        why = f"{why[: LONGEST_ERROR // 4]}\n...\n{why[-3 * LONGEST_ERROR // 4 :]}"
    return msgspec.msgpack.encode(CallAnswered(error=why or "it failed"))


def call_of(body: bytes) -> tuple[int, list[Any]]:
    """Which function is called, and with what. Raises CallbackFault."""
    found = _decoded(body, CallAsked)
    return found.function, list(map(_array, found.operands))


def results_of(body: bytes) -> list[Any]:
    """Raises CallbackFault, also for what the answer says."""
    found = _decoded(body, CallAnswered)
    if found.error:
        raise CallbackFault(found.error)
    return list(map(_array, found.results))


def _decoded(body: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CallbackFault(f"a message about a callback cannot be read: {error}") from None


def _operand(value: Any) -> Operand:
    if value is None:
        return "", (), b""
    array = np.ascontiguousarray(value).reshape(np.shape(value))
    return array.dtype.name, array.shape, array.tobytes()


def _array(operand: Operand) -> Any:
    dtype, shape, data = operand
    if not dtype:
        return None
    try:
        if min(shape, default=0) < 0:
            raise ValueError(f"no shape is {shape}")
        return np.frombuffer(data, np.dtype(dtype)).reshape(shape)
    except (TypeError, ValueError) as error:
        raise CallbackFault(f"an array of a callback cannot be read: {error}") from None


# --- on streams whose messages are bounded -------------------------------------------------------------------------


def pieces(number: int, body: bytes) -> Iterator[bytes]:
    message = NUMBER.pack(number) + body
    count = max(1, -(-len(message) // PIECE))
    for at in range(count):
        yield REST.pack(count - 1 - at) + message[at * PIECE : (at + 1) * PIECE]


class Joined:
    """Messages of pieces that come in order."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, piece: bytes) -> tuple[int, bytes] | None:
        """The number and the body of a message, when its last piece has come. Raises CallbackFault."""
        if len(piece) < REST.size:
            raise CallbackFault("a piece of a message has no head")
        self._parts.append(piece[REST.size :])
        self._size += len(piece)
        if self._size > LARGEST:
            raise CallbackFault(f"a callback's arrays have more than {LARGEST >> 20} MiB")
        if REST.unpack_from(piece)[0]:
            return None
        message = b"".join(self._parts)
        self.__init__()  # type: ignore[misc]
        return split(message)


def split(message: bytes) -> tuple[int, bytes]:
    if len(message) < NUMBER.size:
        raise CallbackFault("a message about a callback has no number")
    return NUMBER.unpack_from(message)[0], message[NUMBER.size :]
