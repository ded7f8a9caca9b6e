"""Parses and prints durations and sizes: "330us", "1.5 ms", "4B", "64 MiB".

Durations become whole nanoseconds and sizes whole bytes. A plain integer is a number of bytes, but it is no time: it
could be seconds as well as nanoseconds. So each parameter of Seaway that takes a time takes a `Time`, and refuses a
number without a unit, except 0. Core, the simulator and their records (`Config`, `Kernel`, `Arrival`) count whole
nanoseconds.
"""

import re
from datetime import timedelta
from difflib import get_close_matches
from fractions import Fraction
from typing import Literal

from core.model import Impossible

NUMBER = re.compile(r"\s*([+-]?[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([^\d\s.]*)\s*")
TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
SAME = {"µs": "us", "μs": "us", "sec": "s", "m": "min", "b": "B", "bytes": "B", "byte": "B"}
LETTERS = "KMGTP"
SIZES = (
    {"B": 1, "kB": 10**3, "KB": 10**3}
    | {f"{letter}B": 1000 ** (power + 1) for power, letter in enumerate(LETTERS)}
    | {f"{letter}iB": 1024 ** (power + 1) for power, letter in enumerate(LETTERS)}
)
LARGEST = 2**62


class Nanoseconds(int):
    """A time that Seaway hands out, such as `trace.span`: an integer whose unit is known, so it is taken as a time."""


Time = str | timedelta | Nanoseconds | Literal[0]


def duration(value: Time, what: str = "duration") -> int:
    """Whole nanoseconds."""
    wanted = "a time with its unit, as '330us' or '1.5 ms'"
    if isinstance(value, timedelta):  # pandas' has nanoseconds besides
        whole = value // timedelta(microseconds=1) * 1000 + getattr(value, "nanoseconds", 0)
        return _quantity(whole, what, TIMES, wanted)
    number: object = value  # the user may have given anything
    if isinstance(number, int | float) and not isinstance(number, bool | Nanoseconds) and number != 0:
        raise Impossible(f"{what} cannot be {value!r}, a number without a unit: write '{value}s' or '{value}ns'")
    return _quantity(0 if number == 0 and not isinstance(number, bool) else value, what, TIMES, wanted)


def nbytes(value: str | int, what: str = "size") -> int:
    return _quantity(value, what, SIZES, "a size with its unit, as '4B' or '64 MiB', or whole bytes")


def _quantity(value: str | int, what: str, units: dict[str, int], wanted: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        number, scale = Fraction(value), 1
    else:
        match = NUMBER.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise Impossible(f"{what} cannot be {value!r}: write {wanted}")
        number = Fraction(match[1].replace("_", ""))
        scale = _scale(f"{what} {value!r}", match[2], units, wanted)
    result = number * scale
    if result < 0:
        raise Impossible(f"{what} cannot be {value!r}: it is negative")
    if result > LARGEST:
        raise Impossible(f"{what} cannot be {value!r}: it is too large")
    if 0 < result < 1:
        raise Impossible(f"{what} cannot be {value!r}: that is less than one {next(iter(units))}")
    return round(result)


def _scale(who: str, unit: str, units: dict[str, int], wanted: str) -> int:
    unit = SAME.get(unit, unit) if SAME.get(unit, unit) in units else unit
    if unit in units:
        return units[unit]
    if not unit:
        raise Impossible(f"{who} has no unit: write {wanted}")
    near = [name for name in units if name.lower() == unit.lower()] or get_close_matches(unit, units, 1, 0.3)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise Impossible(f"{who} has an unknown unit, {unit!r}: {hint}there is {', '.join(units)}")


def show_time(ns: float) -> str:
    for unit in ("s", "ms", "us"):
        if ns >= TIMES[unit]:
            return f"{ns / TIMES[unit]:.4g} {unit}"
    return f"{ns:.4g} ns"


def show_bytes(count: float) -> str:
    for power in range(len(LETTERS), 0, -1):
        if count >= 1024**power:
            return f"{count / 1024**power:.4g} {LETTERS[power - 1]}iB"
    return f"{count:.4g} B"
