"""SessionDevices that are simulated: a client of core says when, and contents are somebody else's.

    session --> ClusterDevices     when a simulated cluster has done it, and whether
            --> SessionContents    what comes of it: computed by `local_devices`, or `ShapesOnly`

Each reference is a pair, and each operation goes to both. Simulated time passes only while somebody waits for it; so
everything that the program waits for is told to the `WaitingLine`. Neighbours: `cluster_devices`, `simulation_port`,
`simulated_process`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from backend.contents import StagedProgram
from core.model import MAX_LITERALS

from ..cluster import ClusterDevices
from ..protocol import cut_otherwise
from ..session import (
    ArrayCopy,
    ArrayFiles,
    ArrayType,
    CompiledFacts,
    Platform,
    Ref,
    Refs,
    SessionCallbacks,
    StagePlan,
    StatusError,
    Unready,
    WhenCompiled,
    WhenExecuted,
    unsupported,
)
from .simulation_port import WaitingLine

if TYPE_CHECKING:
    from ..local import LocalDevices

T = TypeVar("T")
NO_FILES = "simulated devices write and read no files"
Found = np.ndarray[Any, Any] | StatusError
SessionContents: TypeAlias = "LocalDevices | ShapesOnly"


class SimulatedRef(NamedTuple):
    timed: Any
    contents: Any


class SimulatedRefs:
    """Implements `session_devices.Refs`: several results of one program, whose contents are one by one."""

    __slots__ = ("contents", "timed")

    def __init__(self, timed: Any, contents: list[Any]) -> None:
        self.timed, self.contents = timed, contents

    @property
    def count(self) -> int:
        return int(self.timed.count)

    def part(self, at: int) -> SimulatedRefs:
        rest = SimulatedRefs(self.timed.part(at), self.contents[at:])
        del self.contents[at:]
        return rest

    def alone(self) -> Ref:
        return SimulatedRef(self.timed.alone(), self.contents[0])

    def waits(self) -> Sequence[Ref]:
        return [SimulatedRef(each, None) for each in self.timed.waits()]


class SimulatedExecutable(NamedTuple):
    timed: Any
    contents: Any


class SimulatedDevices:
    """Implements `session_devices.SessionDevices`."""

    def __init__(self, timed: ClusterDevices, contents: SessionContents, line: WaitingLine) -> None:
        self._timed, self._contents, self._line = timed, contents, line

    @property
    def platform(self) -> Platform:
        return self._timed.platform

    # --- arrays --------------------------------------------------------------------------------------------

    def put(self, array_type: ArrayType, shards: Sequence[np.ndarray[Any, Any]]) -> Ref:
        self._line.speaks()
        return SimulatedRef(self._timed.put(array_type, shards), self._contents.put(array_type, shards))

    def assemble(self, array_type: ArrayType, shards: Sequence[SimulatedRef]) -> Ref:
        self._line.speaks()
        timed, contents = _apart(shards)
        return SimulatedRef(self._timed.assemble(array_type, timed), self._contents.assemble(array_type, contents))

    def shards(self, ref: SimulatedRef) -> list[Ref]:
        return _pairs(self._timed.shards(ref.timed), self._contents.shards(ref.contents))

    def copy(self, arrays: Sequence[ArrayCopy], always: bool, donate: bool = False) -> list[Ref]:
        self._line.speaks()
        timed = self._timed.copy([each._replace(ref=each.ref.timed) for each in arrays], always, donate)
        contents = self._contents.copy([each._replace(ref=each.ref.contents) for each in arrays], always, donate)
        return _pairs(timed, contents)

    def delete(self, ref: SimulatedRef | SimulatedRefs) -> None:
        self._timed.delete(ref.timed)
        for each in _contents_of(ref):
            self._contents.delete(each)

    def is_deleted(self, ref: SimulatedRef) -> bool:
        return self._timed.is_deleted(ref.timed)

    # --- waiting -------------------------------------------------------------------------------------------

    def fetch(self, ref: SimulatedRef, done: Callable[[Found], None]) -> None:
        """What cannot be read is an error at once. What can takes as long as the cluster takes to bring it."""

        def came(found: Found | None) -> None:
            def brought(said: Found) -> None:
                done(said if found is None or isinstance(said, StatusError) else found)

            if isinstance(found, StatusError):
                done(found)
            else:
                self._timed.fetch(ref.timed, self._in_time(brought))

        self._line.speaks()
        self._contents.fetch(ref.contents, self._at_work(came))

    def when_ready(self, refs: Sequence[SimulatedRef], done: Unready) -> None:
        self._line.speaks()
        self._timed.when_ready([ref.timed for ref in refs], self._in_time(done))

    def crowded(self, resume: Callable[[], None]) -> bool:
        """Also while the simulated thread of the program is busy with its last call."""
        line = self._line
        line.speaks()

        def resumed(over: Callable[[], None]) -> None:
            over()
            resume()

        if self._timed.crowded(partial(resumed, line.waited)):
            line.waits()
            return True
        if self._contents.crowded(partial(resumed, line.worked)):
            line.works()
            return True
        return line.calling(resume)

    def _in_time(self, done: Callable[[T], None]) -> Callable[[T], None]:
        """`done`, for which the program waits in simulated time."""
        return _counted(self._line.waits, self._line.waited, done)

    def _at_work(self, done: Callable[[T], None]) -> Callable[[T], None]:
        return _counted(self._line.works, self._line.worked, done)

    # --- programs ------------------------------------------------------------------------------------------

    def compile(
        self, program: bytes, options: bytes, devices: Sequence[int], done: WhenCompiled,
        callbacks: SessionCallbacks | None = None,
    ) -> None:  # fmt: skip
        self._line.speaks()

        def made(executable: Any, facts: Any) -> None:
            if isinstance(facts, StatusError):
                done(None, facts)
                return
            self._line.works()
            self._contents.compile(program, options, devices, partial(loaded, executable, facts))

        def loaded(executable: Any, facts: Any, contents: Any, fault: Any) -> None:
            self._line.worked()
            if isinstance(fault, StatusError):
                self._timed.unload(executable)
                done(None, fault)
            else:
                done(SimulatedExecutable(executable, contents), facts)

        self._timed.compile(program, options, devices, made, callbacks)

    def read_stages(self, program: bytes, serdes: int, done: Callable[[StagedProgram | StatusError], None]) -> None:
        self._line.speaks()
        self._timed.read_stages(program, serdes, self._at_work(done))

    def staged(
        self, plan: StagePlan, stages: Sequence[SimulatedExecutable], facts: CompiledFacts
    ) -> SimulatedExecutable:
        contents = self._contents.staged(plan, [each.contents for each in stages], facts)
        return SimulatedExecutable(self._timed.staged(plan, [each.timed for each in stages], facts), contents)

    def execute(
        self, executable: SimulatedExecutable, arguments: Sequence[SimulatedRef | SimulatedRefs],
        keep: Sequence[int], launch: int,
    ) -> list[Ref] | Refs:  # fmt: skip
        given = [each for argument in arguments for each in _contents_of(argument)]
        contents = self._contents.execute(executable.contents, given, keep, launch)
        found = self._timed.execute(executable.timed, [each.timed for each in arguments], keep, launch)
        if isinstance(found, list):
            return _pairs(found, _one_by_one(contents, len(found)))
        return SimulatedRefs(found, _one_by_one(contents, found.count))

    def unload(self, executable: SimulatedExecutable) -> None:
        self._timed.unload(executable.timed)

    def cost_analysis(
        self, executable: SimulatedExecutable, done: Callable[[Mapping[str, Any] | StatusError], None]
    ) -> None:
        self._timed.cost_analysis(executable.timed, done)

    def program_text(self, executable: SimulatedExecutable, done: Callable[[str | StatusError], None]) -> None:
        self._timed.program_text(executable.timed, done)

    def save(self, files: ArrayFiles, arrays: Sequence[SimulatedRef], done: WhenExecuted) -> None:
        raise unsupported(NO_FILES)

    def restore(self, files: ArrayFiles, done: WhenExecuted) -> None:
        raise unsupported(NO_FILES)

    def now(self) -> int:
        return self._line.now()

    def default_layout(self, kind: int, shape: tuple[int, ...], device: int, memory_kind: str) -> str:
        return self._timed.default_layout(kind, shape, device, memory_kind)

    def close(self) -> None:
        self._timed.close()
        self._contents.close()


def _apart(refs: Sequence[SimulatedRef]) -> tuple[list[Any], list[Any]]:
    return [ref.timed for ref in refs], [ref.contents for ref in refs]


def _contents_of(ref: SimulatedRef | SimulatedRefs) -> list[Any]:
    return ref.contents if isinstance(ref, SimulatedRefs) else [ref.contents]


def _one_by_one(contents: Iterable[Ref] | Refs, count: int) -> list[Ref]:
    """The contents of so many results."""
    if isinstance(contents, Iterable):
        return list(islice(contents, count))
    found = []
    while contents.count > 1:
        rest = contents.part(1)
        found.append(contents.alone())
        contents = rest
    return [*found, contents.alone()]


def _pairs(timed: Sequence[Any], contents: Iterable[Any]) -> list[Ref]:
    return [SimulatedRef(*each) for each in zip(timed, contents, strict=False)]


def _counted(begin: Callable[[], None], end: Callable[[], None], done: Callable[[T], None]) -> Callable[[T], None]:
    """`done`, which is waited for from now on."""
    begin()

    def over(found: T) -> None:
        end()
        done(found)

    return over


# --- contents of which only shapes are simulated -------------------------------------------------------------------

UNREADABLE = (
    "this door simulates shapes only, so arrays have no contents: start it with --values zeros to read zeros, or with "
    "--values compute to read contents, which this machine's CPU then computes"
)
Shards = tuple[np.ndarray[Any, Any], ...]  # the contents of an array, for each device


class ShapesOnly:
    """The part of `SessionDevices` that has contents. A reference is the shards of an array; None: it has none. Results
    may be more than are asked for, if all are alike. `zeros`: what an array without contents is read as; without it, to
    read one is an error."""

    def __init__(self, zeros: bool = False) -> None:
        self._unread = None if zeros else unsupported(UNREADABLE)

    def put(self, array_type: ArrayType, shards: Sequence[np.ndarray[Any, Any]]) -> Shards | None:
        if sum(each.nbytes for each in shards) > MAX_LITERALS:
            return None
        return tuple([np.array(each) for each in shards])

    def assemble(self, array_type: ArrayType, shards: Sequence[Shards | None]) -> Shards | None:
        known = [shard for shard in shards if shard is not None]
        return None if len(known) < len(shards) else tuple([each for shard in known for each in shard])

    def shards(self, ref: Shards | None) -> Iterable[Shards | None]:
        return repeat(None) if ref is None else [(each,) for each in ref]

    def copy(self, arrays: Sequence[ArrayCopy], always: bool, donate: bool = False) -> Iterable[Shards | None]:
        return [each.ref if each.ref is None or each.cut_alike else _cut_otherwise(each) for each in arrays]

    def compile(self, program: bytes, options: bytes, devices: Sequence[int], done: Callable[[Any, Any], None]) -> None:
        done(None, None)

    def staged(self, plan: StagePlan, stages: Sequence[None], facts: CompiledFacts) -> None:
        pass

    def execute(
        self, executable: None, arguments: Sequence[Shards | None], keep: Sequence[int], launch: int
    ) -> Iterable[None]:
        return repeat(None)

    def fetch(self, ref: Shards | None, done: Callable[[Found | None], None]) -> None:
        """None: what the cluster brings, which is zeros."""
        done(self._unread if ref is None else ref[0])

    def delete(self, ref: Shards | None) -> None:
        """Nothing: they go when the session forgets them."""

    def crowded(self, resume: Callable[[], None]) -> bool:
        return False

    def close(self) -> None:
        pass


def _cut_otherwise(copy: ArrayCopy) -> Shards:
    source, target = copy.source, copy.target
    return tuple(cut_otherwise(source.shape, source.sharding, target.sharding, copy.ref))
