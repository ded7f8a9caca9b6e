"""What one client knows, as plain tables.

Every name here is as the controller knows it. Where a retry has given a run, a buffer or a get another name, `retries`
knows what the user calls it. Neighbours: all modules of this package read and write these tables; `client` makes them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..model import Illegal, Program, ranges
from ..protocol import Call, Command, Open, Put, Release, Submit
from .client_limits import Limits

# (state of a buffer, what happened) -> next state. "failed": the run that makes it has ended with a blame, and the
# controller has not spoken of the buffer itself yet.
BUFFER: dict[tuple[str, str], str] = {
    ("promised", "ready"): "ready",
    ("promised", "failed"): "failed",
    ("promised", "spoilt"): "spoilt",
    ("ready", "ready"): "ready",
    ("ready", "failed"): "ready",
    ("ready", "spoilt"): "spoilt",  # lost with its hosts
    ("failed", "ready"): "failed",
    ("failed", "failed"): "failed",
    ("failed", "spoilt"): "spoilt",
    ("spoilt", "ready"): "spoilt",
    ("spoilt", "failed"): "spoilt",
    ("spoilt", "spoilt"): "spoilt",
}
REMEMBERED = (
    1024  # buffers that are gone, and runs that were submitted again, of which is kept what became of them
)


class RegisteredProgram(msgspec.Struct, frozen=True):
    """A program, and what each call of it is checked against."""

    ir: Program
    sizes: tuple[int, ...]  # bytes of each argument, if it rides in the call
    results: int
    donates: tuple[int, ...]  # indices of arguments
    keep_all: tuple[bool, ...]
    no_names: tuple[int, ...]  # for the results of a call that keeps none


def registered(ir: Program) -> RegisteredProgram:
    count = len(ir.results)
    sizes = tuple([value.nbytes for value in ir.args])
    return RegisteredProgram(ir, sizes, count, ir.donate_args, (True,) * count, (0,) * count)


class ClientState:
    __slots__ = (
        "blocked", "buffers", "cancelled", "forgotten", "gone", "last_buffer", "last_program", "last_request",
        "last_run", "limits", "number", "opening", "out", "phase", "programs", "requests", "runs", "thinking_since",
        "waited", "waits", "why_away",
    )  # fmt: skip

    def __init__(self, opening: Open, limits: Limits) -> None:
        self.limits = limits
        self.opening = opening
        self.phase = "new"  # of the session: see SESSION
        self.number = 0  # by which the controller knows this client
        self.why_away = ""  # the last time that the controller was out of reach
        self.out: list[Command] = []  # what the event or call under way has led to
        # names are counted from 1; these were given last
        self.last_program = self.last_run = self.last_buffer = self.last_request = 0
        self.programs: dict[int, RegisteredProgram] = {}
        self.forgotten: dict[int, Program] = {}  # unregistered, and the controller has not been told yet
        self.runs: dict[
            int, tuple[int, ...]
        ] = {}  # that have not ended -> names of their results, 0 for none
        self.cancelled: set[int] = set()  # of these
        self.buffers: dict[int, str] = {}  # that the user holds -> their state: see BUFFER
        self.gone: dict[int, str] = {}  # why a buffer is not there any more
        self.requests: dict[tuple[str, int], None] = {}  # ("put", buffer), ("get", request): not answered yet
        self.waits: dict[
            int, tuple[str, int]
        ] = {}  # run, or minus the buffer of a put -> (why it waits, since when)
        self.waited: dict[int, None] = {}  # runs for whose end the user has waited since the last call
        self.thinking_since: int | None = None  # when the user last submitted or stopped waiting
        self.blocked = False  # a call was answered Blocked, and Unblocked has not been said

    # --- buffers ------------------------------------------------------------------------------------------

    def promise(self) -> int:
        self.last_buffer += 1
        self.buffers[self.last_buffer] = "promised"
        return self.last_buffer

    def settle(self, buffer: int, happened: str) -> bool:
        """Whether that is news. It is not if the buffer was released meanwhile."""
        before = self.buffers.get(buffer)
        if before is None:
            return False
        after = self.buffers[buffer] = BUFFER[before, happened]
        return after != before

    def check_buffer(self, buffer: int) -> None:
        if buffer in self.buffers:
            return
        if not 0 < buffer <= self.last_buffer:
            raise Illegal(
                f"buffer {buffer} was never named by this client; use what `submit` or `put` returned"
            )
        why = self.gone.get(buffer, "was released or donated long ago; keep it until its last use")
        raise Illegal(f"buffer {buffer} {why}")

    def give_up(self, buffer: int, why: str) -> None:
        del self.buffers[buffer]
        self.gone[buffer] = why
        if len(self.gone) > REMEMBERED:
            del self.gone[next(iter(self.gone))]

    def spoil_unsettled(self) -> tuple[int, ...]:
        """Buffers that somebody may be waiting for."""
        waiting = tuple([name for name, state in self.buffers.items() if state in ("promised", "failed")])
        self.buffers.update(dict.fromkeys(waiting, "spoilt"))
        return waiting

    def held_before(self, calls: Iterable[Call], programs: dict[int, Program]) -> tuple[int, ...]:
        """Buffers that were held before these calls, which the controller has not heard yet."""
        held = dict.fromkeys(self.buffers)
        for call in reversed(list(calls)):
            match call:
                case Submit(args=names, results=results):
                    args = ranges.each(names)
                    for result in ranges.each(results):
                        held.pop(result, None)
                    donated = [args[index] for index in programs[call.program].donate_args]
                    held.update(dict.fromkeys(arg for arg in donated if isinstance(arg, int)))
                case Put(buffer=buffer):
                    held.pop(buffer, None)
                case Release(buffers=buffers):
                    held.update(dict.fromkeys(ranges.each(buffers)))
                case _:
                    pass
        return tuple(sorted(held))
