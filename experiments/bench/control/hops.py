"""Measures the path of one call through core: Python calls, files, allocations and CPU time in each state machine.

`python -m experiments.bench hops [--before FOLDER]`. One client calls a program of one node, on all devices of 1 and of
512 hosts: with bytes in the call, and no result kept; and as `x = step(x)`, where each call takes the last result,
which is then released. Only core's state machines run, without network or devices, and a launched gang ends at once.
`--before`: a checkout of another commit, measured in turn with this one; its core may be a flat folder of modules.

A part is what one machine does for one call; for the hosts, it is the first one. *Calls* are calls of Python functions
in core, *files* the number of core's files they are in, *again* how often a call goes back into a file that was left
before. *KiB* is the peak of allocated memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[3]
PARTS = {
    "call": "client: submit",
    "submit": "controller: Submit",
    "gang": "host 0: one gang",
    "done": "controller: Done",
    "ended": "client: Ended",
}
SIZES = (1, 512)
CALLS = {"bytes": "bytes in, no result kept", "chained": "x = step(x)"}
KINDS = [(hosts, call) for hosts in SIZES for call in CALLS]
WARM, TIMED, TURNS = 50, 200, 5
AT_CLIENT, AT_HOST = -2, -3  # receivers in the queue below; a host is its number
PEER = 1 << 20  # the client's connection, as the controller numbers it


def place(name: str, *modules: str) -> Any:
    """The attribute from the first module that has it, since core's layout differs between checkouts."""
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"{name} is in none of {', '.join(modules)}")


def client(cluster: Any) -> tuple[Any, Any]:
    """(the client's machine, the object that its user calls). In older checkouts these are two objects."""
    try:
        calls = place("Persistent", "core.client", "core.persistent")("bench")
    except ImportError:
        machine = place("Client", "core.client")("bench", cluster)
        return machine, machine
    return place("ClientSide", "core.client", "core.clientside")(calls, cluster), calls


