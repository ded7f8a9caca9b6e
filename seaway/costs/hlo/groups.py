"""Which devices exchange with each other, in the three ways in which HLO writes it.

    {{0,1},{2,3}}                    listed
    [256,8]<=[2048]                  2048 devices, cut into 256 groups of 8
    [8,256]<=[256,8]T(1,0)           the same devices, laid out 256 by 8, transposed, then cut
    mesh['a'=8,'b'=4] {'a'}          one group for each place on the axes that are not named

A group is described as nested (size, stride), major first: ((8, 1),) are eight neighbours, ((256, 8),) is every
eighth of 2048, and () is all devices. Devices are numbered as the program's mesh numbers them.
"""

from __future__ import annotations

import re
from math import prod

import numpy as np
from numpy.typing import NDArray

LISTED = re.compile(r"\{(\{.*?\})?\}")
IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
MESH = re.compile(r"(?:@?\w+\s*)?mesh\[([^\]]*)\](?:\s*,?\s*device_ids=\(([^)]*)\))?\s*\{([^}]*)\}")
AXIS = re.compile(r"['\"]?([^'\"=:,\s]+)['\"]?\s*=\s*(\d+)")
NAMED = re.compile(r"['\"]?([^'\"=:,\s]+)['\"]?(?::\((\d+)\)(\d+))?")
ATTRIBUTE = re.compile(
    r"replica_groups=("
    r"\{\{.*?\}\}|\{\}|"
    r"\[[\d,]*\]<=\[[\d,]*\](?:T\([\d,]*\))?|"
    r"mesh\[.*?\][^{]*\{[^}]*\})"
)
PAIRS = re.compile(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}")

Groups = NDArray[np.int64]
Nested = tuple[tuple[int, int], ...]


class BadGroups(ValueError):
    pass


def members(text: str, devices: int) -> list[list[int]]:
    """All groups; `devices` is how many there are, for `{}`, which is all of them."""
    if text in ("{}", ""):
        return [list(range(devices))]
    if text.startswith("{{"):
        return [[int(one) for one in part.split(",") if one] for part in re.findall(r"\{([\d,]*)\}", text)]
    if match := IOTA.fullmatch(text):
        return _listed(_iota(match))
    if match := MESH.fullmatch(text):
        return _listed(_mesh(match))
    raise BadGroups(f"replica groups {text!r} are written in no way that is known")


def _listed(groups: Groups) -> list[list[int]]:
    return [[int(device) for device in group] for group in groups]


def _ints(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def _iota(match: re.Match[str]) -> Groups:
    shape, dims = _ints(match[1]), _ints(match[2])
    ids = np.arange(prod(dims), dtype=np.int64).reshape(dims)
    if match[3]:
        ids = ids.transpose(_ints(match[3]))
    return ids.reshape(shape[0], prod(shape[1:]))


def _mesh(match: re.Match[str]) -> Groups:
    """Axes may be cut: `'a':(2)4` is the part of 4 of an axis of which 2 come before it."""
    sizes = {name: int(size) for name, size in AXIS.findall(match[1])}
    ids = np.arange(prod(sizes.values()), dtype=np.int64)
    if match[2]:
        ids = np.array(_ints(match[2].replace(" ", "")), dtype=np.int64)
    wanted = [
        (name, int(before or 1), int(size or sizes[name])) for name, before, size in NAMED.findall(match[3])
    ]
    dims: list[int] = []
    chosen: dict[tuple[str, int], int] = {}
    for name, size in sizes.items():
        cut = 1
        for _, before, part in sorted(one for one in wanted if one[0] == name):
            if before > cut:
                dims.append(before // cut)
            chosen[name, before] = len(dims)
            dims.append(part)
            cut = before * part
        dims.append(size // cut)
    inside = [chosen[name, before] for name, before, _ in wanted]
    outside = [axis for axis in range(len(dims)) if axis not in inside]
    return ids.reshape(dims).transpose(outside + inside).reshape(-1, prod(dims[axis] for axis in inside))


def rings(pairs: list[tuple[int, int]]) -> list[list[int]]:
    """Of a permutation: the devices that are joined by sending, a group each, sorted."""
    home = {device: device for pair in pairs for device in pair}

    def find(device: int) -> int:
        while home[device] != device:
            home[device] = home[home[device]]
            device = home[device]
        return device

    for source, target in pairs:
        home[find(source)] = find(target)
    groups: dict[int, list[int]] = {}
    for device in sorted(home):
        groups.setdefault(find(device), []).append(device)
    return sorted(groups.values())


def pairs_of(text: str) -> list[tuple[int, int]]:
    return [(int(source), int(target)) for source, target in re.findall(r"\{(\d+),(\d+)\}", text)]


def nested(groups: list[list[int]], devices: int) -> tuple[Nested, bool]:
    """The first of the largest groups as nested (size, stride), and whether that describes them all exactly."""
    first = max(groups, key=len)
    if len(first) == devices:
        return (), all(len(group) == devices for group in groups)
    offsets = _offsets(first)
    levels: list[tuple[int, int]] = []
    rest = offsets
    while len(rest) > 1:
        stride = rest[1] - rest[0]
        size = next((n for n in range(1, len(rest)) if rest[n] != n * stride), len(rest))
        while len(rest) % size:
            size -= 1
        if size == 1:
            return ((len(first), max(1, offsets[-1] // (len(first) - 1))),), False
        levels.append((size, stride))
        rest = rest[::size]
    found = tuple(reversed(levels)) or ((1, 1),)
    regular = expand(found) == offsets and all(_offsets(group) == offsets for group in groups)
    return found, regular


def _offsets(group: list[int]) -> list[int]:
    ordered = sorted(group)
    return [device - ordered[0] for device in ordered]


def expand(levels: Nested) -> list[int]:
    """The devices of the group of device 0."""
    found = [0]
    for size, stride in levels:
        found = [device + place * stride for device in found for place in range(size)]
    return sorted(found)
