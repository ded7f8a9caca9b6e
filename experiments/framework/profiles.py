"""Reads `--profile`: a profile of host costs by name or file, optionally with changed costs.

`paper` and `seaway` are names, `my.toml` is a file. `paper:send*2` is the paper's profile with one cost doubled, and
`paper:send*2+step=5us` also sets another one. Sensitivity runs use these too.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec.structs import replace

from sim.hardware import COSTS, Profile, profile

from .options import BadOption, nearest

UNITS = {"": 1, "ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
CHANGE = re.compile(r"(\w+)([*=])([0-9.]+)(\w*)")


@lru_cache(maxsize=64)
def profile_of(text: str) -> Profile:
    base, _, changes = text.partition(":")
    found = profile(base)
    for change in filter(None, changes.split("+")):
        match = CHANGE.fullmatch(change)
        if match is None or match[4] not in UNITS:
            raise BadOption(f"profile {text!r}: {change!r} is not a change; write field*factor or field=5us")
        field, how, number, unit = match.groups()
        if field not in COSTS:
            raise BadOption(f"profile {text!r}: no cost {field!r}; {nearest(field, COSTS)}")
        value = float(number) * (getattr(found, field) if how == "*" else UNITS[unit])
        found = found.changed(**{field: round(value)})
    return replace(found, name=text)


def describe(text: str) -> str:
    """Text for reports: the profile, and which of its costs are fitted to what."""
    found = profile_of(text)
    lines = [f"Host costs: profile `{text}`, {found.status}."]
    for field, to in found.fitted.items():
        lines.append(f"- fitted: `{field}` = {in_words(getattr(found, field))}, to {to}")
    return "\n".join(lines)


def in_words(ns: int) -> str:
    for unit, scale in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= scale:
            return f"{ns / scale:.4g} {unit}"
    return f"{ns} ns"
