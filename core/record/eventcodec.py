"""Encodes the events of any machine as (kind, fields): an index into a fixed list of Structs, and its fields' values.

Effects have no tags, since most of them never leave their process, so the index takes the place of a tag. A field that
may hold any message is decoded as the union of all messages (link/codec.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from hashlib import blake2b
from typing import Any, get_args, get_type_hints

import msgspec

from ..link import Message
from ..model import account, place, plan, program, topology
from ..protocol import EFFECTS, MESSAGES, Command, Event


class UnknownKind(Exception):
    """The kind of an event is not in the list."""


def _structs(module: Any) -> Iterable[type[msgspec.Struct]]:
    return (
        found
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, msgspec.Struct) and found.__module__ == module.__name__
    )


def _fields(kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    """Return the types of its fields, with the union of all messages in place of `msgspec.Struct`."""
    hints = get_type_hints(kind)
    return tuple(Message if hints[name] is msgspec.Struct else hints[name] for name in kind.__struct_fields__)


@cache
def _kinds() -> tuple[type[msgspec.Struct], ...]:
    return (
        *(kind for module in EFFECTS for kind in _structs(module) if kind not in (Event, Command)),
        *get_args(Message),
    )


def _described(kind: type[msgspec.Struct]) -> str:
    notes: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        notes.update(getattr(base, "__annotations__", {}))
    fields = ", ".join(f"{name}: {notes[name]}" for name in kind.__struct_fields__)
    return f"{kind.__qualname__}({fields}) {kind.__struct_config__.tag!r}"


def _text(kinds: Iterable[type[msgspec.Struct]]) -> bytes:
    return "\n".join(_described(kind) for kind in kinds).encode()


def fingerprint(modules: Iterable[Any]) -> str:
    """Return a hash of all kinds of messages in these modules, with their fields."""
    kinds = [kind for module in modules for kind in _structs(module)]
    return blake2b(_text(kinds), digest_size=4).hexdigest()


class EventCodec:
    """Encodes and decodes events."""

    def __init__(self) -> None:
        self._types = _kinds()
        self._index = {kind: index for index, kind in enumerate(self._types)}
        self._decoders: dict[int, msgspec.msgpack.Decoder[Any]] = {}
        self._encoder = msgspec.msgpack.Encoder()

    @property
    def vocabulary(self) -> str:
        """A hash of all kinds, with their fields, and of all kinds of Structs in their fields."""
        parts = [kind for module in (*MESSAGES, account, place, plan, program, topology) for kind in _structs(module)]
        return blake2b(_text([*self._types, *parts]), digest_size=8).hexdigest()

    def encode(self, event: msgspec.Struct) -> tuple[int, bytes]:
        index = self._index.get(type(event))
        if index is None:
            raise UnknownKind(f"a log does not know events of kind {type(event).__qualname__}")
        return index, self._encoder.encode(msgspec.structs.astuple(event))

    def decode(self, kind: int, fields: bytes | msgspec.Raw) -> Any:
        if not 0 <= kind < len(self._types):
            raise UnknownKind(f"an event has kind {kind}, but there are only {len(self._types)}")
        decoder = self._decoders.get(kind)
        if decoder is None:
            types = _fields(self._types[kind])
            decoder = self._decoders[kind] = msgspec.msgpack.Decoder(tuple[types])  # type: ignore[valid-type]
        return self._types[kind](*decoder.decode(fields))
