"""SessionDevices of a cluster: one JAX session is one client of core.

    Init         the session's devices are a slice                    execute   Submit of a program of one node
    put          Put; up to 4 KiB stay here and travel in calls       fetch     Get of the whole array, once
    compile      a program that asks, then the one that runs          delete    Release, many in one message

Nothing here waits and nothing is decided: core schedules, shares, and says what has failed. Calls are made in order of
arrival (`call_order`). Neighbours: `cluster_link` carries calls and what is heard; `cluster_arrays` are the references;
`cluster_executables` compiles; `cluster_copies` brings arrays to other devices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from backend.contents import StableHLOCode, stablehlo_code
from core.client import Blocked, Client
from core.model import Illegal, Range, ranges
from core.protocol import Blame, Command
from core.protocol import effects as e

from .call_order import CallOrder
from .cluster_arrays import ClusterArray, Outcome, Outcomes, Ref, ShardOfArray, Token, parts_of, when_known
from .cluster_copies import ClusterCopies
from .cluster_executables import ClusterExecutable, ClusterPrograms
from .cluster_faults import fault_of_blame
from .cluster_layouts import value_of, whole_of
from .cluster_link import ClusterLink
from .cluster_programs import Places
from .dtypes import STRING, TOKEN, dtype_of, name_of
from .ifrt_messages import StatusCode
from .session_devices import ArrayType, Platform, StatusError, Unready, WhenCompiled, invalid, unsupported

__all__ = ["ClusterDevices"]

T = TypeVar("T")
Contents = np.ndarray[Any, Any]
SUB_BYTE = re.compile(r"(?:u?int|float)([124])(?!\d)")  # types of which a byte has several elements
PACKS = 6  # serialization version of an XLA whose devices do so
SMALL = 4096  # bytes of an array that stays here; and of all arrays that travel in one call


class ClusterDevices:
    """`soon(function)`: calls it on the loop's thread, soon, from any thread."""

    def __init__(
        self, link: ClusterLink, platform: Platform, places: Places, programs: ClusterPrograms,
        soon: Callable[[Callable[[], None]], Any],
    ) -> None:  # fmt: skip
        self.platform = platform
        self._link, self._places, self._programs, self._soon = link, places, programs, soon
        self._order = CallOrder()
        self._copies = ClusterCopies(places, programs, self._order.go_on)
        self._runs: dict[int, Outcome] = {}
        self._outcomes = Outcomes()
        self._dropped: list[int] = []
        self._wanted: dict[ClusterArray, list[Callable[[Contents | StatusError], None]]] = {}
        self._gets: dict[int, ClusterArray] = {}  # by request
        self._coming: dict[int, int] = {}  # transfer -> request
        self._over: StatusError | None = None
        programs.default_kind = platform.default_memory_kind()
        link.heard, link.failed = self._heard, self._fail

    # --- arrays --------------------------------------------------------------------------------------------

    def put(self, array_type: ArrayType, shards: Sequence[Contents]) -> Ref:
        return self._made_of(array_type, whole_of(array_type, shards))

    def _made_of(self, array_type: ArrayType, contents: Contents) -> ClusterArray:
        made = ClusterArray(array_type, self._drop)
        self._fill(made, contents)
        return made

    def _fill(self, made: ClusterArray, contents: Contents, ahead: bool = False) -> None:
        """The array has these contents, which nobody changes. `ahead`: calls may wait for it already."""
        if made.type.kind == STRING:
            made.is_here(contents)
            return
        value_of(made.type, 0)  # raises what the cluster does not know
        if contents.nbytes <= SMALL:
            made.is_here(np.array(contents, order="C"))
            return
        call = partial(self._put, made, contents)
        if ahead:
            self._order.ahead(call)
        else:
            self._order.do(call)

    def _put(self, array: ClusterArray, contents: Contents) -> bool:
        value, where = value_of(array.type, 0), self._places.of(array.type.sharding.devices)

        def act(client: Client, now: int) -> bool:
            name = client.put(value, where, now)
            if isinstance(name, Blocked):
                return False
            self._link.offer(name).give(contents)
            outcome = Outcome(1)
            self._outcomes.add(outcome, name)
            array.is_buffer(name, outcome)
            return True

        return self._try(act, array.fails)

    def assemble(self, array_type: ArrayType, shards: Sequence[Ref]) -> Ref:
        whole = _relabelled(array_type, shards)
        if whole is not None:
            return whole
        made = ClusterArray(array_type, self._drop)
        contents: list[Contents | None] = [None] * len(shards)

        def came(at: int, found: Contents | StatusError) -> None:
            if made.settled:
                return
            if isinstance(found, StatusError):
                made.fails(found)
                self._order.go_on()
                return
            contents[at] = found
            if all(each is not None for each in contents):
                self._fill(made, whole_of(array_type, contents), ahead=True)  # type: ignore[arg-type]
                self._order.go_on()

        for at, shard in enumerate(shards):
            self.fetch(shard, partial(came, at))
        return made

    def shards(self, ref: Ref) -> list[Ref]:
        if isinstance(ref, Token):
            raise invalid("a token has no shards")
        if isinstance(ref, ShardOfArray) or len(ref.type.sharding.devices) == 1:
            return [ref]
        return list(parts_of(ref))

    def copy(self, arrays: Sequence[tuple[ArrayType, Ref]], always: bool) -> list[Ref]:
        return [self._copy(array_type, ref, always) for array_type, ref in arrays]

    def _copy(self, array_type: ArrayType, ref: Ref, always: bool) -> Ref:
        if isinstance(ref, Token):
            raise invalid("a token cannot be copied")
        source = self._alone(ref)
        if source.wrong is not None:
            raise source.wrong
        if source.here is not None:
            return ClusterArray(array_type, self._drop, source.here)
        if not always and source.type.sharding.devices == array_type.sharding.devices:
            return source
        made = ClusterArray(array_type, self._drop)
        outcome = made.outcome = Outcome(1)
        self._order.do(partial(self._copied, source, made, outcome))
        return made

    def _copied(self, source: ClusterArray, made: ClusterArray, outcome: Outcome) -> bool:
        if not self._ready_to_be_read(source):
            return False
        if source.here is not None:
            made.is_here(source.here)
            return True
        fault = source.wrong
        program = None if fault is not None else self._copies.program(source.type, made.type)
        if isinstance(program, StatusError):
            fault = program
        if fault is not None:
            self._failed(outcome, [made], fault)
            return True
        if program is None:  # its code is on its way to the controller
            return False

        def act(client: Client, now: int) -> bool:
            name = self._copies.registered(source.type, made.type, client, now)
            return name != 0 and self._submit(client, now, name, (source.name,), outcome, [made])

        return self._try(act, partial(self._failed, outcome, [made]))

    def delete(self, ref: Ref) -> None:
        if isinstance(ref, ClusterArray) and not ref.deleted:
            if ref.name:
                self._drop(ref.name)
            ref.deleted, ref.here = True, None
            self._order.go_on()

    def is_deleted(self, ref: Ref) -> bool:
        if isinstance(ref, ShardOfArray):
            ref = ref.alone or ref.parts.array
        return not isinstance(ref, Token) and ref.deleted

    def _alone(self, ref: ClusterArray | ShardOfArray) -> ClusterArray:
        """A shard as an array of its own: it comes here, and small ones stay."""
        if isinstance(ref, ClusterArray):
            return ref
        if ref.alone is None:
            ref.alone = self.assemble(ref.type, [ref])  # type: ignore[assignment]
        assert ref.alone is not None
        return ref.alone

    def _retyped(self, array: ClusterArray, array_type: ArrayType) -> ClusterArray:
        """An array of which we do not know how it is cut, for one who does: each device's shard stays what it is."""
        if value_of(array.type, 0) == value_of(array_type, 0):
            return array
        if array.retyped is None or array.retyped.type != array_type:
            made = self.assemble(array_type, self.shards(array))
            assert isinstance(made, ClusterArray)
            array.retyped = made
        return array.retyped

    # --- waiting -------------------------------------------------------------------------------------------

    def fetch(self, ref: Ref, done: Callable[[Contents | StatusError], None]) -> None:
        if isinstance(ref, Token):
            done(invalid("a token has no contents"))
        elif isinstance(ref, ClusterArray):
            self._want(ref, done)
        elif ref.alone is not None and ref.alone.settled:
            self._want(ref.alone, done)
        elif ref.parts.contents is not None:
            done(ref.parts.read(ref.at))
        else:

            def came(found: Contents | StatusError) -> None:
                if not isinstance(found, StatusError):
                    if ref.parts.contents is None:
                        ref.parts.came(found)
                    found = ref.parts.read(ref.at)
                done(found)

            self._want(ref.parts.array, came)

    def _want(self, array: ClusterArray, done: Callable[[Contents | StatusError], None]) -> None:
        if array.here is not None:
            done(array.here)
        elif array in self._wanted:
            self._wanted[array].append(done)
        else:
            self._wanted[array] = [done]
            self._order.do(partial(self._get, array))

    def _get(self, array: ClusterArray) -> bool:
        if not self._ready_to_be_read(array):
            return False
        found = array.wrong or array.here
        if found is not None:
            self._brought(array, found)
            return True

        def act(client: Client, now: int) -> bool:
            request = client.get(array.name, now)
            if isinstance(request, Blocked):
                return False
            self._gets[request] = array
            return True

        return self._try(act, partial(self._brought, array))

    def _brought(self, array: ClusterArray, found: Contents | StatusError) -> None:
        for done in self._wanted.pop(array, ()):
            done(found)

    def when_ready(self, refs: Sequence[Ref], done: Unready) -> None:
        when_known(list(refs), done)

    def crowded(self, resume: Callable[[], None]) -> bool:
        return self._order.crowded(resume)

    # --- programs ------------------------------------------------------------------------------------------

    def compile(self, program: bytes, options: bytes, devices: Sequence[int], done: WhenCompiled) -> None:
        self._programs.compile(program, options, tuple(devices), done)

    def execute(
        self, executable: ClusterExecutable, arguments: Sequence[Ref], keep: Sequence[int], launch: int
    ) -> list[Ref]:
        kept = [each for each in executable.results if each.kind != TOKEN]
        outcome = Outcome(len(kept))
        arrays = [ClusterArray(each, self._drop) for each in kept]
        for each in arrays:
            each.outcome = outcome
        given = [self._alone(each) for each in arguments if not isinstance(each, Token)]
        for at, each in enumerate(given):
            if each.type.sharding.shard is not None:
                given[at] = self._retyped(each, executable.parameters[at])
        self._order.do(partial(self._launch, executable, given, tuple(keep), outcome, arrays))
        if len(kept) == len(executable.results):
            return list(arrays)
        following = iter(arrays)
        return [Token(outcome) if each.kind == TOKEN else next(following) for each in executable.results]

    def _launch(
        self, executable: ClusterExecutable, arguments: list[ClusterArray], keep: tuple[int, ...], outcome: Outcome,
        results: list[ClusterArray],
    ) -> bool:  # fmt: skip
        for each in arguments:
            if not self._ready_to_be_read(each):
                return False
            if (
                each.name
                and each.here is not None
                and each.outcome is not None
                and each.outcome.fault_of(each.name)
            ):
                self._drop(each.name)  # the buffer was lost, and what is here can be sent again
                each.name, each.outcome = 0, None
        fault = next((fault for each in arguments if (fault := each.wrong) is not None), None)
        if fault is not None:
            self._failed(outcome, results, fault)
            return True
        if not self._travel(arguments):
            return False
        sent = tuple([each.name or _bytes(each.here) for each in arguments])
        donated = executable.donated
        giving = not donated or not (donated.intersection(keep) or _given_twice(arguments, donated))

        def act(client: Client, now: int) -> bool:
            if not giving and not executable.keeping:
                found = client.register(executable.keeping_ir, now)
                if isinstance(found, Blocked):
                    return False
                executable.keeping = found
            program = executable.giving if giving else executable.keeping
            return self._submit(client, now, program, sent, outcome, results)

        if not self._try(act, partial(self._failed, outcome, results)):
            return False
        if giving and donated:
            self._given_up([arguments[at] for at in donated])
        return True

    def _given_up(self, arrays: Sequence[ClusterArray]) -> None:
        """The memory of these is another's now."""
        self._forget(ranges.folded(sorted([array.name for array in arrays if array.name]), few=2))
        for array in arrays:
            array.give_up()

    def _travel(self, arguments: list[ClusterArray]) -> bool:
        """Whether those that are here fit into a call; the largest are put until they do."""
        here = {id(each): each for each in arguments if not each.name}
        nbytes = sum(each.here.nbytes for each in arguments if not each.name and each.here is not None)
        for each in sorted(here.values(), key=lambda each: -_nbytes(each)):
            if nbytes <= SMALL:
                break
            assert each.here is not None
            if not self._put(each, each.here):
                return False
            nbytes -= each.here.nbytes * sum(argument is each for argument in arguments)
        return True

    def _submit(
        self, client: Client, now: int, program: int, sent: tuple[int | bytes, ...], outcome: Outcome,
        results: list[ClusterArray],
    ) -> bool:  # fmt: skip
        made = client.submit(program, sent, now)
        if isinstance(made, Blocked):
            return False
        self._runs[made.run] = outcome
        if results:
            self._outcomes.add(outcome, made.results[0])
            for array, name in zip(results, made.results, strict=True):
                array.is_buffer(name, outcome)
        if self._dropped:
            self._release(client, now)
        return True

    def unload(self, executable: ClusterExecutable) -> None:
        self._order.do(partial(self._unload, executable))  # behind the calls of it that wait

    def _unload(self, executable: ClusterExecutable) -> bool:
        if self._over is None:
            self._programs.forget(executable.giving, executable.keeping)
        return True

    def cost_analysis(
        self, executable: ClusterExecutable, done: Callable[[Mapping[str, Any] | StatusError], None]
    ) -> None:
        self._question(executable, "costs", stablehlo_code.costs_of, done)

    def program_text(self, executable: ClusterExecutable, done: Callable[[str | StatusError], None]) -> None:
        self._question(executable, "text", stablehlo_code.text_of, done)

    def _question(
        self, executable: ClusterExecutable, question: str, read: Callable[[bytes], T],
        done: Callable[[T | StatusError], None],
    ) -> None:  # fmt: skip
        source = StableHLOCode(executable.source.program, executable.source.options, question)
        work = self._programs.ask(source, executable.ir.name, executable.devices)
        self._programs.begin(work, done, lambda about: done(read(about)))

    def default_layout(self, kind: int, shape: tuple[int, ...], device: int, memory_kind: str) -> str:
        dtype = dtype_of(kind)
        if dtype is None:
            raise unsupported(f"arrays of {name_of(kind)} have no layout here")
        packed = SUB_BYTE.match(dtype.name) if self.platform.serdes >= PACKS else None
        return (
            "{"
            + ",".join(map(str, reversed(range(len(shape)))))
            + (f":E({packed[1]})" if packed else "")
            + "}"
        )

    # --- calls ---------------------------------------------------------------------------------------------

    def _ready_to_be_read(self, array: ClusterArray) -> bool:
        """Whether it is settled; if not, calls go on when it is."""
        if array.settled or array.wrong is not None:
            return True
        array.when_settled(self._order.go_on)
        return False

    def _try(self, act: Callable[[Client, int], bool], failed: Callable[[StatusError], None]) -> bool:
        """Whether the call is over: it was made, or cannot be."""
        if self._over is not None:
            failed(self._over)
            return True
        try:
            return self._link.act(act)
        except Illegal as error:
            failed(StatusError(StatusCode.INTERNAL, str(error)))
            return True

    def _failed(self, outcome: Outcome, results: Sequence[ClusterArray], fault: StatusError) -> None:
        for each in results:
            each.fails(fault)
        outcome.end(fault)

    def _drop(self, name: int) -> None:
        """The last reference to this buffer has gone; called in any thread."""
        self._dropped.append(name)
        if len(self._dropped) == 1:
            self._soon(self._flush)

    def _flush(self) -> None:
        if self._dropped and self._over is None:
            self._link.act(self._release)

    def _release(self, client: Client, now: int) -> None:
        names, self._dropped = self._dropped, []
        found = ranges.folded(sorted(names), few=2)
        self._forget(found)
        client.release(found, now)

    def _forget(self, names: Iterable[int | Range]) -> None:
        """The session does not have these any more."""
        for outcome, here in self._outcomes.over(names):
            outcome.left -= len(here)
            if not outcome.left:
                self._outcomes.drop(outcome)
                outcome.forgotten()

    # --- what is heard -------------------------------------------------------------------------------------

    def _heard(self, command: Command) -> None:
        act = HEARD.get(type(command))
        if act is not None:
            act(self, command)

    def _ended(self, said: e.RunEnded) -> None:
        outcome = self._runs.pop(said.run, None)
        if outcome is not None:
            outcome.end(None if said.blame is None else fault_of_blame(said.blame))

    def _settled(self, said: e.BuffersReady) -> None:
        fault = None if said.blame is None else fault_of_blame(said.blame)
        for outcome, names in self._outcomes.over(ranges.folded(said.buffers, few=2)):
            outcome.settle(names, fault)

    def _opening(self, said: e.OpenRecv) -> None:
        self._coming[said.transfer] = said.buffer

    def _again(self, said: e.GetAgain) -> None:
        self._coming.pop(said.transfer, None)

    def _received(self, said: e.Received) -> None:
        request = self._coming.pop(said.transfer, 0)
        self._got(request, said.blame)

    def _refused(self, said: e.CallRefused) -> None:
        if said.what in ("get", "sending"):
            self._got(said.name, said.blame)
        elif said.what == "program":
            self._programs.refused(said.name, said.blame)

    def _got(self, request: int, blame: Blame | None) -> None:
        array = self._gets.pop(request, None)
        if array is not None:
            self._brought(array, self._link.taken(request) if blame is None else fault_of_blame(blame))

    def _told(self, said: e.ProgramTold) -> None:
        self._programs.told(said.program, said.about, said.blame)

    def _unblocked(self, said: e.Unblocked) -> None:
        self._programs.unblocked()
        self._order.go_on()

    def _fail(self, fault: StatusError) -> None:
        """The session's client is lost: nothing will be heard any more."""
        if self._over is None:
            self._over = fault
            for outcome in [*self._runs.values(), *self._outcomes]:
                outcome.end(fault)
            for array in list(self._wanted):
                self._brought(array, fault)
            self._order.go_on()

    # --- the end -------------------------------------------------------------------------------------------

    def close(self) -> None:
        if self._over is None:
            self._over = StatusError(StatusCode.CANCELLED, "the session is over")
        self._order.clear()
        self._programs.close()
        self._link.close()


