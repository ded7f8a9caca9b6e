"""Runs the processes of one `jax.distributed` world, as in multi-controller JAX: starts, waits within a bound, ends.

Each process is `python -m MODULE --member ADDRESS RANK COUNT ...` and prints lines of JSON; other output is ignored.
The baselines of `real` and `order` run this way.
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

LOOK = 0.05  # seconds between checks of the processes


class Ending(NamedTuple):
    """code: the process's exit code; None if it was killed. said: its lines of JSON. words: the end of its stderr."""

    code: int | None
    said: list[dict[str, Any]]
    words: str


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def environment(devices: int, flags: str = "") -> dict[str, str]:
    """The environment of a process with this many CPU devices, and enough threads for their collectives."""
    count = f"--xla_force_host_platform_device_count={devices}"
    return {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{count} {flags}".strip(),
        "NPROC": str(max(32, 2 * devices)),
    }


def played(
    module: str, count: int, env: Mapping[str, str], words: Sequence[str] = (), *, bound: float, silence: float = 0.0
) -> list[Ending]:  # fmt: skip
    """Run all ranks, for at most `bound` seconds. silence: once every rank has printed a line, they are ended if no
    rank prints another for this many seconds; 0: no such limit."""
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
    """Wait until all have ended, or one has failed, since the others would wait for it."""
    until = time.monotonic() + bound
    sizes, since = [0] * len(outs), 0.0
    while time.monotonic() < until:
        codes = [child.process.poll() for child in started]
        if all(code == 0 for code in codes):
            return
        if any(codes):
            time.sleep(2 * LOOK)  # others that failed for the same reason end too
            return
        now, found = time.monotonic(), [out.stat().st_size for out in outs]
        if found != sizes:
            sizes, since = found, now if all(found) else 0.0
        if silence and since and now - since > silence:
            return
        time.sleep(LOOK)


def lines(out: Path) -> list[dict[str, Any]]:
    """The lines that are JSON objects. Collective libraries print too, sometimes in the middle of a line."""
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
    """Print a line of JSON, in a member's process."""
    print(f"\n{json.dumps(what)}", flush=True)


def leave() -> NoReturn:
    """End a member's process at once, since an orderly exit would wait for the others."""
    sys.stdout.flush()
    os._exit(0)
