"""The messages are those of the installed jaxlib: fields' numbers, types and labels, and enumerations' values."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from backend import xla
from backend.door.protocol import ifrt_messages

from ..wheel_descriptors import wheel_files

PROTOS = Path(xla.__file__).parent / "protos"
NEW_IN_0_12 = {
    "xla.CompileOptionsProto.individually_defined_output_indices",
    "xla.ifrt.XlaCompileOptionsProto.version_number",
    "xla.ifrt.XlaCompileOptionsProto.outputs_bundle_slice_sizes",
    "xla.ifrt.DTypeProto.Kind.KIND_F6E2M3FN",
    "xla.ifrt.DTypeProto.Kind.KIND_F6E3M2FN",
}
Facts = dict[str, Any]


def facts_of(files: list[Any]) -> Facts:
    """What the wire depends on, by full name; a field's is (number, type, its type's name, label, packed, oneof)."""
    return dict(fact for file in files for fact in _facts(file, file.package, file.message_type))


def _facts(holder: Any, scope: str, messages: Any) -> Iterator[tuple[str, Any]]:
    for enum in holder.enum_type:
        yield from ((f"{scope}.{enum.name}.{value.name}", value.number) for value in enum.value)
    for message in messages:
        name = f"{scope}.{message.name}"
        yield name, "map entry" if message.options.map_entry else "message"
        for field in message.field:
            packed = field.options.packed if field.options.HasField("packed") else None
            oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None
            yield (f"{name}.{field.name}", (field.number, field.type, field.type_name, field.label, packed, oneof))
        yield from _facts(message, name, message.nested_type)


def compiled(folder: Path) -> list[Any]:
    """The folder's .proto files, as protoc compiles them."""
    out = folder / "again.binpb"
    command = [f"-I{folder}", f"--descriptor_set_out={out}", *sorted(path.name for path in folder.glob("*.proto"))]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *command], check=True)
    return list(descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file)


@pytest.fixture
def protos(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PROTOS, tmp_path / "protos"))


def test_the_compiled_messages_are_those_of_the_proto_files(protos: Path) -> None:
    kept = descriptor_pb2.FileDescriptorSet.FromString((PROTOS / "messages.binpb").read_bytes()).file
    assert facts_of(list(kept)) == facts_of(compiled(protos)), "run `make protos`"


def test_all_that_is_written_here_is_so_in_the_installed_wheel(protos: Path) -> None:
    wheel = facts_of(list(wheel_files().values()))
    new = set() if importlib.metadata.version("jaxlib") >= "0.12" else NEW_IN_0_12
    ours = facts_of(compiled(protos))
    assert len(ours) > 500
    wrong = {name: (fact, wheel.get(name)) for name, fact in ours.items() if wheel.get(name) != fact}
    assert set(wrong) == new, wrong


def test_every_request_of_the_protocol_has_a_name() -> None:
    for message in ("IfrtRequest", "IfrtResponse"):
        wheel = next(
            found
            for file in wheel_files().values()
            if file.package == "xla.ifrt.proxy"
            for found in file.message_type
            if found.name == message
        )
        ours = getattr(ifrt_messages, message).DESCRIPTOR.fields_by_name
        assert set(ours) == {field.name for field in wheel.field}


def test_a_name_that_the_protocol_lacks_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no message IfrtRequets"):
        _ = ifrt_messages.IfrtRequets
