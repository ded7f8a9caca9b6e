"""Runs a compiler in a child process, so that its output, and a crash, cannot disturb the user's process.

A lowered computation goes in; HLO text, costs and memory come out. libtpu looks for TPUs, writes to stderr and holds a
lock, which the user's process must not do.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from backend.scratch_folder import ScratchFolder

from ..errors import CostError
from ..units import Time, duration
from .lowering import Lowered

CHILD = Path(__file__).with_name("child.py")
QUIET = {
    "JAX_PLATFORMS": "cpu",  # the child runs nothing, and must not take a TPU of this machine
    "TPU_SKIP_MDS_QUERY": "1",  # otherwise libtpu asks the cloud's metadata server and waits
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # several processes may compile at once
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "GRPC_VERBOSITY": "NONE",
}
MOST = 2048  # devices of a client of XLA's for CPUs; more of them take several clients
TAIL = 12  # lines of its output shown if it died without an error file


class CompiledHlo(msgspec.Struct, frozen=True):
    hlo: str
    seconds: float
    before: str = ""  # the HLO text before the pass given as `before`
    cost: dict[str, float] = {}
    memory: dict[str, int] = {}
    of: int = 0  # devices of the target


class Failed(CostError):
    """The compiler refused. `kind`: its exception's class. `stage`: what it was doing."""

    def __init__(self, kind: str, stage: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.stage = stage


def compile_in_child(
    lowered: Lowered,
    *,
    platform: str,
    topology: str = "",
    options: Mapping[str, object] | None = None,
    xla_flags: str = "",
    before: str = "",
    timeout: Time,
) -> CompiledHlo:
    """Compile for `platform`. Raises Failed with the compiler's message, or CostError.

    `before`: a pass of the compiler; the HLO text before that pass is returned too.
    """
    limit = duration(timeout, "timeout") / 1e9
    with ScratchFolder("costs") as name:
        folder = Path(name)
        request = {
            "platform": platform, "topology": topology, "options": dict(options or {}),
            "axes": lowered.axes, "donated": lowered.donated, "dumped": f"before_{before}" if before else "",
            "nodes": -(-lowered.devices // MOST),
        }  # fmt: skip
        (folder / "request.json").write_text(json.dumps(request))
        (folder / "computation").write_bytes(lowered.blob)
        flags = f" --xla_dump_to={folder / 'dump'} --xla_dump_hlo_pass_re={before}" if before else ""
        _run(folder, lowered.name, {**os.environ, **QUIET, "XLA_FLAGS": xla_flags + flags}, limit)
        result = json.loads((folder / "result.json").read_text())
        texts = {"hlo": (folder / "hlo.txt").read_text()}
        if (folder / "before.txt").exists():
            texts["before"] = (folder / "before.txt").read_text()
        return msgspec.convert({**result, **texts}, CompiledHlo)


def _run(folder: Path, name: str, environment: Mapping[str, str], timeout: float) -> None:
    log = folder / "log"
    with log.open("wb") as printed:
        try:
            done = subprocess.run(
                [sys.executable, "-P", str(CHILD), str(folder)],
                env=environment, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed, timeout=timeout, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CostError(
                f"compiling {name!r} took longer than {timeout:g} s and was stopped; "
                "give it more, timeout='1h', or a smaller computation: fewer layers, or a loop over them (jax.lax.scan)"
            ) from None
    error = folder / "error.json"
    if error.exists():
        found = json.loads(error.read_text())
        raise Failed(found["kind"], found["stage"], found["text"])
    if done.returncode or not (folder / "result.json").exists():
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-TAIL:])
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        memory = " It was killed: perhaps the machine ran out of memory." if done.returncode == -9 else ""
        raise CostError(f"the compiler's process for {name!r} died ({how}).{memory} Its last lines:\n{tail}")