HEARD: Mapping[type, Callable[[ClusterDevices, Any], None]] = {
    e.RunEnded: ClusterDevices._ended,
    e.BuffersReady: ClusterDevices._settled,
    e.OpenRecv: ClusterDevices._opening,
    e.GetAgain: ClusterDevices._again,
    e.Received: ClusterDevices._received,
    e.CallRefused: ClusterDevices._refused,
    e.ProgramTold: ClusterDevices._told,
    e.Unblocked: ClusterDevices._unblocked,
}


def _relabelled(array_type: ArrayType, shards: Sequence[Ref]) -> ClusterArray | None:
    """The array of which these are all shards, each in its place; None if there is none."""
    first = shards[0]
    if isinstance(first, ClusterArray):
        return first if len(shards) == 1 else None
    if not isinstance(first, ShardOfArray):
        raise invalid("a token is no shard of an array")
    whole = first.parts.array
    if len(shards) != len(first.parts.boxes) or whole.type.sharding.devices != array_type.sharding.devices:
        return None
    if any(
        not isinstance(each, ShardOfArray) or each.parts.array is not whole or each.at != at
        for at, each in enumerate(shards)
    ):
        return None
    guessed = array_type.sharding.shard is not None
    return whole if guessed or value_of(whole.type, 0) == value_of(array_type, 0) else None


def _bytes(contents: Contents | None) -> bytes:
    assert contents is not None
    return contents.tobytes()


def _nbytes(array: ClusterArray) -> int:
    return 0 if array.here is None else array.here.nbytes


def _given_twice(arguments: Sequence[ClusterArray], donated: Collection[int]) -> bool:
    names = [id(each) for each in arguments]
    return any(names.count(names[at]) > 1 for at in donated) if len(set(names)) < len(names) else False
