"""Fixes the simulator's knowledge before `prediction` draws a case: a calibrated cluster a platform, and lone times.

Calibrations are measured here (by `seaway.tools.calibrating`), or read from given files, which must be of the platforms
asked for. A file whose devices compute on the machine's own cores is of CPU devices; any other is of timed ones.
`alone` adds the times that CPU devices take for each computation alone.
"""

import re
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from core.model import Impossible
from seaway.tools.calibrating import paced
from seaway.units import duration
from seaway.wording import plural
from sim.hardware import setups

from .alone import taken
from .cases import HOSTS, Platform
from .programs import Alone, Taken

CALIBRATED = 2  # hosts of a calibration, where there may be so many
NOW = 1.0  # seconds to measure the machine's present speed
REFERENCE = re.compile(r"the reference took ([\d.]+ (?:ns|us|ms|s))\b")  # in a calibration's note
Say = Callable[[str], object]


class Frozen(NamedTuple):
    """files: calibrations by platform. speeds: nanoseconds of the reference at calibration. alone: by `key_of`."""

    files: Mapping[Platform, Path]
    speeds: Mapping[Platform, float]
    alone: Alone


def frozen(platforms: Sequence[Platform], given: Sequence[Path], folder: Path, *, quick: bool, say: Say) -> Frozen:
    """Measure or read all of it. `folder`: where measurements are written."""
    times: dict[str, Taken] = {}
    files = calibrations(platforms, given, folder, quick=quick, say=say)
    for platform in platforms:
        if platform != "timed":
            say(f"{platform} devices: each computation by itself")
            times |= taken(platform)
    return Frozen(files, {platform: speed_of(path) for platform, path in files.items()}, times)


def calibrations(
    platforms: Sequence[Platform], given: Sequence[Path], folder: Path, *, quick: bool, say: Say
) -> dict[Platform, Path]:
    files = by_platform(given, platforms)
    for platform in platforms:
        path = calibrated(platform, folder)
        if platform not in files:
            _calibrate(platform, path, quick, say)
        elif not (path.exists() and path.samefile(files[platform])):
            path.write_bytes(files[platform].read_bytes())
        files[platform] = path
    return files


def _calibrate(platform: Platform, path: Path, quick: bool, say: Say) -> None:
    from seaway.tools.calibrating import calibrate

    hosts = min(CALIBRATED, max(HOSTS[platform]))
    say(f"calibrating {platform} devices on {plural(hosts, 'host')}")
    calibrate(platform=platform, hosts=hosts, devices_per_host=1, quick=quick, say=say).save(path)


def calibrated(platform: Platform, folder: Path) -> Path:
    """Where `--out` keeps the calibrated cluster."""
    return folder / f"calibration-{platform}.toml"


def speed_of(path: Path) -> float:
    """Nanoseconds of the reference, from the file's note; if that has none, measured now."""
    found = REFERENCE.search(str(tomllib.loads(path.read_text(encoding="utf-8")).get("note", "")))
    if found:
        return float(duration(found[1], "the reference"))
    with TemporaryDirectory() as folder, paced(Path(folder)) as pace:
        time.sleep(NOW)
        return pace.all().value


def by_platform(given: Iterable[Path], platforms: Sequence[Platform]) -> dict[Platform, Path]:
    found: dict[Platform, Path] = {}
    for path in given:
        platform = platform_of(path)
        if platform not in platforms:
            raise Impossible(
                f"--calibration {path} is of {platform} devices; --platform asks for {', '.join(platforms)}"
            )
        if platform in found:
            raise Impossible(f"--calibration: {found[platform]} and {path} are both of {platform} devices; give one")
        found[platform] = path
    return found


def platform_of(path: Path) -> Platform:
    """The platform of a calibrated cluster's file, which is checked too."""
    setup = setups.load(str(path))
    if setup.profile is None:
        raise Impossible(f"--calibration {path} has no [profile]: `python -m seaway calibrate` writes one")
    if any(shared.devices for shared in setup.shared):
        return "cpu"
    return "cuda" if any(island.kind == "cuda" for island in setup.cluster.islands) else "timed"


def described(found: Frozen) -> str:
    lines = [
        f"{platform} devices: {path}; the reference of the machine's speed took {found.speeds[platform] / 1e3:.1f} us"
        for platform, path in found.files.items()
    ]
    if found.alone:
        lines.append(f"each computation by itself:{'':4}{'us':>10}{'rounds':>9}{'cores':>7}{'reference':>11}")
        lines += [
            f"    {key:38}{one.ns / 1e3:>12,.1f}{'+-' + format(one.spread, '.0%'):>9}{one.cores:>7.2f}"
            f"{one.reference / 1e3:>11.1f}"
            for key, one in found.alone.items()
        ]
    return "\n".join(lines)
