"""Events of any machine as (kind, fields): an index into a fixed list of Structs, and its fields' values.

Effects are plain Structs without tags, since most of them never leave their process; so the tag is kept
apart. A field that holds any message is read as the one union of all messages (wire.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import blake2b
from typing import Any, get_args, get_type_hints

import msgspec

from ..link import Message
from ..model import place, plan, program
from ..protocol import dataplane, effects, messages


class Unknown(Exception):
    """An event of a kind that is not in the list."""


def _structs(module: Any) -> Iterable[type[msgspec.Struct]]:
    return (
        found
        for found in vars(module).values()
        if isinstance(found, type)
        and issubclass(found, msgspec.Struct)
        and found.__module__ == module.__name__
    )


def _fields(kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    """Their types, with all messages in place of `msgspec.Struct`."""
    hints = get_type_hints(kind)
    return tuple(Message if hints[name] is msgspec.Struct else hints[name] for name in kind.__struct_fields__)


@cache
def _own_kinds() -> tuple[type[msgspec.Struct], ...]:
    return (*(kind for kind in _structs(effects) if kind is not effects.Effect), *get_args(Message))


def _described(kind: type[msgspec.Struct]) -> str:
    notes: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        notes.update(getattr(base, "__annotations__", {}))
    fields = ", ".join(f"{name}: {notes[name]}" for name in kind.__struct_fields__)
    return f"{kind.__qualname__}({fields}) {kind.__struct_config__.tag!r}"


def _text(kinds: Iterable[type[msgspec.Struct]]) -> bytes:
    return "\n".join(_described(kind) for kind in kinds).encode()


def fingerprint(modules: Iterable[Any]) -> str:
    """A hash of all kinds of messages in these modules, and of their fields."""
    kinds = [kind for module in modules for kind in _structs(module)]
    return blake2b(_text(kinds), digest_size=4).hexdigest()


class EventCodec:
    """`more`: kinds beyond core's effects and messages. Their order is part of the format of a log."""

    def __init__(self, more: Sequence[type[msgspec.Struct]] = ()) -> None:
        self._types = (*_own_kinds(), *more)
        self._index = {kind: index for index, kind in enumerate(self._types)}
        self._decoders: dict[int, msgspec.msgpack.Decoder[Any]] = {}
        self._encoder = msgspec.msgpack.Encoder()

    @property
    def vocabulary(self) -> str:
        """A hash of all kinds and of everything they are made of."""
        pieces = [kind for module in (messages, dataplane, place, plan, program) for kind in _structs(module)]
        return blake2b(_text([*self._types, *pieces]), digest_size=8).hexdigest()

    def encode(self, event: msgspec.Struct) -> tuple[int, bytes]:
        index = self._index.get(type(event))
        if index is None:
            raise Unknown(
                f"{type(event).__qualname__} is no kind of event that a log knows; pass it as `more`"
            )
        return index, self._encoder.encode(msgspec.structs.astuple(event))

    def decode(self, kind: int, fields: bytes | msgspec.Raw) -> Any:
        if not 0 <= kind < len(self._types):
            raise Unknown(f"event of kind {kind}, of {len(self._types)}")
        decoder = self._decoders.get(kind)
        if decoder is None:
            types = _fields(self._types[kind])
            decoder = self._decoders[kind] = msgspec.msgpack.Decoder(tuple[types])  # type: ignore[valid-type]
        return self._types[kind](*decoder.decode(fields))
