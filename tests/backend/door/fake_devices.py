"""SessionDevices of numpy for tests of sessions: they note what they are asked for, and answer when the test says so.

A program is the name of a Python function here, and its "StableHLO" is that name. A reference is a `FakeArray`, its
shards in order; one that has no contents yet is waited for until `ready()`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from backend.contents import StagedProgram
from backend.door.protocol.ifrt_messages import DTypeProto, StatusCode
from backend.door.protocol.ifrt_shardings import ShardSpec
from backend.door.session.session_callbacks import SessionCallbacks
from backend.door.session.session_devices import (
    ArrayCopy,
    ArrayFiles,
    ArrayType,
    CompiledFacts,
    DeviceFacts,
    MemoryFacts,
    Platform,
    StagePlan,
    StatusError,
    Unready,
    WhenCompiled,
    WhenExecuted,
    invalid,
)

F32 = DTypeProto.KIND_F32
Shard = np.ndarray[Any, Any]


@dataclass(eq=False)
class FakeArray:
    parts: list[Shard]
    ready: bool = True
    fault: StatusError | None = None
    deleted: bool = False


@dataclass(eq=False)
class FakeRefs:
    """Results of one program, as one."""

    arrays: list[FakeArray]

    @property
    def count(self) -> int:
        return len(self.arrays)

    def part(self, at: int) -> FakeRefs:
        rest = FakeRefs(self.arrays[at:])
        del self.arrays[at:]
        return rest

    def alone(self) -> FakeArray:
        (array,) = self.arrays
        return array

    def waits(self) -> Sequence[FakeArray]:
        return tuple(self.arrays)


@dataclass
class FakeStages:
    plan: StagePlan
    stages: Sequence[FakeProgram]
    donated: tuple[int, ...]


@dataclass
class FakeProgram:
    """`results`: shapes of f32 results on one device; `donated`: arguments that it takes."""

    run: Callable[..., Sequence[Shard]]
    parameters: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]
    donated: tuple[int, ...] = ()
    fault: StatusError | None = None


def one_more(x: Shard) -> Sequence[Shard]:
    return [x + 1]


PROGRAMS = {
    b"one_more": FakeProgram(one_more, ((2,),), ((2,),)),
    b"calling": FakeProgram(one_more, ((2,),), ((2,),)),
    b"taking": FakeProgram(one_more, ((2,),), ((2,),), donated=(0,)),
    b"two": FakeProgram(lambda x: [x + 1, x * 2], ((2,),), ((2,), (2,))),
    b"row": FakeProgram(lambda *xs: [x + 1 for x in xs], ((2,),) * 4, ((2,),) * 4, donated=(1, 2)),
    b"wrong": FakeProgram(one_more, (), (), fault=invalid("it does not compile")),
}


def index_map(array_type: ArrayType) -> list[Any]:
    """Where the shard of each device lies, from the definition of a tiling."""
    tiles, count = array_type.sharding.tiles, len(array_type.sharding.devices)
    if not tiles.grid:
        return [...] * count
    order = tiles.listed or np.arange(count).reshape(tiles.reshape).transpose(tiles.transpose).flat
    found: list[Any] = [None] * count
    for position, device in enumerate(map(int, order)):
        cell = np.unravel_index(position, (*tiles.grid, *(size for size, _ in tiles.groups)))
        found[device] = tuple(
            slice(at * dim // cut, (at + 1) * dim // cut)
            for at, dim, cut in zip(cell, array_type.shape, tiles.grid, strict=False)
        )
    return found


@dataclass
class FakeDevices:
    """`held`: whether results wait for `ready()`, and programs for `compiled()`. `together`: whether results of a
    program are one."""

    count: int = 4
    held: bool = False
    together: bool = False
    most: int = 1000  # executions before it is crowded
    log: list[str] = field(default_factory=list)
    waits: list[tuple[list[FakeArray], Callable[[], None]]] = field(default_factory=list)
    compiling: list[Callable[[], None]] = field(default_factory=list)
    executed: int = 0
    resume: Callable[[], None] | None = None
    arrays: list[FakeArray] = field(default_factory=list)
    options: bytes = b""
    flags: frozenset[tuple[int, Any]] = frozenset()
    staged_programs: dict[str, StagedProgram] = field(default_factory=dict)
    closed: bool = False
    callbacks: SessionCallbacks | None = None  # of the last program
    clock: int | None = None
    files: dict[str, FakeArray] = field(default_factory=dict)
    waiting: list[Callable[[list[FakeArray] | FakeRefs | StatusError], None]] = field(default_factory=list)

    @property
    def platform(self) -> Platform:
        numbers = range(self.count)
        devices = tuple(DeviceFacts(n, "fake", n, (n,), f"FAKE:{n}", f"fake device {n}") for n in numbers)
        memories = tuple(MemoryFacts(n, "device", (n,), f"MEMORY:{n}", f"memory {n}") for n in numbers)
        return Platform("cpu", "1", "fake", devices, memories, 6, self.flags)

    def made(self, parts: Sequence[Shard]) -> FakeArray:
        array = FakeArray(list(parts), ready=not self.held)
        self.arrays.append(array)
        return array

    def ready(self, fault: StatusError | None = None) -> None:
        """All that waits becomes ready, with this fault if any."""
        for array in self.arrays:
            if not array.ready:
                array.ready, array.fault = True, fault
        waits, self.waits = self.waits, []
        for _, done in waits:
            done()

    def compiled(self) -> None:
        compiling, self.compiling = self.compiling, []
        for each in compiling:
            each()

    # --- what sessions call --------------------------------------------------------------------------------

    def put(self, array_type: ArrayType, shards: Sequence[Shard]) -> FakeArray:
        self.log.append(f"put {list(array_type.shape)} on {list(array_type.sharding.devices)}")
        return self.made([shard.copy() for shard in shards])

    def assemble(self, array_type: ArrayType, shards: Sequence[FakeArray]) -> FakeArray:
        self.log.append(f"assemble {list(array_type.shape)} on {list(array_type.sharding.devices)}")
        return self.made([shard.parts[0] for shard in shards])

    def shards(self, ref: FakeArray) -> list[FakeArray]:
        return [FakeArray([part], ref.ready, ref.fault, ref.deleted) for part in ref.parts]

    def copy(self, arrays: Sequence[ArrayCopy], always: bool, donate: bool = False) -> list[FakeArray]:
        found = []
        for each in arrays:
            how = f"{' always' if always else ''}{' donated' if donate else ''}"
            self.log.append(f"copy {list(each.target.shape)} to {list(each.target.sharding.devices)}{how}")
            found.append(self.made(list(each.ref.parts) if each.cut_alike else self._cut(each)))
            each.ref.deleted |= donate
        return found

    @staticmethod
    def _cut(copy: ArrayCopy) -> list[Shard]:
        """Element by element, after JAX's own index maps."""
        whole = np.empty(copy.source.shape, copy.ref.parts[0].dtype)
        for shard, box in zip(copy.ref.parts, index_map(copy.source), strict=True):
            whole[box] = shard
        return [whole[box].copy() for box in index_map(copy.target)]

    def compile(
        self, program: bytes, options: bytes, devices: Sequence[int], done: WhenCompiled,
        callbacks: SessionCallbacks | None = None,
    ) -> None:  # fmt: skip
        self.callbacks = callbacks
        self.log.append(f"compile {program.decode()} for {list(devices)}")
        self.options = options
        answer = self._compiling(program, tuple(devices), done)
        if self.held:
            self.compiling.append(answer)
        else:
            answer()

    def _compiling(self, program: bytes, devices: tuple[int, ...], done: WhenCompiled) -> Callable[[], None]:
        found = PROGRAMS[program]
        if found.fault is not None:
            return lambda: done(None, found.fault)  # type: ignore[arg-type]
        spec = ShardSpec(devices)
        facts = CompiledFacts(
            program.decode(), devices, b"print", tuple((F32, shape) for shape in found.parameters),
            tuple(ArrayType(F32, shape, spec) for shape in found.results), None, None,
            tuple("{0}" for _ in found.parameters), tuple("{0}" for _ in found.results),
            tuple("device" for _ in found.results), found.donated, {"temp_size_in_bytes": 8}, 16,
        )  # fmt: skip
        if program == b"calling":
            facts = replace(facts, waiting=lambda arguments, keep, launch, done: self.waiting.append(done))
        return lambda: done(found, facts)

    def read_stages(self, program: bytes, serdes: int, done: Callable[[StagedProgram | StatusError], None]) -> None:
        """A program is the name of one here, too."""
        self.log.append(f"read {program.decode()} of version {serdes}")
        done(self.staged_programs.get(program.decode()) or invalid("it cannot be read"))

    def staged(self, plan: StagePlan, stages: Sequence[FakeProgram], facts: CompiledFacts) -> FakeStages:
        self.log.append(f"put together {len(stages)} stages")
        return FakeStages(plan, stages, facts.donated)

    def execute(
        self,
        executable: FakeProgram | FakeStages,
        arguments: Sequence[FakeArray | FakeRefs],
        keep: Sequence[int],
        launch: int,
    ) -> list[FakeArray] | FakeRefs:
        self.log.append(f"execute{' keeping ' + str(list(keep)) if keep else ''}")
        self.executed += 1
        given: list[FakeArray] = []
        for each in arguments:
            if isinstance(each, FakeRefs):
                taken = {at in executable.donated for at in range(len(given), len(given) + each.count)}
                assert len(taken) == 1, "some of several arguments that are one are donated"
                assert not keep
                given += each.arrays
            else:
                given.append(each)
        for argument in given:
            if argument.deleted:
                raise invalid("Array has been deleted")
        if isinstance(executable, FakeStages):
            return self._run(executable, given, keep)
        shards = zip(*(argument.parts for argument in given), strict=True)
        found = [executable.run(*each) for each in shards]
        for at in executable.donated:
            given[at].deleted = at not in keep
        made = [self.made(parts) for parts in zip(*found, strict=True)]
        return FakeRefs(made) if self.together else made

    def _run(self, executable: FakeStages, given: list[FakeArray], keep: Sequence[int]) -> list[FakeArray]:
        plan, arrays = executable.plan, dict(enumerate(given))
        for step in plan.steps:
            inputs = [arrays[number] for number in step.inputs]
            made = [self.made(list(each.parts)) for each in inputs]
            if step.stage is not None:
                shards = zip(*(each.parts for each in inputs), strict=True)
                found = [executable.stages[step.stage].run(*each) for each in shards]
                made = [self.made(parts) for parts in zip(*found, strict=True)]
            arrays.update(zip(step.outputs, made, strict=True))
        for at in executable.donated:
            given[at].deleted = at not in keep
        return [arrays[number] for number in plan.results]

    def fetch(self, ref: FakeArray, done: Callable[[Shard | StatusError], None]) -> None:
        self.when_ready([ref], lambda fault: done(ref.parts[0] if fault is None else fault))

    def when_ready(self, refs: Sequence[FakeArray], done: Unready) -> None:
        def answer() -> None:
            done(next((ref.fault for ref in refs if ref.fault is not None), None))

        if all(ref.ready for ref in refs):
            answer()
        else:
            self.waits.append((list(refs), answer))

    def delete(self, ref: FakeArray | FakeRefs) -> None:
        for each in ref.arrays if isinstance(ref, FakeRefs) else (ref,):
            each.deleted = True

    def is_deleted(self, ref: FakeArray) -> bool:
        return ref.deleted

    def unload(self, executable: Any) -> None:
        self.log.append("unload")

    def cost_analysis(self, executable: Any, done: Callable[[Mapping[str, Any] | StatusError], None]) -> None:
        done(StatusError(StatusCode.UNIMPLEMENTED, "no costs"))

    def program_text(self, executable: Any, done: Callable[[str | StatusError], None]) -> None:
        done("text")

    def save(self, files: ArrayFiles, arrays: Sequence[FakeArray], done: WhenExecuted) -> None:
        self.log.append(f"save {files.folder} {' '.join(files.names)}")
        self.files.update(zip(files.names, arrays, strict=True))
        done([self.made([])])

    def restore(self, files: ArrayFiles, done: WhenExecuted) -> None:
        self.log.append(f"restore {files.folder} {' '.join(files.names)}")
        if missing := [name for name in files.names if name not in self.files]:
            done(StatusError(StatusCode.FAILED_PRECONDITION, f"{missing[0]} is missing"))
        else:
            done([self.files[name] for name in files.names])

    def now(self) -> int | None:
        return self.clock

    def default_layout(self, kind: int, shape: tuple[int, ...], device: int, memory_kind: str) -> str:
        return "{" + ",".join(str(at) for at in reversed(range(len(shape)))) + "}"

    def crowded(self, resume: Callable[[], None]) -> bool:
        if self.executed < self.most:
            return False
        self.resume = resume
        return True

    def room(self) -> None:
        self.executed = 0
        resume, self.resume = self.resume, None
        assert resume is not None
        resume()

    def close(self) -> None:
        self.closed = True
