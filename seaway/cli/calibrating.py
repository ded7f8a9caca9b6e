"""`seaway calibrate --out mine.toml`: measures this machine and writes a cluster file for the simulator."""

import argparse
import time
from pathlib import Path
from typing import Any

from ..sessions.connected import PLATFORMS


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "calibrate",
        help="measure this machine for the simulator",
        description="Measures what messages, calls, contents and computations cost on this machine, in under two "
        "minutes, and writes a cluster file for sw.simulate and seaway simulate. It leaves out what could not be "
        "measured, and prints what that is.",
        epilog="Example: seaway calibrate --out mine.toml --hosts 2",
    )
    option = parser.add_argument
    option("--out", type=Path, required=True, metavar="FILE.toml", help="the cluster file")
    option("--force", action="store_true", help="overwrite FILE.toml if it exists")
    option("--platform", choices=PLATFORMS, default="cpu", help="kind of devices, as in sw.local (default: cpu)")
    option("--hosts", type=int, help="hosts, as in sw.local (default: 2; for cuda and tpu 1)")
    option("--devices-per-host", type=int, default=1, metavar="N", help="devices of each host (default: 1)")
    option("--quick", action="store_true", help="take a quarter of the time, with wider spreads")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    from ..tools.calibrating import calibrate

    out: Path = given.out
    if out.suffix != ".toml":
        raise ValueError(
            f"--out {out}: the name of a cluster file must end in .toml, or the simulator takes it for a preset"
        )
    if out.exists() and not given.force:
        raise ValueError(f"--out {out} exists already; --force overwrites it")
    if not out.absolute().parent.is_dir():
        raise ValueError(f"--out {out}: there is no folder {out.parent}")
    hosts = given.hosts if given.hosts is not None else 1 if given.platform in ("cuda", "tpu") else 2
    begun = time.monotonic()
    made = calibrate(given.platform, hosts, given.devices_per_host, given.quick, lambda text: print(text, flush=True))
    print("\n".join(made.table()))
    for each in made.warnings:
        print(f"warning: {each}: the machine was busy with other work; measure again when it is idle")
    made.save(out)
    print(
        f"wrote {out}, in {time.monotonic() - begun:.0f} s: sw.simulate({str(out)!r}), seaway simulate --cluster {out}"
    )
    return 0
