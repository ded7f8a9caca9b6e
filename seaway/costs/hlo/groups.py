"""Parses replica groups, the sets of devices that exchange with each other, in the three notations of HLO.

    {{0,1},{2,3}}                                     listed
    [256,8]<=[2048]                                   2048 devices, cut into 256 groups of 8
    [8,256]<=[256,8]T(1,0)                            the same devices, laid out 256 by 8, transposed, then cut
    mesh['a'=8,'b'=4] {'a'}                           one group for each place on the axes that are not named
    mesh['a'=4,'b'=2], device_ids=(6,7,...) {'a'}     the devices at the mesh's places, major axis first: listed,
    mesh['a'=16,'b'=64], device_ids=([64,16]T(1,0)) {'a'}    or all of them, laid out 64 by 16, transposed
    mesh['a'=8] {'a':(2)4}                            a part of an axis: size 4, with 2 before it

A group is described as nested (size, stride), major first: ((8, 1),) are eight neighbours, ((256, 8),) is every
eighth of 2048, and () is all devices. Devices are numbered as the program's mesh numbers them.
"""

import re
from math import prod

import numpy as np
from numpy.typing import NDArray

IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
LAID_OUT = re.compile(r"\[([\d,]+)\](?:T\(([\d,]+)\))?")
IDS = r"\s*,?\s*device_ids=\((\[[\d,]+\](?:T\([\d,]+\))?|[\d,\s]*)\)"
MESH = re.compile(r"mesh\[([^\]]*)\](?:" + IDS + r")?\s*\{([^}]*)\}")
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
    """All groups. `devices`: how many there are, since `{}` means all."""
    if text in ("{}", ""):
        return [list(range(devices))]
    if text.startswith("{{"):
        return [[int(one) for one in part.split(",") if one] for part in re.findall(r"\{([\d,]*)\}", text)]
    if match := IOTA.fullmatch(text):
        return _listed(_iota(match))
    if match := MESH.fullmatch(text):
        return _listed(_mesh(match))
    raise BadGroups(f"replica groups {text!r} are in an unknown notation")


def _listed(groups: Groups) -> list[list[int]]:
    return [[int(device) for device in group] for group in groups]


def _ints(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def _iota(match: re.Match[str]) -> Groups:
    shape = _ints(match[1])
    return _laid_out(match[2], match[3]).reshape(shape[0], prod(shape[1:]))


def _laid_out(dims: str, order: str | None) -> Groups:
    """All devices, in the order that a layout and the transposition of its axes give."""
    sizes = _ints(dims)
    ids = np.arange(prod(sizes), dtype=np.int64).reshape(sizes)
    return (ids.transpose(_ints(order)) if order else ids).reshape(-1)


def _mesh(match: re.Match[str]) -> Groups:
    """Groups along axes of a mesh. An axis may be cut: `'a':(2)4` is a part of size 4, with 2 before it."""
    sizes = {name: int(size) for name, size in AXIS.findall(match[1])}
    wanted = [
        (name, int(before or 1), int(size or sizes.get(name, 0))) for name, before, size in NAMED.findall(match[3])
    ]
    if unknown := [name for name, _, _ in wanted if name not in sizes]:
        raise BadGroups(f"replica groups {match[0]!r} go along {unknown[0]!r}, which is no axis of their mesh")
    ids = _ids(match[2], prod(sizes.values()), match[0])
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
    if prod(dims) != len(ids):
        raise BadGroups(f"replica groups {match[0]!r} cut an axis into parts that do not add up to it")
    inside = [chosen[name, before] for name, before, _ in wanted]
    outside = [axis for axis in range(len(dims)) if axis not in inside]
    return ids.reshape(dims).transpose(outside + inside).reshape(-1, prod(dims[axis] for axis in inside))


def _ids(text: str | None, places: int, whole: str) -> Groups:
    """The device at each place of a mesh."""
    if text is None:
        return np.arange(places, dtype=np.int64)
    layout = LAID_OUT.fullmatch(text)
    listed = np.array([] if layout else _ints(text.replace(" ", "")), dtype=np.int64)
    ids = _laid_out(layout[1], layout[2]) if layout else listed
    if len(ids) != places:
        raise BadGroups(f"replica groups {whole!r} have {len(ids)} devices for {places} places of their mesh")
    return ids


def rings(pairs: list[tuple[int, int]]) -> list[list[int]]:
    """Groups of devices that a permutation connects, sorted."""
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
