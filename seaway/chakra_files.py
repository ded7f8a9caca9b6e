"""Files of Chakra execution traces (MLCommons): protobuf messages, each behind its length; plain, or packed by gzip.

    NAME.0.et  NAME.1.et  ...    a rank each: GlobalMetadata, then Nodes
    comm_group.json              {"1": [0, 1], ...}: the ranks of each group that is not all of them, for ASTRA-sim

The schema is `et_def.proto` of version 1.0.0; of its attributes only those of one value and lists of bools are read.
A file may be a stranger's: whatever is wrong with it is a ValueError that names the file.

Neighbours: `trace.chakra` writes nodes; `workload.chakra_ranks` makes sense of those that are read. The
functions that matter: `framed`, `messages`, `attribute`.
"""

import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from .file_reading import plain_bytes

VERSION = "1.0.0"  # of the schema
GROUPS = "comm_group.json"
MOST = 1 << 30  # bytes of a file, unpacked
METADATA, COMPUTE, SEND, RECV, COLLECTIVE = 1, 4, 5, 6, 7  # types of nodes; 2 and 3 load and store
SCHEMA = {  # message -> fields: number, type, name; "*": repeated, "?": one of them
    "BoolList": "1 *bool values",
    "AttributeProto": "1 string name, 3 ?double double_val, 5 ?float float_val, 7 ?int32 int32_val, "
    "9 ?int64 int64_val, 11 ?uint32 uint32_val, 13 ?uint64 uint64_val, 15 ?sint32 sint32_val, 17 ?sint64 sint64_val, "
    "19 ?fixed32 fixed32_val, 21 ?fixed64 fixed64_val, 23 ?sfixed32 sfixed32_val, 25 ?sfixed64 sfixed64_val, "
    "27 ?bool bool_val, 28 ?BoolList bool_list, 29 ?string string_val",
    "GlobalMetadata": "1 string version, 2 *AttributeProto attr",
    "Node": "1 uint64 id, 2 string name, 3 int32 type, 4 *uint64 ctrl_deps, 5 *uint64 data_deps, "
    "6 uint64 start_time_micros, 7 uint64 duration_micros, 10 *AttributeProto attr",
}


@cache
def classes() -> dict[str, Any]:
    """The class of each message, by name."""
    package, field_type = "ChakraProtoMsg", descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package=package, syntax="proto3")
    for message, fields in SCHEMA.items():
        made = file.message_type.add(name=message)
        for field in fields.split(", "):
            number, kind, name = field.split()
            label = field_type.LABEL_REPEATED if kind[0] == "*" else field_type.LABEL_OPTIONAL
            plain = kind.lstrip("*?")
            one: dict[str, Any] = {"name": name, "number": int(number), "label": label}
            if plain in SCHEMA:
                one |= {"type": field_type.TYPE_MESSAGE, "type_name": f".{package}.{plain}"}
            else:
                one["type"] = getattr(field_type, f"TYPE_{plain.upper()}")
            if kind[0] == "?":
                if not made.oneof_decl:
                    made.oneof_decl.add(name="value")
                one["oneof_index"] = 0
            made.field.add(**one)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in SCHEMA}


def attribute(name: str, kind: str, value: Any) -> Any:
    """`kind`: of number, such as int64. The published readers look for each attribute under one kind."""
    return classes()["AttributeProto"](name=name, **{f"{kind}_val": value})


def framed(message: Any) -> bytes:
    """The message behind its length."""
    data: bytes = message.SerializeToString()
    length, head = len(data), bytearray()
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + data


def messages(path: Path) -> Iterator[Any]:
    """The metadata, then the nodes. Raises ValueError, which names the file and says which message is damaged."""
    try:
        data, at, number = _unpacked(plain_bytes(path, MOST)), 0, 0
        while at < len(data):
            size, at = _length(data, at, number)
            if at + size > len(data):
                raise ValueError(f"it ends within {_which(number)}")
            message = classes()["Node" if number else "GlobalMetadata"]()
            try:
                message.ParseFromString(data[at : at + size])
            except DecodeError:
                raise ValueError(f"{_which(number)} is damaged") from None
            yield message
            at, number = at + size, number + 1
        if not number:
            raise ValueError("it is empty")
    except ValueError as error:
        raise ValueError(f"{path} is no Chakra execution trace: {error}") from None


def _which(number: int) -> str:
    return f"node {number} of the file" if number else "its metadata"


def _length(data: bytes, at: int, number: int) -> tuple[int, int]:
    size = 0
    for shift in range(0, 35, 7):
        if at == len(data):
            break
        byte, at = data[at], at + 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size, at
    raise ValueError(f"the length of {_which(number)} is damaged")


def _unpacked(data: bytes) -> bytes:
    if data[:2] != b"\x1f\x8b":
        return data
    unzip, found, rest = zlib.decompressobj(31), b"", data
    try:
        while rest:
            found += unzip.decompress(rest, MOST + 1 - len(found))
            if len(found) > MOST:
                raise ValueError(f"unpacked, it has more than {MOST:,} bytes")
            if not unzip.eof:
                raise ValueError("its last part is missing")
            rest, unzip = unzip.unused_data, zlib.decompressobj(31)
    except zlib.error as error:
        raise ValueError(f"it is packed, and damaged: {error}") from None
    return found
