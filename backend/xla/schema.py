"""Classes of the protobuf messages of XLA and of IFRT's proxy.

protos/*.proto          what the messages are
protos/messages.binpb   the same, compiled: `make protos` writes it, and a test compares the two
compile_options         uses XLA's; door.protocol the others
"""

from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper


def message_classes(*packages: str) -> dict[str, Any]:
    """The class of each message and the wrapper of each enumeration of the packages, by full name."""
    compiled = resources.files(__package__).joinpath("protos", "messages.binpb").read_bytes()
    files = descriptor_pb2.FileDescriptorSet.FromString(compiled).file
    # A pool of our own: another library may have the same messages in the default one.
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    classes: dict[str, Any] = {}
    for file in files:
        if file.package in packages:
            for message in file.message_type:
                name = f"{file.package}.{message.name}"
                classes[name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
            for enum in file.enum_type:
                name = f"{file.package}.{enum.name}"
                classes[name] = enum_type_wrapper.EnumTypeWrapper(pool.FindEnumTypeByName(name))
    return classes


StatusCode: Any = message_classes("tensorflow.error")["tensorflow.error.Code"]  # as numbered by gRPC and XLA


class StatusError(Exception):
    """An error as the client will see it: a status code of the protocol, and a text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text
