"""Options of experiments. An experiment declares them as data; the command line, its help and its errors follow.

    OPTIONS = (
        Option("hosts", (2, 8, 32), "hosts of the island"),
        Option("policy", ("fifo",), "scheduling policy", choices=("fifo", "stride")),
    )

An option has one value or several: `--hosts 2,8,32` on the command line, `hosts=[2, 8, 32]` in Python. An experiment
makes its points from them, mostly with `grid`, which gives every combination.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from itertools import product
from typing import Any

from msgspec.structs import replace

from seaway.units import show_time
from sim.hardware import COSTS, Profile, profile

Value = bool | int | float | str
Values = tuple[Value, ...]
Point = dict[str, Any]  # one configuration: an option's name, and one value of it


class BadOption(Exception):
    """An unknown or impossible option. The text names the nearest one and lists all."""


@dataclass(frozen=True)
class Option:
    """An option of an experiment. `default`: one value, or a tuple of them; its type is the type of all values.

    least: the smallest allowed number.
    """

    name: str
    default: Value | Values
    help: str
    choices: tuple[str, ...] = ()
    least: float | None = None

    @property
    def values(self) -> Values:
        return self.default if isinstance(self.default, tuple) else (self.default,)

    @property
    def kind(self) -> type[Value]:
        return type(self.values[0])

    def read(self, asked: object) -> Values:
        """Read values from a text of the command line, a value, or a sequence of values."""
        if isinstance(asked, str):
            asked = asked.split(",")
        parts: Iterable[object] = asked if isinstance(asked, Sequence) else (asked,)
        found = tuple(self._one(part) for part in parts)
        if not found:
            raise BadOption(f"--{self.flag} is empty; write at least one value, like {self.text(self.values)}")
        twice = [value for value in found if found.count(value) > 1]
        if twice:
            raise BadOption(f"--{self.flag} names {twice[0]} twice")
        return found

    def _one(self, part: object) -> Value:
        value = self._converted(part.strip() if isinstance(part, str) else part)
        if self.choices and value not in self.choices:
            raise BadOption(f"--{self.flag} cannot be {value!r}; {nearest(str(value), self.choices)}")
        if self.least is not None and isinstance(value, int | float) and value < self.least:
            raise BadOption(f"--{self.flag} is at least {self.least:g}, not {value}")
        return value

    def _converted(self, part: object) -> Value:
        kind = self.kind
        try:
            if kind is bool:
                return _TRUTH[str(part).lower()]
            if kind is int:
                return _whole(part)
            if kind is float:
                return float(part)  # type: ignore[arg-type]
            return str(part)
        except (KeyError, TypeError, ValueError):
            wanted = {bool: "yes or no", int: "a whole number", float: "a number", str: "a text"}[kind]
            raise BadOption(f"--{self.flag} cannot be {part!r}: {wanted} is wanted") from None

    @property
    def flag(self) -> str:
        return self.name.replace("_", "-")

    @staticmethod
    def text(values: Iterable[Value]) -> str:
        """The values as written on the command line."""
        return ",".join(_text(value) for value in values)


_TRUTH = {"yes": True, "true": True, "1": True, "on": True, "no": False, "false": False, "0": False, "off": False}


def _whole(part: object) -> int:
    """A whole number. `64k` and `2M` are binary: 65,536 and 2,097,152."""
    if isinstance(part, str) and part[-1:] in ("k", "M"):
        return int(part[:-1]) * (1024 if part[-1] == "k" else 1024**2)
    if isinstance(part, str):
        return int(part)
    whole = int(part)  # type: ignore[call-overload]
    if whole != part:
        raise ValueError(part)
    return int(whole)


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def read_all(options: Sequence[Option], asked: Mapping[str, object]) -> dict[str, Values]:
    """Every option's values: those given, or else the defaults. Names may have `-` or `_`."""
    known = {option.name: option for option in options}
    found = {option.name: option.values for option in options}
    for name, value in asked.items():
        key = name.replace("-", "_")
        if key not in known:
            raise BadOption(f"no option --{name}; {nearest(key, list(known), '--')}")
        found[key] = known[key].read(value)
    return found


def nearest(word: str, known: Sequence[str], mark: str = "") -> str:
    """Text for an error: the nearest known name, and all names."""
    close = get_close_matches(word, known, 1, 0.5)
    names = [mark + name.replace("_", "-") if mark else name for name in known]
    hint = f"did you mean {mark}{close[0].replace('_', '-') if mark else close[0]}? " if close else ""
    return f"{hint}there is: {', '.join(names)}"


def grid(options: Mapping[str, Sequence[Value]]) -> list[Point]:
    """Every combination, the first option the slowest to change."""
    names = list(options)
    return [dict(zip(names, values, strict=True)) for values in product(*options.values())]


def command(name: str, options: Sequence[Option], chosen: Mapping[str, Sequence[Value]]) -> str:
    """The command line with these values, without those that are defaults."""
    parts = [f"python -m experiments {name}"]
    for option in options:
        values = tuple(chosen[option.name])
        if values != option.values:
            parts.append(f"--{option.flag} {Option.text(values)}")
    return " ".join(parts)


# --- --profile --------------------------------------------------------------------------------------------------------

# `paper` and `seaway` are names, `my.toml` is a file. `paper:send*2` is the paper's profile with one cost doubled,
# and `paper:send*2+step=5us` also sets another one.

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
        lines.append(f"- fitted: `{field}` = {show_time(getattr(found, field))}, to {to}")
    return "\n".join(lines)
