"""What the JSON of plug-in programs says: values of a kind, texts, shardings. All of it comes from the client.

Neighbours: `plugin_programs`, `persistence`.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError

from ...protocol import OpSharding, ShardingError, ShardSpec, checked_devices, tiles_of
from ..session_devices import invalid
from ..session_state import SessionState

KINDS: Mapping[type, str] = {
    dict: "no JSON object", list: "no list of one or more", str: "no text", bool: "neither true nor false",
}  # fmt: skip


def json_value(kind: type, given: Any, what: str) -> Any:
    if type(given) is not kind or (kind is list and not given):
        raise invalid(f"{what[:60]!r} of a plug-in program is {KINDS[kind]}")
    return given


def numbers_of(given: Any, what: str) -> tuple[int, ...]:
    if type(given) is not list or any(type(each) is not int for each in given):
        raise invalid(f"{what!r} of a plug-in program are no numbers")
    return tuple(given)


def text_of(given: Any, what: str) -> str:
    """Of base64."""
    try:
        return base64.b64decode(json_value(str, given, what), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise invalid(f"{what!r} of a plug-in program is no text in base64") from None


def sharding_of(state: SessionState, given: Any, key: str = "xla_hlo_sharding") -> ShardSpec:
    """`{devices: {device_ids}, KEY: base64 of an OpSharding, memory_kind?}`"""
    fields = json_value(dict, given, "a sharding")
    asked = json_value(dict, fields.get("devices"), "devices").get("device_ids")
    ids = numbers_of(json_value(list, asked, "device_ids"), "device_ids")
    kind = json_value(str, fields.get("memory_kind", ""), "memory_kind")
    try:
        serialized = base64.b64decode(json_value(str, fields.get(key), key), validate=True)
        devices = checked_devices(ids, state.count)
        tiles = tiles_of(OpSharding.FromString(serialized), len(devices))
    except (ShardingError, DecodeError, ValueError) as error:
        raise invalid(f"a sharding of a plug-in program cannot be read: {error}") from None
    return ShardSpec(devices, tiles, "" if kind == state.devices.platform.default_memory_kind() else kind)
