"""What one client knows, as plain tables.

Every name here is as the controller knows it. Where a retry has given a run, a buffer or a get another name, `retries`
knows what the user calls it. Neighbours: all modules of this package read and write these tables; `client` makes them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

import msgspec

from ..model import Illegal, Program, Range, RangeTable, SliceSpec, ranges
from ..protocol import AskElastic, Call, Command, Open, Put, Release, Submit, View
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
SPOILT = ("failed", "spoilt")  # states of BUFFER without contents
REMEMBERED = 1024  # buffers that are gone, and runs that were submitted again, of which is kept what became of them


class HeldBuffers(msgspec.Struct, eq=False):
    """Buffers with consecutive names that the user holds, in one state: see BUFFER."""

    state: str
    count: int = 1

    def part(self, at: int) -> HeldBuffers:
        rest = HeldBuffers(self.state, self.count - at)
        self.count = at
        return rest


class RegisteredProgram(msgspec.Struct, frozen=True):
    """A program, and what each call of it is checked against."""

    ir: Program
    sizes: tuple[int, ...]  # bytes of each argument, if it rides in the call
    results: int
    donates: tuple[int, ...]  # indices of arguments
    keep_all: tuple[bool, ...]
    no_names: tuple[int, ...]  # for the results of a call that keeps none
    donated: frozenset[int]  # the same indices
    edges: tuple[int, ...]  # arguments of which just one of itself and the one before it is donated


def registered(ir: Program) -> RegisteredProgram:
    count = len(ir.results)
    sizes = tuple([value.nbytes for value in ir.args])
    donated = frozenset(ir.donate_args)
    edges = tuple([at for at in range(1, len(sizes)) if (at in donated) != (at - 1 in donated)])
    return RegisteredProgram(ir, sizes, count, ir.donate_args, (True,) * count, (0,) * count, donated, edges)


def awaited(program: int) -> str:
    """The answer about a program, among what is waited for."""
    return f"program {program}"


class ClientState:
    def __init__(self, opening: Open, limits: Limits) -> None:
        self.limits = limits
        self.opening = opening
        self.phase = "new"  # of the session: see SESSION
        self.number = self.start = 0  # by which the controller knows this client, and the controller's start
        self.why_away = ""  # the last time that the controller was out of reach
        self.why_over = "it was closed"  # in the phases "closing" and "closed"
        self.out: list[Command] = []  # what the event or call under way has led to
        # names are counted from 1; these were given last
        self.last_program = self.last_run = self.last_buffer = self.last_request = 0
        self.programs: dict[int, RegisteredProgram] = {}
        self.untold: dict[int, None] = {}  # programs of which the user will be told that they are compiled
        self.forgotten: dict[int, Program] = {}  # unregistered, and the controller has not been told yet
        # that have not ended -> names of their results, 0 for none
        self.runs: dict[int, tuple[int | Range, ...]] = {}
        self.cancelled: set[int] = set()  # of these
        self.buffers: RangeTable[HeldBuffers] = RangeTable()  # that the user holds
        # buffer -> how many from it on, why they are not there any more, and which of them were without contents
        self.gone: dict[int, tuple[int, str, Sequence[range]]] = {}
        self.requests: dict[tuple[str, int], None] = {}  # ("put", buffer), ("get", request): not answered yet
        self.released: dict[str, None] = {}  # slices that were released, and not used since
        self.elastic: dict[str, AskElastic] = {}  # that were asked for, by name, with what they are now
        # run, minus the buffer of a put, or `awaited` -> (why it waits, since when)
        self.waits: dict[int | str, tuple[str, int]] = {}
        self.waited: dict[int, None] = {}  # runs for whose end the user has waited since the last call
        self.thinking_since: int | None = None  # when the user last submitted or stopped waiting
        self.blocked = False  # a call was answered Blocked, and Unblocked has not been said

    def uses(self, slices: Iterable[SliceSpec]) -> None:
        for spec in slices:
            self.released.pop(spec.name, None)
            self.released.pop(spec.of, None)

    # --- buffers ------------------------------------------------------------------------------------------

    def promise(self, count: int = 1) -> int:
        """The first of so many new names."""
        first = self.last_buffer + 1
        self.last_buffer += count
        if count == 1:
            self.buffers[first] = HeldBuffers("promised")
        else:
            self.buffers.put(first, HeldBuffers("promised", count))
        return first

    def state_of(self, buffer: int) -> str:
        """See BUFFER; "" if the user does not hold it."""
        found = self.buffers.find(buffer)
        return "" if found is None else found.state

    def settle(self, first: int, happened: str, count: int = 1) -> list[int | Range]:
        """Those of these buffers for which that is news. It is not for what was released meanwhile."""
        changed: list[int | Range] = []
        for name, record in self.buffers.there(first, count):
            after = BUFFER[record.state, happened]
            if after != record.state:
                record.state = after
                changed.append(ranges.ranged(name, record.count))
        return changed

    def check_buffers(self, first: int, count: int = 1) -> None:
        """Raises unless the user holds them all."""
        found = self.buffers.get(first)
        if found is not None and found.count == count:
            return
        for name, record in self.buffers.parts(first, count):
            if record is None:
                self._check_alone(name)

    def _check_alone(self, buffer: int) -> None:
        if not 0 < buffer <= self.last_buffer:
            raise Illegal(f"buffer {buffer} was never named by this client; use what `submit` or `put` returned")
        reasons = [why for first, (count, why, _) in self.gone.items() if first <= buffer < first + count]
        why = reasons[-1] if reasons else "was released or donated long ago; keep it until its last use"
        raise Illegal(f"buffer {buffer} {why}")

    def give_up(self, first: int, why: str, count: int = 1) -> None:
        whole = self.buffers.get(first)
        found: list[tuple[int, HeldBuffers | None]] = [(first, whole)]
        if whole is None or whole.count != count:
            found = list(self.buffers.parts(first, count))
        spoilt: list[range] = []
        for name, record in found:
            self.buffers.drop(name)
            if record is not None and record.state in SPOILT:
                spoilt.append(range(name, name + record.count))
        self.gone[first] = count, why, spoilt
        if len(self.gone) > REMEMBERED:
            del self.gone[next(iter(self.gone))]

    def names(self) -> list[int]:
        """Of all buffers that the user holds."""
        return [name for first, record in self.buffers.items() for name in range(first, first + record.count)]

    def spoil_unsettled(self, but: Container[int] = ()) -> tuple[int, ...]:
        """Buffers that somebody may be waiting for. `but`: not these, and those that were named with them."""
        waiting: list[int] = []
        for first, record in self.buffers.items():
            if record.state in ("promised", "failed") and first not in but:
                waiting += range(first, first + record.count)
                record.state = "spoilt"
        return tuple(waiting)

    def held_before(self, calls: Iterable[Call], programs: dict[int, Program]) -> tuple[int, ...]:
        """Buffers that were held before these calls, which the controller has not heard yet."""
        held = dict.fromkeys(self.names())
        for call in reversed(list(calls)):
            match call:
                case Submit(args=names, results=results):
                    args = ranges.each(names)
                    for result in ranges.each(results):
                        held.pop(result, None)
                    donated = [args[index] for index in programs[call.program].donate_args]
                    held.update(dict.fromkeys(arg for arg in donated if isinstance(arg, int)))
                case Put(buffer=buffer) | View(buffer=buffer):
                    held.pop(buffer, None)
                case Release(buffers=buffers):
                    held.update(dict.fromkeys(ranges.each(buffers)))
                case _:
                    pass
        return tuple(sorted(held))

    def spoilt_before(self, held: Iterable[int]) -> tuple[int, ...]:
        """Those of these buffers that were without contents, also if they were given up since."""
        given = {name for *_, spoilt in self.gone.values() for each in spoilt for name in each}
        return tuple([name for name in held if name in given or self.state_of(name) in SPOILT])
