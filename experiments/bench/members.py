"""Processes of one `jax.distributed` world, as multi-controller JAX has them: started, awaited within a bound, ended.

Each is `python -m MODULE --member ADDRESS RANK COUNT ...` and prints lines of JSON; whatever else it prints is left
out. Neighbours: `real` and `order`, whose baselines run so.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from backend.admin import Child, Children

LOOK = 0.05  # seconds between looks how they are


class Ending(NamedTuple):
    """code: as the process ended; None if it had to be ended. said: its lines. words: the end of what it complained."""

    code: int | None
    said: list[dict[str, Any]]
    words: str


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def environment(devices: int, flags: str = "") -> dict[str, str]:
    """Of a process with so many CPU devices, and threads enough for their collectives."""
    count = f"--xla_force_host_platform_device_count={devices}"
    return {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{count} {flags}".strip(),
        "NPROC": str(max(32, 2 * devices)),
    }


def played(
    module: str, count: int, env: Mapping[str, str], words: Sequence[str] = (), *, bound: float, silence: float = 0.0
) -> list[Ending]:  # fmt: skip
    """All ranks from start to end, of which they have `bound` seconds. silence: seconds after a line of everybody's
    within which another must come from somebody, or they are ended; 0: no such bound."""
    address = free_address()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        children = Children(folder)
        outs = [folder / f"{rank}.out" for rank in range(count)]
        try:
            started = []
            for rank, out in enumerate(outs):
                with out.open("wb") as file:
                    arguments = ["--member", address, str(rank), str(count), *words]
                    started.append(children.start(f"member-{rank}", module, arguments, env, stdout=file))
            _await(started, outs, bound, silence)
            codes = [child.process.poll() for child in started]
        finally:
            children.end_all(0.0 if sys.exc_info()[0] else 0.1)
        return [
            Ending(code, lines(out), child.tail())
            for code, out, child in zip(codes, outs, started, strict=True)
        ]


def _await(started: Sequence[Child], outs: Sequence[Path], bound: float, silence: float) -> None:
    """Until all have ended. One that fails ends the wait: the others would wait for it."""
    until = time.monotonic() + bound
    sizes, since = [0] * len(outs), 0.0
    while time.monotonic() < until:
        codes = [child.process.poll() for child in started]
        if all(code == 0 for code in codes):
            return
        if any(codes):
            time.sleep(2 * LOOK)  # whoever failed for the same reason has ended then, too
            return
        now, found = time.monotonic(), [out.stat().st_size for out in outs]
        if found != sizes:
            sizes, since = found, now if all(found) else 0.0
        if silence and since and now - since > silence:
            return
        time.sleep(LOOK)


def lines(out: Path) -> list[dict[str, Any]]:
    """Those that are JSON: collectives print too, sometimes in the middle of a line."""
    found = []
    for line in out.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict):
            found.append(said)
    return found


def say(**what: Any) -> None:
    """For a member."""
    print(f"\n{json.dumps(what)}", flush=True)


def leave() -> NoReturn:
    """For a member: an orderly exit would wait for the others."""
    sys.stdout.flush()
    os._exit(0)
