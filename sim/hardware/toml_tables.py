"""Reads tables that people write: values with units, known keys only, and errors that name file, table and remedy.

A figure is a number, a text with a unit ("900 GB/s", "16 GiB", "1.5 us"), or a table of `value` and `source`.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fractions import Fraction
from importlib import resources
from pathlib import Path

from core.model import MOST_DEVICES, Impossible, table_of

Table = Mapping[str, object]

DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
BINARY = {f"{letter}i": 2**power for letter, power in (("K", 10), ("M", 20), ("G", 30), ("T", 40))}
SECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
SCALES = {
    "time": {unit: Fraction(scale) for unit, scale in SECONDS.items()},  # in nanoseconds
    "bytes": {f"{prefix}B": Fraction(scale) for prefix, scale in (DECIMAL | BINARY).items()},
    "rate": {f"{prefix}B/s": Fraction(scale) for prefix, scale in (DECIMAL | BINARY).items()}
    | {f"{prefix}b/s": Fraction(scale, 8) for prefix, scale in DECIMAL.items()},
    "flops": {f"{prefix}FLOP/s": Fraction(scale) for prefix, scale in DECIMAL.items()},
    "frequency": {f"{prefix}Hz": Fraction(scale) for prefix, scale in DECIMAL.items()},
    "number": {},
}
EXAMPLES = {
    "time": "'1.5 us', or whole nanoseconds",
    "bytes": "'16 GiB', or bytes",
    "rate": "'900 GB/s' or '100 Gb/s', or bytes a second",
    "flops": "'61.5 TFLOP/s', or a number of them a second",
    "frequency": "'940 MHz', or hertz",
    "number": "a whole number",
}
LONGEST = 80  # characters of a quantity
NUMBER = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?)\s*(.*?)\s*")


def quantity(label: str, key: str, value: object, unit: str) -> int:
    """The value in its base unit (nanoseconds, bytes, bytes a second, ...): not negative, rounded to a whole
    number."""
    if isinstance(value, str) and len(value) <= LONGEST and (match := NUMBER.fullmatch(value)):
        number, name = match.groups()
        scale = SCALES[unit].get(name, Fraction(1) if not name and unit == "number" else None)
        if scale is not None and (found := round(Fraction(number.replace("_", "")) * scale)) < 2**63:
            return found
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if 0 <= value < 2**63:
            return round(value)
    raise Impossible(f"{label}: `{key}` cannot be {value!r}; write {EXAMPLES[unit]}")


def figure(label: str, key: str, value: object, unit: str, source: str) -> tuple[int, str]:
    """A quantity and its source; `source` is used where the figure states none."""
    if isinstance(value, Mapping):
        known_keys(f"{label}: `{key}`", value, ("value", "source", "fitted"))
        if "value" not in value:
            raise Impossible(f"{label}: `{key}` has no `value`")
        source, value = str(value.get("source") or source), value["value"]
    return quantity(label, key, value, unit), source


def known_keys(label: str, table: Table, known: Iterable[str]) -> None:
    listed = list(known)
    for key in table:
        if key not in listed:
            raise Impossible(f"{label} has no key {key!r}; {nearest(key, listed)}")


def nearest(word: str, known: Iterable[str]) -> str:
    listed = list(known)
    folded = {name.lower(): name for name in reversed(listed)}
    close = get_close_matches(word.lower(), folded, 1, 0.5)
    shown = ", ".join(repr(name) for name in listed[:24]) + (", ..." if len(listed) > 24 else "")
    return (f"nearest: {folded[close[0]]!r}; " if close else "") + f"there is: {shown}"


def subtable(label: str, table: Table, key: str) -> dict[str, object]:
    found = table.get(key, {})
    if not isinstance(found, Mapping):
        raise Impossible(f"{label}: `{key}` is a table; write [{key}]")
    return dict(found)


def whole(label: str, key: str, value: object, most: int = MOST_DEVICES) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Impossible(f"{label}: `{key}` cannot be {value!r}: a whole number, at least 1")
    if value > most:
        raise Impossible(f"{label}: `{key}` cannot be {value!r}: {most:,} at most")
    return value


def toml(path: Path) -> dict[str, object]:
    try:
        if path.exists() and not path.is_file():  # to read a pipe is to wait for it
            raise Impossible("is no plain file")
        return table_of(path.read_bytes(), tomllib.loads)
    except FileNotFoundError:
        raise Impossible(f"there is no file {path}") from None
    except Impossible as error:
        raise Impossible(f"{path} {error}") from None
    except OSError as error:
        raise Impossible(f"{path} cannot be read: {error.strerror}") from None


def packaged(folder: str) -> dict[str, dict[str, object]]:
    """The tables in a folder of `sim/data`, by file name, sorted."""
    files = [f for f in resources.files("sim").joinpath("data", folder).iterdir() if f.name.endswith(".toml")]
    return {
        file.name.removesuffix(".toml"): tomllib.loads(file.read_text(encoding="utf-8"))
        for file in sorted(files, key=lambda file: file.name)
    }