class Machines:
    """A controller, its hosts and one client, whose messages arrive at once. `measure(part, act)` runs each turn.
    `chained`: each call takes the last result."""

    def __init__(self, hosts: int, chained: bool) -> None:
        self.chained = chained
        self.last: tuple[int, ...] = ()
        self.e = import_module("core.protocol.effects" if has("core.protocol") else "core.effects")
        self.m = import_module("core.protocol.messages" if has("core.protocol") else "core.messages")
        # Older checkouts have other names for these two.
        self._received = getattr(self.e, "MessageReceived", None) or self.e.Came
        self._calls_made = getattr(self.e, "CallsMade", None) or self.e.Called
        cluster = place("small", "core.model", "core.presets")(hosts, 1)
        self.controller = place("Controller", "core.controller")(cluster)
        self.hosts = [place("Host", "core.host")(number, cluster) for number in range(hosts)]
        self.client, self.user = client(cluster)
        self.now = 0
        self.measure: Callable[[str, Callable[[], list[Any]]], list[Any]] = lambda part, act: act()
        self._queue: deque[tuple[int, Any, str]] = deque()
        self.ended = 0
        for number in range(hosts):
            self._tell(number, self.e.Connected(-1))
        self._run()
        self._tell(AT_CLIENT, self.e.Connected(-1))
        self._run()
        self.program = self.user.register(chain(hosts), self.now)
        self._act()
        self._run()

    def call(self) -> None:
        def act() -> list[Any]:
            given = self.last or (b"\0" * len(self.hosts),)
            made = self.user.submit(self.program, given, self.now, keep=(self.chained,))
            if self.last:
                self.user.release(self.last, self.now)
            self.last = made.results if self.chained else ()
            found: list[Any] = self.client.handle(self._calls_made(), self.now)
            return found

        wanted = self.ended + 1
        self._take(AT_CLIENT, self.measure("call", act))
        self._run()
        while self.ended < wanted:  # hosts hold back some messages for a while
            self._later()

    # --- messages ---------------------------------------------------------------------------------------------

    def _act(self) -> None:
        self._take(AT_CLIENT, self.client.handle(self._calls_made(), self.now))

    def _tell(self, to: int, event: Any, part: str = "") -> None:
        self._queue.append((to, event, part))

    def _run(self) -> None:
        while self._queue:
            to, event, part = self._queue.popleft()
            machine = self.client if to == AT_CLIENT else self.controller if to == -1 else self.hosts[to]

            def act(machine: Any = machine, event: Any = event) -> list[Any]:
                found: list[Any] = machine.handle(event, self.now)
                return found

            self._take(to, self.measure(part, act) if part else act())

    def _take(self, whose: int, effects: Sequence[Any]) -> None:
        e = self.e
        for effect in effects:
            kind = type(effect)
            if kind is e.Send:
                for peer in effect.peers:
                    self._deliver(whose, peer, effect.message)
            elif kind is e.FormWorld:
                self._tell(-1, e.WorldUp(effect.island, effect.epoch))
            elif kind is e.Reform:
                self._tell(whose, e.Reformed(effect.epoch))
            elif kind is e.CompileCode:
                self._tell(whose, e.CodeReady(effect.plan, effect.code, None))
            elif kind is e.Launch:
                self._tell(whose, e.Finished(effect.seq, None), "gang" if whose == 0 else "")
            elif kind is e.RunEnded:
                assert effect.blame is None, effect.blame
                self.ended += 1

    def _deliver(self, whose: int, peer: int, message: Any) -> None:
        m = self.m
        if whose == -1 and peer == PEER:
            self._tell(AT_CLIENT, self._received(-1, message), "ended")
        elif peer == -1:
            part = {m.Submit: "submit", m.Calls: "submit", m.Reports: "done"}.get(type(message), "")
            self._tell(-1, self._received(PEER if whose == AT_CLIENT else whose, message), part)
        else:
            part = "gang" if peer == 0 and isinstance(message, m.Ordered) else ""
            self._tell(peer, self._received(whose, message), part)

    def _later(self) -> None:
        """Let time pass until the first wake-up of a host or of the client, whose calls may leave later."""
        due = [
            (at, number) for number, host in enumerate(self.hosts) if (at := host.next_wakeup()) is not None
        ]
        if (at := self.client.next_wakeup()) is not None:
            due.append((at, AT_CLIENT))
        at, number = min(due)
        self.now = max(self.now, at)
        self._tell(number, self.e.Wakeup(), "call" if number == AT_CLIENT else "")
        self._run()


def has(package: str) -> bool:
    try:
        return import_module(package).__file__ is not None
    except ImportError:
        return False


def chain(devices: int) -> Any:
    """A program of one node on all devices, whose argument travels in the call."""
    take = "core.model", "core.program"
    value = place("Value", *take)((devices,), "int8", 0, place("Sharding", *take)(((0,),)))
    node = place("Node", *take)("step", 0, 0, (place("Arg", *take)(0),), (value,), (value,))
    step = place("Computation", *take)("step", "step", 10_000)
    slices = (place("SliceSpec", *take)("all", devices),)
    return place("Program", *take)("one", slices, (step,), (value,), (node,), (place("Out", *take)(0),))


# --- what a turn takes --------------------------------------------------------------------------------------------


