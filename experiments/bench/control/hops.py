"""Measures the path of one call through core: Python calls, files, allocations and CPU time in each state machine.

`python -m experiments.bench hops`. One client calls a program of one node, on all devices of 1 and of 512 hosts: with
bytes in the call, and no result kept; and as `x = step(x)`, where each call takes the last result, which is then
released. A launched gang ends at once. A part is what one machine does for one call; for the hosts, it is the first
one. *again* is how often a call goes back into a file that was left before, *KiB* the peak of allocated memory.
"""

from __future__ import annotations

import os
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from types import FrameType
from typing import Any

from core import protocol as p
from core.client import Client
from core.controller import Controller
from core.host import Host
from core.model import Arg, Computation, Node, Out, Program, Sharding, SliceSpec, Value, small

from ..frame import options
from ..frame.options import Table
from ..frame.processes import answer

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
BOUND = 300.0  # seconds of a turn
AT_CLIENT = -2  # a receiver in the queue below; a host is its number
PEER = 1 << 20  # the client's connection, as the controller numbers it


class Machines:
    """A controller, its hosts and one client, whose messages arrive at once. `measure(part, act)` runs each turn.
    `chained`: each call takes the last result."""

    def __init__(self, hosts: int, chained: bool) -> None:
        self.chained = chained
        self.last: tuple[int, ...] = ()
        cluster = small(hosts, 1)
        self.controller = Controller(cluster)
        self.hosts = [Host(number, cluster) for number in range(hosts)]
        self.client = Client("bench", cluster)
        self.now = 0
        self.measure: Callable[[str, Callable[[], list[Any]]], list[Any]] = lambda part, act: act()
        self._queue: deque[tuple[int, Any, str]] = deque()
        self.ended = 0
        for number in range(hosts):
            self._tell(number, p.Connected(p.CONTROLLER))
        self._run()
        self._tell(AT_CLIENT, p.Connected(p.CONTROLLER))
        self._run()
        self.program: Any = self.client.register(chain(hosts), self.now)
        self._act()
        self._run()

    def call(self) -> None:
        def act() -> list[Any]:
            given = self.last or (b"\0" * len(self.hosts),)
            made: Any = self.client.submit(self.program, given, self.now, keep=(self.chained,))
            if self.last:
                self.client.release(self.last, self.now)
            self.last = made.results if self.chained else ()
            return self.client.handle(p.CallsMade(), self.now)

        wanted = self.ended + 1
        self._take(AT_CLIENT, self.measure("call", act))
        self._run()
        while self.ended < wanted:  # hosts hold back some messages for a while
            self._later()

    # --- messages ---------------------------------------------------------------------------------------------

    def _act(self) -> None:
        self._take(AT_CLIENT, self.client.handle(p.CallsMade(), self.now))

    def _tell(self, to: int, event: Any, part: str = "") -> None:
        self._queue.append((to, event, part))

    def _run(self) -> None:
        while self._queue:
            to, event, part = self._queue.popleft()
            machine: Any = self.client if to == AT_CLIENT else self.controller if to == p.CONTROLLER else self.hosts[to]

            act = partial(machine.handle, event, self.now)
            self._take(to, self.measure(part, act) if part else act())

    def _take(self, whose: int, effects: Sequence[Any]) -> None:
        for effect in effects:
            match effect:
                case p.Send(peers=peers, message=message):
                    for peer in peers:
                        self._deliver(whose, peer, message)
                case p.FormWorld(island=island, epoch=epoch):
                    self._tell(p.CONTROLLER, p.WorldUp(island, epoch))
                case p.Reform(epoch=epoch):
                    self._tell(whose, p.Reformed(epoch))
                case p.CompileCode(plan=plan, code=code):
                    self._tell(whose, p.CodeReady(plan, code, None))
                case p.Launch(seq=seq):
                    self._tell(whose, p.Finished(seq, None), "gang" if whose == 0 else "")
                case p.RunEnded(blame=blame):
                    assert blame is None, blame
                    self.ended += 1
                case _:
                    pass

    def _deliver(self, whose: int, peer: int, message: Any) -> None:
        if whose == p.CONTROLLER and peer == PEER:
            self._tell(AT_CLIENT, p.MessageReceived(p.CONTROLLER, message), "ended")
        elif peer == p.CONTROLLER:
            calls = isinstance(message, p.Submit | p.Calls)
            part = "submit" if calls else "done" if isinstance(message, p.Reports) else ""
            self._tell(p.CONTROLLER, p.MessageReceived(PEER if whose == AT_CLIENT else whose, message), part)
        else:
            part = "gang" if peer == 0 and isinstance(message, p.Ordered) else ""
            self._tell(peer, p.MessageReceived(whose, message), part)

    def _later(self) -> None:
        """Let time pass until the first wake-up of a host or of the client, whose calls may leave later."""
        due = [(at, number) for number, host in enumerate(self.hosts) if (at := host.next_wakeup()) is not None]
        if (at := self.client.next_wakeup()) is not None:
            due.append((at, AT_CLIENT))
        at, number = min(due)
        self.now = max(self.now, at)
        self._tell(number, p.Wakeup(), "call" if number == AT_CLIENT else "")
        self._run()


def chain(devices: int) -> Program:
    """A program of one node on all devices, whose argument travels in the call."""
    value = Value((devices,), "int8", 0, Sharding(((0,),)))
    node = Node("step", 0, 0, (Arg(0),), (value,), (value,))
    step = Computation("step", "step", 10_000)
    return Program("one", (SliceSpec("all", devices),), (step,), (value,), (node,), (Out(0),))


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


def all_kinds() -> dict[str, dict[str, dict[str, float]]]:
    """The figures by hosts and kind of call, and part."""
    return {f"{hosts} {call}": measured(hosts, call == "chained") for hosts, call in KINDS}


def show(turns: Sequence[dict[str, dict[str, dict[str, float]]]], hosts: int, call: str) -> None:
    table = Table(f"hosts: {hosts}; {CALLS[call]} <42", "calls >8.0f", "files >7.0f", "again >7.0f", "KiB >8.1f",
                  "CPU us >9.1f").begin()  # fmt: skip
    whole = 0.0
    for part, text in PARTS.items():
        rows = [turn[f"{hosts} {call}"][part] for turn in turns]
        us, first = median(row["us"] for row in rows), rows[0]
        whole += us
        table.row(f"  {text}", first["calls"], first["files"], first["again"], first["kib"], us)
    table.row("  all", None, None, None, None, whole)


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("hops", __doc__)
    parser.number("--turns", TURNS, "processes that measure, for a median of CPU time")
    chosen = parser.read(arguments)
    turns = [answer(all_kinds, bound=BOUND) for _ in range(chosen.turns)]
    for hosts, call in KINDS:
        show(turns, hosts, call)
