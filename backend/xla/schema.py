"""Classes of protobuf messages, made of text in the language of .proto files (proto3) when the module is imported.

xla_schema             XLA's messages, whose classes `compile_options` uses
door.ifrt_messages     the classes that the door uses

`message_classes(texts)` returns the class of each message and the wrapper of each enumeration, by full name;
`file_descriptors(texts)` what they are made of. Known are packages, messages, enumerations, oneofs, maps, `optional`,
`repeated` and `[packed = ...]`: what the texts need. So there is no protoc at build time, and no generated file that
nobody can read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper

__all__ = ["SchemaError", "file_descriptors", "message_classes"]

Field = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    name: Field.Type.Value(f"TYPE_{name.upper()}")
    for name in (
        *("bool", "int32", "int64", "uint32", "uint64", "fixed32", "fixed64", "sfixed64"),
        *("float", "double", "string", "bytes"),
    )
}
TOKEN = re.compile(r"\s*([\w.]+|[{}=;<>,\[\]])")


class SchemaError(ValueError):
    """The text is not of the language above, or names a type that it does not define."""


def message_classes(*texts: str) -> dict[str, Any]:
    """The class of each message and the wrapper of each enumeration in the texts, by full name."""
    pool = (
        descriptor_pool.DescriptorPool()
    )  # not the default one: another library may have the same messages there
    files = file_descriptors(*texts)
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    classes: dict[str, Any] = {}
    for file in files:
        for message in file.message_type:
            name = f"{file.package}.{message.name}"
            classes[name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        for enum in file.enum_type:
            name = f"{file.package}.{enum.name}"
            classes[name] = enum_type_wrapper.EnumTypeWrapper(pool.FindEnumTypeByName(name))
    return classes


def file_descriptors(*texts: str) -> list[Any]:
    """One FileDescriptorProto for each package, each depending on those before it."""
    files: list[Any] = []
    for text in texts:
        _Parser(text, files).read()
    types = dict(_types_of(files))
    for file in files:
        for message in file.message_type:
            _resolve(message, f"{file.package}.{message.name}", types)
    return files


class _Parser:
    """Reads one text, token by token, into `files`. Names of types stay as they are written."""

    def __init__(self, text: str, files: list[Any]) -> None:
        self.tokens = _tokens(text)
        self.files = files

    def next(self) -> str:
        return next(self.tokens, "")

    def expect(self, wanted: str) -> None:
        if (token := self.next()) != wanted:
            raise SchemaError(f"{wanted!r} is expected, {token or 'the end'!r} found")

    def read(self) -> None:
        while word := self.next():
            if word == "package":
                package = self.next()
                earlier = [file.name for file in self.files]
                self.files.append(
                    descriptor_pb2.FileDescriptorProto(
                        name=f"seaway/{package}.proto", package=package, syntax="proto3", dependency=earlier
                    )
                )
                self.expect(";")
            elif word == "message" and self.files:
                self.message(self.files[-1].message_type.add())
            elif word == "enum" and self.files:
                self.enum(self.files[-1].enum_type.add())
            else:
                raise SchemaError(f"a package, message or enum is expected, {word!r} found")

    def enum(self, enum: Any) -> None:
        enum.name = self.next()
        self.expect("{")
        while (name := self.next()) != "}":
            self.expect("=")
            enum.value.add(name=name, number=self.number())
            self.expect(";")

    def message(self, message: Any) -> None:
        message.name = self.next()
        self.expect("{")
        while (word := self.next()) != "}":
            if word == "message":
                self.message(message.nested_type.add())
            elif word == "enum":
                self.enum(message.enum_type.add())
            elif word == "oneof":
                message.oneof_decl.add(name=self.next())
                index = len(message.oneof_decl) - 1
                self.expect("{")
                while (word := self.next()) != "}":
                    self.field(message, word).oneof_index = index
            else:
                self.field(message, word)
        _synthetic_oneofs(message)

    def field(self, message: Any, word: str) -> Any:
        """`[optional|repeated] TYPE NAME = NUMBER [packed = false];` or `map<KEY, VALUE> NAME = NUMBER;`"""
        field = message.field.add(label=Field.LABEL_OPTIONAL)
        if word == "map":
            self.expect("<")
            entry = [self.next(), self.next(), self.next()]
            self.expect(">")
            field.name = self.next()
            field.label = Field.LABEL_REPEATED
            field.type_name = _add_map_entry(message, field.name, entry[0], entry[2])
        else:
            if word in ("optional", "repeated"):
                field.proto3_optional = word == "optional"
                field.label = Field.LABEL_OPTIONAL if word == "optional" else Field.LABEL_REPEATED
                word = self.next()
            _set_type(field, word)
            field.name = self.next()
        self.expect("=")
        field.number = self.number()
        end = self.next()
        if end == "[":
            self.expect("packed")
            self.expect("=")
            field.options.packed = self.next() == "true"
            self.expect("]")
            end = self.next()
        if end != ";":
            raise SchemaError(f"';' is expected after field {field.name}, {end or 'the end'!r} found")
        return field

    def number(self) -> int:
        text = self.next()
        if not text.isdigit():
            raise SchemaError(f"a number is expected, {text or 'the end'!r} found")
        return int(text)


def _tokens(text: str) -> Iterator[str]:
    at, text = 0, text.rstrip()
    while at < len(text):
        found = TOKEN.match(text, at)
        if found is None:
            raise SchemaError(f"not of the language: {text[at : at + 40].strip()!r}")
        yield found[1]
        at = found.end()


def _set_type(field: Any, name: str) -> None:
    if name in SCALARS:
        field.type = SCALARS[name]
    else:
        field.type_name = name  # `_resolve` finds out whether it is a message


def _add_map_entry(message: Any, name: str, key: str, value: str) -> str:
    """protobuf's form of a map: a repeated message of key and value, which is nested in the map's message."""
    entry = message.nested_type.add(name="".join(part.title() for part in name.split("_")) + "Entry")
    entry.options.map_entry = True
    for number, (part, written) in enumerate((("key", key), ("value", value)), 1):
        _set_type(entry.field.add(name=part, number=number, label=Field.LABEL_OPTIONAL), written)
    return str(entry.name)


def _synthetic_oneofs(message: Any) -> None:
    """protobuf's form of `optional`: a oneof of one field. These come after all others."""
    for field in message.field:
        if field.proto3_optional:
            message.oneof_decl.add(name=f"_{field.name}")
            field.oneof_index = len(message.oneof_decl) - 1
        elif field.HasField("proto3_optional"):
            field.ClearField("proto3_optional")


def _types_of(files: list[Any]) -> Iterator[tuple[str, int]]:
    def inside(message: Any, name: str) -> Iterator[tuple[str, int]]:
        yield name, Field.TYPE_MESSAGE
        yield from ((f"{name}.{enum.name}", Field.TYPE_ENUM) for enum in message.enum_type)
        for nested in message.nested_type:
            yield from inside(nested, f"{name}.{nested.name}")

    for file in files:
        yield from ((f"{file.package}.{enum.name}", Field.TYPE_ENUM) for enum in file.enum_type)
        for message in file.message_type:
            yield from inside(message, f"{file.package}.{message.name}")


def _resolve(message: Any, scope: str, types: dict[str, int]) -> None:
    """Gives each field its type's full name: the innermost of the enclosing scopes that has the name."""
    for nested in message.nested_type:
        _resolve(nested, f"{scope}.{nested.name}", types)
    for field in message.field:
        if not field.type_name:
            continue
        parts = scope.split(".")
        around = [".".join([*parts[:n], field.type_name]) for n in range(len(parts), -1, -1)]
        name = next((name for name in around if name in types), None)
        if name is None:
            raise SchemaError(f"{scope}.{field.name}: no type {field.type_name}")
        field.type_name, field.type = f".{name}", types[name]
