"""Calls to the controller: each names what it makes, enters it in the client's tables, and leaves or gathers.

Nothing is checked here, and names are those that the controller knows. Neighbours: `client` makes the user's calls,
`retries` makes them again; `call_batching` decides when they leave.
"""

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import Any, Literal

from msgspec.structs import replace

from ..model import Program, Range, SliceSpec, Value, ranges
from ..protocol import AskElastic, Call, Get, Put, Register, Release, ReleaseSlice, Relocate, Submit, Unregister, View
from .call_batching import CallBatching
from .client_limits import Submitted
from .client_state import ClientState, RegisteredProgram, awaited, registered

Action = Literal["move", "suspend", "resume"]


class OutgoingCalls:
    def __init__(self, state: ClientState, batching: CallBatching) -> None:
        self._state, self._batching, self._few = state, batching, state.limits.together

    def call(self, call: Call, now: int) -> None:
        if self._state.phase == "open":
            self._batching.call(call, now)
        else:
            self._batching.gather(call)

    def room(self) -> bool:
        """For calls that no other limit bounds."""
        return len(self._batching.gathered) < self._state.limits.max_runs

    def submit(
        self, program: int, known: RegisteredProgram, args: tuple[int | bytes | Range, ...], keep: tuple[bool, ...],
        dispatch: Any, deadline: int, waited: tuple[int, ...], think: int, now: int,
    ) -> Submitted:  # fmt: skip
        """`args`: those with consecutive names as one."""
        state = self._state
        if state.released:
            state.uses(known.ir.slices)
        state.last_run = run = state.last_run + 1
        if known.donates:
            self._give_up(args, known, donated_to(run, known.ir))
        results = known.no_names
        made: tuple[int | Range, ...] = results
        if keep == known.keep_all and len(keep) >= self._few:
            first = state.promise(len(keep))
            results = tuple(range(first, first + len(keep)))
            made = (Range(first, len(keep)),)
        elif True in keep:
            results = tuple([state.promise() if wanted else 0 for wanted in keep])
            made = results if len(results) < self._few else ranges.folded(results, self._few)
        state.runs[run] = made
        call = Submit(run, program, args, made, dispatch, deadline, waited, think)
        if state.phase == "open":
            self._batching.call(call, now)
        else:
            self._batching.gather(call)
        return Submitted(run, results)

    def _give_up(self, sent: tuple[int | bytes | Range, ...], known: RegisteredProgram, why: str) -> None:
        """The arguments that are donated."""
        index = 0
        for arg in sent:
            first, count = (arg.first, arg.count) if isinstance(arg, Range) else (arg, 1)
            cuts = known.edges[bisect_right(known.edges, index) : bisect_left(known.edges, index + count)]
            for low, high in pairwise((index, *cuts, index + count)):
                if low in known.donated and isinstance(first, int):
                    self._state.give_up(first + low - index, why, high - low)
            index += count

    def register(self, program: Program, now: int, tell: bool = False) -> int:
        state = self._state
        state.last_program = name = state.last_program + 1
        state.programs[name] = registered(program)
        state.uses(program.slices)
        if tell:
            state.untold[name] = None
        self.call(Register(name, program, tell), now)
        return name

    def unregister(self, program: int, now: int) -> None:
        self._state.forgotten[program] = self._state.programs.pop(program).ir
        self._state.untold.pop(program, None)
        self._state.waits.pop(awaited(program), None)
        self.call(Unregister(program), now)
        self.told_programs()

    def put(self, value: Value, where: SliceSpec, now: int) -> int:
        buffer = self._state.promise()
        self._state.uses((where,))
        self._state.requests["put", buffer] = None
        self.call(Put(buffer, value, where), now)
        return buffer

    def view(self, value: Value, where: SliceSpec, shards: tuple[tuple[int, int], ...], now: int) -> int:
        buffer = self._state.promise()
        self._state.uses((where,))
        self.call(View(buffer, value, where, shards), now)
        return buffer

    def get(self, buffer: int, now: int, shard: int) -> int:
        state = self._state
        state.last_request = request = state.last_request + 1
        state.requests["get", request] = None
        self.call(Get(request, buffer, shard), now)
        return request

    def relocate(self, action: Action, name: str, island: str, now: int) -> int:
        state = self._state
        state.last_request = request = state.last_request + 1
        state.requests["relocate", request] = None
        self.call(Relocate(request, action, name, island), now)
        return request

    def elastic(self, name: str, like: SliceSpec, sizes: tuple[int, ...], now: int) -> int:
        state = self._state
        state.last_request = request = state.last_request + 1
        state.elastic[name] = AskElastic(request, name, like, sizes)
        self.call(state.elastic[name], now)
        return request

    def release_slice(self, name: str, now: int) -> None:
        state = self._state
        state.elastic.pop(name, None)
        for asked in [call for call in state.elastic.values() if call.before == name]:
            state.elastic[asked.name] = replace(asked, before="")
        named = {spec.name for known in state.programs.values() for spec in known.ir.slices}
        if name in named:
            state.released[name] = None
        state.released = {each: None for each in state.released if each in named}
        self.call(ReleaseSlice(name), now)

    def release(self, buffers: tuple[int | Range, ...], now: int) -> None:
        for each in buffers:
            first, count = (each, 1) if isinstance(each, int) else (each.first, each.count)
            self._state.give_up(first, RELEASED, count)
        if buffers:
            self.call(Release(buffers), now)

    def told_programs(self) -> dict[int, Program]:
        """Programs that calls which have not left may name, the forgotten ones among them."""
        state = self._state
        waiting = {call.program for call in self._batching.gathered if isinstance(call, Unregister)}
        state.forgotten = {name: ir for name, ir in state.forgotten.items() if name in waiting}
        known = {name: program.ir for name, program in state.programs.items()}
        return dict(sorted((known | state.forgotten).items()))


RELEASED = "was released; keep it until its last use"


def donated_to(run: int, program: Program) -> str:
    return f"was donated to run {run} of {program.name!r}; donate a copy to keep it"