class Hands:
    """Counts calls of Python functions in core."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._core = os.sep + "core" + os.sep

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and self._core in frame.f_code.co_filename:
            self.calls.append(frame.f_code.co_filename)

    def row(self) -> tuple[int, int, int]:
        """(calls, files, how often into a file that was left before)."""
        seen, again, last = set[str](), 0, ""
        for file in self.calls:
            again += file != last and file in seen
            seen.add(file)
            last = file
        return len(self.calls), len(seen), again


def measured(hosts: int, chained: bool = False) -> dict[str, dict[str, float]]:
    """The figures of each part, added up over all turns of one call."""
    machines = Machines(hosts, chained)
    for _ in range(WARM):
        machines.call()
    found: dict[str, dict[str, float]] = {part: {} for part in PARTS}
    counted: dict[str, Hands] = {part: Hands() for part in PARTS}

    def count(part: str, act: Callable[[], list[Any]]) -> list[Any]:
        sys.setprofile(counted[part])
        try:
            return act()
        finally:
            sys.setprofile(None)

    machines.measure = count
    machines.call()
    for part, hands in counted.items():
        found[part]["calls"], found[part]["files"], found[part]["again"] = hands.row()
    peaks = dict.fromkeys(PARTS, 0)

    def weigh(part: str, act: Callable[[], list[Any]]) -> list[Any]:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        made = act()
        peaks[part] += tracemalloc.get_traced_memory()[1] - before
        return made

    tracemalloc.start()
    machines.measure = weigh
    machines.call()
    tracemalloc.stop()
    spent: dict[str, int] = dict.fromkeys(PARTS, 0)

    def clock(part: str, act: Callable[[], list[Any]]) -> list[Any]:
        begun = time.thread_time_ns()
        made = act()
        spent[part] += time.thread_time_ns() - begun
        return made

    machines.measure = clock
    for _ in range(TIMED):
        machines.call()
    for part in PARTS:
        found[part]["kib"] = peaks[part] / 1024
        found[part]["us"] = spent[part] / TIMED / 1000
    return found


def of(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """The figures of a checkout's core, by hosts and kind of call, and part, measured in a process of its own."""
    ran = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--measure"], cwd=folder, check=True, text=True,
        stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(folder)},
    )  # fmt: skip
    found: dict[str, dict[str, dict[str, float]]] = json.loads(ran.stdout)
    return found


def show(turns: Sequence[dict[str, dict[str, dict[str, float]]]], hosts: int, call: str) -> float:
    """Print a table, and return the CPU time of all parts together."""
    print(f"hosts: {hosts}; {CALLS[call]}")
    print(f"{'':<23}{'calls':>8}{'files':>7}{'again':>7}{'KiB':>8}{'CPU us':>9}")
    whole = 0.0
    for part, text in PARTS.items():
        rows = [turn[f"{hosts} {call}"][part] for turn in turns]
        us = median(row["us"] for row in rows)
        whole += us
        first = rows[0]
        print(
            f"  {text:<21}{first['calls']:>8.0f}{first['files']:>7.0f}{first['again']:>7.0f}"
            f"{first['kib']:>8.1f}{us:>9.1f}"
        )
    print(f"  {'all':<21}{'':>30}{whole:>9.1f}")
    return whole


def main(arguments: Sequence[str] = ()) -> None:
    from ..frame import options

    parser = options.parser("hops", __doc__)
    parser.add_argument("--before", type=Path, help="a checkout of another commit, to compare with")
    chosen = parser.parse_args(arguments)
    folders = [each.resolve() for each in (chosen.before, ROOT) if each is not None]
    if not all((folder / "core" / "__init__.py").is_file() for folder in folders):
        parser.error(f"--before {chosen.before}: there is no core/ in it; name a checkout of Seaway")
    turns: dict[Path, list[Any]] = {folder: [] for folder in folders}
    for _ in range(TURNS):
        for folder in folders:
            turns[folder].append(of(folder))
    wholes = {}
    for folder in folders:
        if len(folders) > 1:
            print("before" if folder == folders[0] else "now")
        wholes[folder] = [show(turns[folder], hosts, call) for hosts, call in KINDS]
    if len(folders) > 1:
        ratios = (now / before for before, now in zip(*wholes.values(), strict=True))
        print("CPU time of all parts, now against before:")
        for (hosts, call), ratio in zip(KINDS, ratios, strict=True):
            print(f"  {ratio:.2f}  hosts: {hosts}; {CALLS[call]}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--measure"]:
        sys.path.insert(0, os.getcwd())
        print(json.dumps({f"{hosts} {call}": measured(hosts, call == "chained") for hosts, call in KINDS}))
