"""The descriptors of all protobuf files in the installed jaxlib, found in its shared library.

A serialized FileDescriptorProto begins with the file's name (field 1); we walk its fields until one cannot be its.
"""

from __future__ import annotations

import functools
import importlib.util
import mmap
import re
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

BEGINNING = re.compile(rb"\x0a(.)((?:xla|google)/[a-z0-9_/]+\.proto)", re.DOTALL)
STRINGS_AND_MESSAGES = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12}  # field numbers of FileDescriptorProto
NUMBERS = {10, 11, 14}


@functools.cache
def wheel_files() -> dict[str, Any]:
    """FileDescriptorProto by file name."""
    spec = importlib.util.find_spec("jaxlib")
    assert spec is not None
    assert spec.origin is not None
    found = {}
    with (
        (Path(spec.origin).parent / "libjax_common.so").open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as library,
    ):
        for match in BEGINNING.finditer(library):
            name = library[match.start() + 2 : match.start() + 2 + match[1][0]]
            try:
                file_proto = descriptor_pb2.FileDescriptorProto.FromString(_descriptor_at(library, match.start()))
            except DecodeError:
                continue
            if file_proto.name.encode() == name:
                found[file_proto.name] = file_proto
    return found


def _descriptor_at(library: mmap.mmap, start: int) -> bytes:
    at = start
    while True:
        tag, after = _varint(library, at)
        number, wire = tag >> 3, tag & 7
        if number == 1 and at > start:  # the next file's name
            break
        if number in STRINGS_AND_MESSAGES and wire == 2:
            size, after = _varint(library, after)
            if size > 1 << 20:
                break
            at = after + size
        elif number in NUMBERS and wire == 0:
            _, at = _varint(library, after)
        else:
            break
    return library[start:at]


def _varint(library: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = library[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            break
    return value, at
