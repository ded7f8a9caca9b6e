"""Layouts: from the text in which XLA writes them, `{1,0:T(8,128)E(4)S(5)}`, to the protocol's messages."""

from __future__ import annotations

import re
from typing import Any

from ...protocol import XlaLayoutProto
from ..session_devices import unsupported

LAYOUT = re.compile(r"\{([\d,]*)(?::(.*))?\}")
TILES, ELEMENT, SPACE = (re.compile(text) for text in (r"T((?:\([\d,]+\))+)", r"E\((\d+)\)", r"S\((\d+)\)"))
KNOWN = re.compile(r"(?:T(?:\([\d,]+\))+|E\(\d+\)|S\(\d+\))*")


def layout_proto(text: str) -> Any:
    found = LAYOUT.fullmatch(text)
    if found is None or not KNOWN.fullmatch(found[2] or ""):
        raise unsupported(f"the layout {text!r} cannot be said to a client")
    layout, more = XlaLayoutProto(), found[2] or ""
    layout.minor_to_major.extend(_numbers(found[1]))
    if tiles := TILES.search(more):
        for tile in tiles[1].strip("()").split(")("):
            layout.tiles.add(dimensions=_numbers(tile))
    if bits := ELEMENT.search(more):
        layout.element_size_in_bits = int(bits[1])
    if space := SPACE.search(more):
        layout.memory_space = int(space[1])
    return layout


def serialized_layout(text: str) -> bytes:
    """As clients expect the default layout: its text."""
    return text.encode()


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]
