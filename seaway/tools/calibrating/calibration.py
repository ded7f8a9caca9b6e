"""The result of a calibration: figures go in, a table for people and a cluster file for the simulator come out.

A figure with a `place` is written to the file; others are only in the table. What was not measured is listed in
`missing`, in the file's note and on the terminal. `measuring` makes the figures; `sim.hardware` reads the file.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from backend.plain_files import replace_file

TIMES = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))
RATES = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
LOUD = 0.25  # spread of a figure from which there is a warning
BUSY = 0.1  # the same for the reference, "speed"


class Figure(NamedTuple):
    """unit: "ns", "ps/B", "B/s", "B", "FLOP/s" or "". spread: as a fraction of the value (`fitting`). how: how it was
    measured. place: its key in the file ("costs.send", "dcn.latency"); "": not in the file."""

    name: str
    value: float
    unit: str
    spread: float
    how: str
    place: str = ""

    @property
    def text(self) -> str:
        """The value with its unit, for the file and the table."""
        if self.unit == "ns":
            return time_text(self.value)
        if self.unit in ("B/s", "FLOP/s", "B"):
            return rate_text(self.value, self.unit)
        return f"{round(self.value)}"


class Calibration(NamedTuple):
    """All results. most: hosts of the largest session. missing: texts that name figures that could not be measured, and
    the values that the simulator uses instead."""

    platform: str
    hosts: int
    devices_per_host: int
    most: int
    cores: int
    fanout: int
    machine: str  # the processor, the date and the software
    figures: tuple[Figure, ...]
    missing: tuple[str, ...]

    @property
    def warnings(self) -> list[str]:
        """Texts for figures that vary so much that the machine must have been busy with other work."""
        return [
            f"{figure.name}: spread {figure.spread:.0%}, more than {bound:.0%}"
            for figure in self.figures
            if figure.spread > (bound := BUSY if figure.name == "speed" else LOUD) and figure.value
        ]

    def at(self, place: str) -> dict[str, Figure]:
        """The figures of one table of the file, by key."""
        return {
            figure.place.rpartition(".")[2]: figure
            for figure in self.figures
            if figure.place.rpartition(".")[0] == place
        }

    @property
    def note(self) -> str:
        speed = next((figure for figure in self.figures if figure.name == "speed"), None)
        words = [f"measured by `seaway calibrate` on {self.machine}"]
        if speed is not None:
            words.append(f"the reference took {speed.text} (spread {speed.spread:.0%})")
        words += [f"not measured: {each}" for each in self.missing]
        return "; ".join(words)

    def text(self, name: str = "mine") -> str:
        return "\n".join(_lines(self, name)) + "\n"

    def save(self, path: str | Path) -> Path:
        """Write the cluster file atomically."""
        target = Path(path)
        replace_file(target, self.text(target.stem).encode(), durable=False, mode=0o666 & ~umask())
        return target

    def table(self) -> list[str]:
        """Lines for a terminal."""
        wide = max((len(figure.name) for figure in self.figures), default=0)
        lines = []
        for figure in self.figures:
            unit = f" {figure.unit}" if figure.unit == "ps/B" else ""
            lines.append(f"{figure.name:<{wide}}  {figure.text + unit:>14}  {figure.spread:>5.0%}  {figure.how}")
        lines += [f"not measured: {each}" for each in self.missing]
        return lines


def _lines(made: Calibration, name: str) -> Iterator[str]:
    kind = made.platform if made.platform in ("cuda", "tpu") else "cpu"
    yield f"name = {string(name)}"
    yield f"note = {string(made.note)}"
    yield ""
    yield "[[island]]"
    yield from _pairs({"name": "local", "kind": kind, "hosts": made.hosts, "devices_per_host": made.devices_per_host})
    yield ""
    yield "[machine]"
    yield from _figures(made.at("machine"))
    if dcn := made.at("dcn"):
        yield ""
        yield "[dcn]  # between processes of this machine"
        yield from _figures(dcn)
    chip = made.at("chip")
    if chip or kind != "cpu":
        yield ""
        yield f"[chip.{kind}]"
        if kind != "cpu":
            yield f"like = {string(LIKE[kind])}"
        yield from _figures(chip)
    yield ""
    yield "[[shared]]"
    yield from _pairs(shared(made.platform, made.cores))
    if costs := made.at("costs"):
        yield ""
        yield "[profile]"
        yield from _pairs({"like": "seaway", "status": "measured", "fanout": made.fanout, "hosts": made.most})
        yield ""
        yield "[profile.costs]"
        yield from _figures(costs)


LIKE = {"cuda": "h100", "tpu": "v4"}  # chip whose figures the file refers to for those not measured


def shared(platform: str, cores: int) -> dict[str, Any]:
    """The file's table of shared cores, for the processes of `sw.local`.

    The controller and clients are in the user's process, and each host has an agent process. All hosts of timed
    devices, which do not compute, are in one process.
    """
    found: dict[str, Any] = {"cores": cores, "hosts": True, "controller": True, "clients": True, "python": True}
    found["one_process"] = ["controller", "clients"]
    if platform == "timed":
        found["one_process"] = [["controller", "clients"], ["hosts"]]
    if platform == "cpu":
        found["devices"] = True
    return found


def _figures(found: Mapping[str, Figure]) -> Iterator[str]:
    for key, figure in found.items():
        value = figure.text if figure.unit in ("ns", "B/s", "FLOP/s", "B") else str(round(figure.value))
        shown = string(value) if not value.isdigit() else value
        yield f"{key} = {{ value = {shown}, source = {string(source(figure))} }}"


def source(figure: Figure) -> str:
    return f"{figure.how}; spread {figure.spread:.0%}" if figure.spread else figure.how


def _pairs(pairs: Mapping[str, Any]) -> Iterator[str]:
    for key, value in pairs.items():
        yield f"{key} = {plain(value)}"


def plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(plain, value))}]"
    return string(value) if isinstance(value, str) else str(value)


def string(text: str) -> str:
    """A TOML basic string. It escapes like JSON, with one more character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def time_text(nanoseconds: float) -> str:
    """A time to the nanosecond, since the simulator's times are whole."""
    whole = max(0, round(nanoseconds))
    unit, scale = next((each for each in TIMES if whole >= each[1]), TIMES[-1])
    return f"{whole / scale:.9f}".rstrip("0").rstrip(".") + f" {unit}"


def rate_text(value: float, unit: str) -> str:
    """A rate with four digits. No measurement is more exact."""
    prefix, scale = next((each for each in RATES if value >= each[1]), RATES[-1])
    return f"{float(f'{value / scale:.4g}'):g} {prefix}{unit}"


def umask() -> int:
    before = os.umask(0o022)
    os.umask(before)
    return before


def figures(place: str, unit: str, found: Sequence[tuple[str, float, float, str]]) -> list[Figure]:
    """Figures for one table of the file, from (key, value, spread, how)."""
    return [Figure(key, value, unit, spread, how, f"{place}.{key}") for key, value, spread, how in found]
