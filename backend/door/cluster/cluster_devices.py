"""SessionDevices of a cluster: one JAX session is one client of core.

    Init         the session's devices are a slice                    execute   Submit of a program of one node
    put          Put; up to 4 KiB stay here and travel in calls       fetch     Get of the whole array, once
    compile      a program that asks, then the one that runs          delete    Release, many in one message

Nothing here waits and nothing is decided: core schedules, shares, and says what has failed. Calls are made in order of
arrival (`cluster_calls`). Neighbours: `cluster_answers` hears and reads; `cluster_arrays` are the references;
`cluster_executables` compiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from backend.contents import StableHLOCode, stablehlo_code
from core.client import Blocked, Client, to_put
from core.model import MAX_LITERALS, Range, ranges

from ..protocol import STRING, TOKEN, StatusCode, cut_otherwise
from ..session import ArrayCopy, ArrayFiles, ArrayType, Platform, StatusError, Unready, WhenExecuted, invalid
from .cluster_answers import ClusterAnswers, WhenRead
from .cluster_arrays import (
    Argument,
    Awaited,
    BufferSpan,
    ClusterArray,
    ClusterArrays,
    Ref,
    ShardOfArray,
    SharedShard,
    Token,
    given_away,
    parts_of,
    relabelled,
    sources_of,
    when_known,
)
from .cluster_buffers import BufferOutcome, SessionBuffers
from .cluster_calls import ClusterCalls
from .cluster_executables import ClusterExecutable, ClusterPrograms
from .cluster_files import FilesProgram, restoring, saving
from .cluster_layouts import default_layout, in_one_way, value_of, whole_of
from .cluster_link import CallWatch, ClusterLink
from .cluster_programs import CopyPrograms, Places

T = TypeVar("T")
Contents = np.ndarray[Any, Any]
PACKS = 6  # serialization version of an XLA that packs elements of less than a byte


class ClusterDevices:
    """`later(function)` calls a function on the loop's thread, a little later, from any thread. `platform`: as soon as
    hosts have told what the devices are."""

    platform: Platform

    def __init__(
        self, link: ClusterLink, places: Places, programs: ClusterPrograms,
        later: Callable[[Callable[[], None]], Any], watch: CallWatch | None = None,
    ) -> None:  # fmt: skip
        self._link, self._places, self._programs, self._watch = link, places, programs, watch
        self._calls = ClusterCalls(link)
        self.crowded = self._calls.order.crowded
        self.compile, self.read_stages, self.staged = programs.compile, programs.read_stages, programs.staged
        self._copies = CopyPrograms(places)
        self._buffers = SessionBuffers(link, later, watch)
        self._answers = ClusterAnswers(link, self._calls, self._buffers, programs, watch)

    def are(self, platform: Platform) -> None:
        self.platform, self._programs.default_kind = platform, platform.default_memory_kind()

    # --- arrays --------------------------------------------------------------------------------------------

    def put(self, array_type: ArrayType, shards: Sequence[Contents]) -> Ref:
        self._places.of(array_type.sharding.devices)  # on one island, or this raises
        made = ClusterArray(array_type, self._buffers.drop)
        self._fill(made, whole_of(array_type, shards))
        return made

    def _fill(self, made: ClusterArray, contents: Contents, ahead: bool = False) -> None:
        """The array has these contents, which nobody changes. `ahead`: calls may wait for it already."""
        if self._stays(made, contents):
            return
        call = partial(self._put, made, contents)
        if ahead:
            self._calls.order.ahead(call)
        else:
            self._calls.order.do(call)

    def _stays(self, made: ClusterArray, contents: Contents) -> bool:
        """Whether it is here, because it is small. Raises what the cluster does not know."""
        if made.type.kind != STRING:
            value_of(made.type, 0)
            if contents.nbytes > MAX_LITERALS:  # a smaller one stays here, and travels in calls
                return False
            contents = np.array(contents, order="C")
        made.is_here(contents)
        return True

    def _put(self, array: ClusterArray, contents: Contents) -> bool:
        value, where = value_of(array.type, 0), self._places.of(array.type.sharding.devices)

        def call(client: Client, now: int) -> int | Blocked:
            name = client.put(value, where, now)
            if not isinstance(name, Blocked):
                self._link.offer(name).give(contents)
                if self._watch is not None:
                    self._watch.put(name, value.nbytes, now)
            return name

        return self._begin(array, call)

    def _begin(self, array: ClusterArray, call: Callable[[Client, int], int | Blocked]) -> bool:
        """Makes a call that names a buffer, which is the array's. False: it has to wait."""

        def act(client: Client, now: int) -> bool:
            name = call(client, now)
            if isinstance(name, Blocked):
                return False
            outcome = BufferOutcome(1)
            self._buffers.add(outcome, name)
            array.is_buffer(name, outcome)
            return True

        return self._calls.attempt(act, array.fails)

    def assemble(self, array_type: ArrayType, shards: Sequence[Ref]) -> Ref:
        self._places.of(array_type.sharding.devices)
        whole = relabelled(array_type, shards)
        if whole is not None:
            return whole
        made = ClusterArray(array_type, self._buffers.drop)
        sources = sources_of(array_type, shards)
        if sources is None:
            self._put_together(made, shards)
        else:
            self._calls.order.do(partial(self._view, made, sources))
        return made

    def _view(self, made: ClusterArray, sources: list[SharedShard]) -> bool:
        """The array has the memory of these. What is here goes there first, unless all of it can stay here."""
        arrays = list(dict.fromkeys(each.array for each in sources))
        for each in arrays:
            if not self._calls.ready_to_be_read(each):
                return False
            self._send_again(each)
        if not any(each.name or each.wrong for each in arrays):
            contents = whole_of(made.type, [each.contents for each in sources])
            return self._stays(made, contents) or self._put(made, contents)
        for each in arrays:
            if each.here is not None and not each.name and not self._put(each, each.here):
                return False
        fault = next((fault for each in arrays if (fault := each.wrong) is not None), None)
        if fault is not None:
            made.fails(fault)
            return True
        value, where = value_of(made.type, 0), self._places.of(made.type.sharding.devices)
        shards = tuple([(each.array.name, each.number) for each in sources])
        return self._begin(made, lambda client, now: client.view(value, where, shards, now))

    def _put_together(
        self, made: ClusterArray, shards: Sequence[Ref], copy: ArrayCopy | None = None,
        donated: ClusterArray | None = None,
    ) -> None:  # fmt: skip
        """The array has the contents of these, which come here. `copy`: they are cut otherwise, as that says."""
        contents: list[Contents | None] = [None] * len(shards)

        def came(at: int, found: Contents | StatusError) -> None:
            if made.settled:
                return
            if isinstance(found, StatusError):
                made.fails(found)
                self._calls.order.go_on()
                return
            contents[at] = found
            if all(each is not None for each in contents):
                parts: Any = contents
                if copy is not None:
                    parts = cut_otherwise(copy.source.shape, copy.source.sharding, copy.target.sharding, parts)
                self._fill(made, whole_of(made.type, parts), ahead=True)
                if donated is not None:
                    self.delete(donated)
                self._calls.order.go_on()

        for at, shard in enumerate(shards):
            self._answers.fetch(shard, partial(came, at))

    def shards(self, ref: Ref) -> list[Ref]:
        if isinstance(ref, Token):
            return [ref] * ref.count
        if isinstance(ref, ShardOfArray) or len(ref.type.sharding.devices) == 1:
            return [ref]
        return list(parts_of(ref))

    def copy(self, arrays: Sequence[ArrayCopy], always: bool, donate: bool = False) -> list[Ref]:
        """Those that are ready go together, and those that one call makes: they do not wait or fail for others."""
        found: list[Ref] = []
        moving: dict[int, list[tuple[ClusterArray, ClusterArray]]] = {}
        for given in arrays:
            self._places.of(given.target.sharding.devices)
            if isinstance(given.ref, Token):
                raise invalid("a token cannot be copied")
            source = self._alone(given.ref)
            if source.wrong is not None:
                raise source.wrong
            copy = given._replace(source=source.type) if source.type.sharding.exact else given
            ends = copy.source.sharding.devices, copy.target.sharding.devices
            if source.here is None and not always and not donate and ends[0] == ends[1] and copy.cut_alike:
                found.append(source)
                continue
            made = ClusterArray(copy.target, self._buffers.drop)
            found.append(made)
            if not in_one_way(copy.source, copy.target):
                self._put_together(made, self.shards(source), copy, source if donate else None)
            elif source.here is not None:
                made.is_here(source.here)
            else:
                together = 0 if source.known else id(source.outcome or source)
                moving.setdefault(together, []).append((source, made))
        for each in moving.values():
            self._calls.order.do(partial(self._copied, each))
            if donate:
                self._calls.order.do(partial(self._donated, [source for source, _ in each]))
        return found

    def _donated(self, arrays: Sequence[ClusterArray]) -> bool:
        """Their copies are under way."""
        for each in arrays:
            self.delete(each)
        return True

    def _copied(self, moving: Sequence[tuple[ClusterArray, ClusterArray]]) -> bool:
        """All of them by one call."""
        if not all(self._calls.ready_to_be_read(source) for source, _ in moving):
            return False
        moves: list[tuple[ClusterArray, ClusterArray]] = []
        for source, made in moving:
            if source.here is not None:
                made.is_here(source.here)
            elif source.wrong is not None:
                made.fails(source.wrong)
            else:
                moves.append((source, made))
        if not moves:
            return True
        copies, outcome = tuple([(source.type, made.type) for source, made in moves]), BufferOutcome(len(moves))
        names, results = tuple([source.name for source, _ in moves]), [made for _, made in moves]

        def act(client: Client, now: int) -> bool:
            program = self._copies.registered(copies, client, now)
            return program != 0 and self._submit(client, now, program, "copy", names, outcome, results)

        return self._calls.attempt(act, partial(self._failed, outcome, results))

    def delete(self, ref: Ref | ClusterArrays) -> None:
        if isinstance(ref, ClusterArrays):
            ref.delete()
            self._calls.order.go_on()
        elif isinstance(ref, ClusterArray) and not ref.gone:
            if ref.name:
                self._buffers.drop(ref.name)
            ref.deleted, ref.here = True, None
            self._calls.order.go_on()

    def is_deleted(self, ref: Ref) -> bool:
        if isinstance(ref, ShardOfArray):
            ref = ref.array
        return isinstance(ref, ClusterArray) and ref.gone

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

    def fetch(self, ref: Ref, done: WhenRead) -> None:
        self._answers.fetch(ref, self._answers.noted((ref,), done))

    def when_ready(self, refs: Sequence[Awaited], done: Unready) -> None:
        when_known(list(refs), self._answers.noted(refs, done))

    # --- programs ------------------------------------------------------------------------------------------

    def execute(
        self, executable: ClusterExecutable, arguments: Sequence[Ref | ClusterArrays], keep: Sequence[int], launch: int
    ) -> list[Ref] | ClusterArrays:
        kept = executable.arrays
        self._answers.called += 1
        outcome, arrays = BufferOutcome(len(kept)), list[ClusterArray]()
        if not executable.together:
            arrays = [ClusterArray(each, self._buffers.drop, outcome=outcome) for each in kept]
        given = self._given(executable, arguments)
        reads = [each.outcome for each in given if isinstance(each, BufferSpan)]
        call: Callable[[], bool] = partial(self._launch, executable, given, tuple(keep), outcome, arrays)
        if reads:
            self._buffers.read(reads)
            call = partial(self._launched, call, reads)
        self._calls.order.do(call)
        if executable.together:
            return ClusterArrays(outcome, 0, len(kept), executable.results, self._buffers.drop)
        if len(kept) == len(executable.results):
            return list(arrays)
        following = iter(arrays)
        count = len(executable.devices)
        return [Token(outcome, count) if each.kind == TOKEN else next(following) for each in executable.results]

    def _given(self, executable: ClusterExecutable, arguments: Sequence[Ref | ClusterArrays]) -> list[Argument]:
        """The arguments as they are now: what the session takes apart later stays together in this call."""
        given: list[Argument] = []
        index = 0
        for each in arguments:
            if isinstance(each, BufferSpan):
                given.append(BufferSpan(each.outcome, each.at, each.count))
                index += each.count
            elif not isinstance(each, Token):
                array = each if isinstance(each, ClusterArray) else self._alone(each)
                if array.type.sharding.shard is not None:
                    array = self._retyped(array, executable.parameters[index])
                given.append(array)
                index += 1
        return given

    def _launched(self, launch: Callable[[], bool], reads: list[BufferOutcome]) -> bool:
        over = launch()
        if over:
            self._buffers.unread(reads)
        return over

    def _launch(
        self, executable: ClusterExecutable, arguments: list[Argument], keep: tuple[int, ...], outcome: BufferOutcome,
        results: list[ClusterArray],
    ) -> bool:  # fmt: skip
        fault, here = None, list[ClusterArray]()
        for each in arguments:
            if not each.settled and not self._calls.ready_to_be_read(each):
                return False
            if isinstance(each, ClusterArray) and each.here is not None:
                self._send_again(each)
                if not each.name:
                    here.append(each)
            fault = fault or each.wrong
        if fault is not None:
            self._failed(outcome, results, fault)
            return True
        if here and not self._travel(here):
            return False
        sent = tuple([each.name or each.here.tobytes() for each in arguments])  # type: ignore[union-attr]
        given = given_away(arguments, executable.donated, keep)
        giving = given is not None

        def act(client: Client, now: int) -> bool:
            program = executable.giving if giving else executable.keeping
            program = program or executable.registered(giving, client, now)
            return program != 0 and self._submit(client, now, program, executable.ir.name, sent, outcome, results)

        if not self._calls.attempt(act, partial(self._failed, outcome, results)):
            return False
        if given:
            self._given_up(given)
        return True

    def _send_again(self, array: ClusterArray) -> None:
        """If its buffer was lost, what is here can be sent again."""
        if array.name and array.here is not None and array.outcome is not None and array.outcome.fault_of(array.name):
            self._buffers.drop(array.name)
            array.name, array.outcome = 0, None

    def _given_up(self, arrays: Sequence[Argument]) -> None:
        """The memory of these is another's now."""
        alone = sorted([each.name for each in arrays if isinstance(each, ClusterArray) and each.name])
        several = [each.name for each in arrays if isinstance(each, BufferSpan)]
        self._buffers.forget([*ranges.folded(alone, few=2), *several])
        for each in arrays:
            each.give_up()

    def _travel(self, arguments: list[ClusterArray]) -> bool:
        """Puts those of these, which are here, that do not fit into the call. False: it has to wait."""
        sizes = Counter[ClusterArray]()
        for each in arguments:
            sizes[each] += each.here.nbytes  # type: ignore[union-attr]
        found = list(sizes)
        return all(self._put(found[at], found[at].here) for at in to_put(list(sizes.values())))  # type: ignore[arg-type]

    def _submit(
        self, client: Client, now: int, program: int, name: str, sent: tuple[int | bytes | Range, ...],
        outcome: BufferOutcome, results: list[ClusterArray],
    ) -> bool:  # fmt: skip
        self._answers.tell_waited(client)
        made = client.submit(program, sent, now)
        if isinstance(made, Blocked):
            return False
        if self._watch is not None:
            self._watch.called(made.run, name, now)
        self._answers.began(made.run, outcome)
        if outcome.count:
            self._buffers.add(outcome, made.results[0])
        for array, buffer in zip(results, made.results, strict=False):  # none, if they are counted as one
            array.is_buffer(buffer, outcome)
        self._buffers.release(client, now)
        return True

    def _failed(self, outcome: BufferOutcome, results: Sequence[ClusterArray], fault: StatusError) -> None:
        for each in results:
            each.fails(fault)
        outcome.end(fault)

    def unload(self, executable: ClusterExecutable) -> None:
        self._calls.order.do(partial(self._unload, executable))  # behind the calls of it that wait

    def _unload(self, executable: ClusterExecutable) -> bool:
        if self._calls.over is None:
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

        async def answer() -> T:
            return read(await self._programs.ask(source, executable.ir.name, executable.devices))

        self._programs.begin(answer(), done, done)

    # --- files ---------------------------------------------------------------------------------------------

    def save(self, files: ArrayFiles, arrays: Sequence[Ref], done: WhenExecuted) -> None:
        if any(isinstance(each, Token) for each in arrays):
            raise invalid("a token cannot be saved")
        given = [self._alone(each) for each in arrays if not isinstance(each, Token)]
        exact = [each.type.sharding.exact for each in given]
        types = [each.type if known else said for each, known, said in zip(given, exact, files.types, strict=True)]
        self._with_files(saving(self._places, files._replace(types=tuple(types))), given, done)

    def restore(self, files: ArrayFiles, done: WhenExecuted) -> None:
        self._with_files(restoring(self._places, files), [], done)

    def _with_files(self, made: FilesProgram, arrays: Sequence[ClusterArray], done: WhenExecuted) -> None:
        """It is registered for this run alone."""
        asked = ClusterArray(made.parameters[0], self._buffers.drop, made.request)
        devices = asked.type.sharding.devices
        executable = ClusterExecutable(devices, made.parameters, made.results, (), made.program, made.program)
        executable.together = False

        def kept(_: None) -> None:
            found: list[Ref] | ClusterArrays | StatusError
            try:
                found = self.execute(executable, [asked, *arrays], (), 0)
            except StatusError as fault:
                found = fault
            self.unload(executable)
            done(found)

        self._programs.begin(self._programs.keep(*made.blobs), done, kept)

    def now(self) -> None:
        """It is this machine's clock."""

    def default_layout(self, kind: int, shape: tuple[int, ...], device: int, memory_kind: str) -> str:
        return default_layout(kind, len(shape), self.platform.serdes >= PACKS)

    # --- the end -------------------------------------------------------------------------------------------

    def close(self) -> None:
        if self._calls.over is None:
            self._calls.over = StatusError(StatusCode.CANCELLED, "the session is over")
        self._buffers.over = True
        self._calls.order.clear()
        self._programs.close()
        self._link.close()
