"""Runs functions of benchmarks in processes of their own: one, or each member of a world as in multi-controller JAX.

`python -m experiments.bench.frame.processes MODULE:FUNCTION ARGUMENTS` calls a function with arguments that JSON can
say. What it says, and what it returns, are lines of JSON; other output is ignored. Such a process ends with this one.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from backend.admin import Child, Children, end_with_parent

LOOK = 0.05  # seconds between checks of the processes
HERE = "experiments.bench.frame.processes"


class Ending(NamedTuple):
    """code: the process's exit code; None if it was killed. said: its lines of JSON. words: the end of its stderr."""

    code: int | None
    said: list[dict[str, Any]]
    words: str


def start(
    children: Children, function: Callable[..., Any], *arguments: object, env: Mapping[str, str] | None = None,
    stdout: int | IO[bytes] = subprocess.PIPE, name: str = "",
) -> Child:  # fmt: skip
    """Call a function in a process of its own, which ends when its standard input closes."""
    spec = sys.modules[function.__module__].__spec__  # of a program that was started as a module, this has its name
    assert spec is not None
    words = [f"{spec.name}:{function.__qualname__}", json.dumps(arguments)]
    return children.start(name or function.__name__, HERE, words, env, stdout=stdout)


def heard(child: Child) -> Any:
    """What the child says next. Raises an error with its last words if it has ended."""
    assert child.process.stdout is not None
    for line in child.process.stdout:
        if (said := _parsed(line.decode(errors="replace"))) is not None:
            return said
    raise RuntimeError(f"the process of {child.name} ended: {child.tail()}")


def answer(function: Callable[..., Any], *arguments: object, env: Mapping[str, str] | None = None, bound: float) -> Any:
    """What the function returns, in a process of its own, within `bound` seconds."""
    with tempfile.TemporaryDirectory() as place:
        children, out = Children(Path(place)), Path(place) / "said"
        with out.open("wb") as file:
            child = start(children, function, *arguments, env=env, stdout=file)
        try:
            code = child.process.wait(bound)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{child.name} took more than {bound:g} s: {child.tail()}") from None
        finally:
            children.end_all()
        said = lines(out)
        if code or not said:
            raise RuntimeError(f"the process of {child.name} ended with {code}: {child.tail()}")
        return said[-1]


def played(
    member: Callable[..., None], count: int, env: Mapping[str, str], arguments: Sequence[object] = (), *,
    bound: float, silence: float = 0.0,
) -> list[Ending]:  # fmt: skip
    """Run `member(address, rank, count, *arguments)` for all ranks of a world, for at most `bound` seconds. silence:
    once every rank has said something, all are ended if none says more for this many seconds; 0: no such limit."""
    address = free_address()
    with tempfile.TemporaryDirectory() as place:
        children = Children(Path(place))
        outs = [Path(place) / f"{rank}.out" for rank in range(count)]
        started = []
        try:
            for rank, out in enumerate(outs):
                with out.open("wb") as file:
                    words = address, rank, count, *arguments
                    started.append(start(children, member, *words, env=env, stdout=file, name=f"member-{rank}"))
            _await(started, outs, bound, silence)
            codes = [child.process.poll() for child in started]
        finally:
            children.end_all(0.0 if sys.exc_info()[0] else 0.1)
        return [Ending(code, lines(out), child.tail()) for code, out, child in zip(codes, outs, started, strict=True)]


def answers(
    member: Callable[..., None], count: int, env: Mapping[str, str], arguments: Sequence[object] = (), *, bound: float
) -> list[Any]:
    """What each rank of a world says last. Raises an error if one does not end in order."""
    endings = played(member, count, env, arguments, bound=bound)
    for rank, each in enumerate(endings):
        if each.code != 0 or not each.said:
            raise RuntimeError(f"process {rank} of {count} of {member.__module__} ended with {each.code}: {each.words}")
    return [each.said[-1] for each in endings]


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


# --- what such processes say ------------------------------------------------------------------------------------------


def lines(out: Path) -> list[Any]:
    """The lines that are JSON objects or lists. Collective libraries print too, sometimes in the middle of a line."""
    text = out.read_text(encoding="utf-8", errors="replace")
    return [said for line in text.splitlines() if (said := _parsed(line)) is not None]


def _parsed(line: str) -> Any:
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict | list) else None


def say(what: object = None, /, **named: object) -> None:
    """Print a line of JSON, in a process of its own."""
    print(f"\n{json.dumps(named if what is None else what)}", flush=True)


def leave() -> NoReturn:
    """End a member's process at once, since an orderly exit would wait for the others."""
    sys.stdout.flush()
    os._exit(0)


# --- where they run ---------------------------------------------------------------------------------------------------


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def environment(devices: int, platform: str = "cpu") -> dict[str, str]:
    """The environment of a JAX program with this many CPU devices of its own, and enough threads for their collectives;
    or with all that there are of another platform."""
    count = {"JAX_NUM_CPU_DEVICES": str(devices), "NPROC": str(max(32, 2 * devices))} if platform == "cpu" else {}
    return {"JAX_PLATFORMS": platform, **count}


def main(words: Sequence[str]) -> None:
    end_with_parent()
    module, _, name = words[0].partition(":")
    made = getattr(import_module(module), name)(*json.loads(words[1]))
    if made is not None:
        say(made)


if __name__ == "__main__":
    main(sys.argv[1:])
