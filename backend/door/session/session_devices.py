"""What the protocol needs of devices: the seam between the session, which knows messages, and those who compute.

    session --put, compile, execute, copy, ...--> devices        nothing here waits
    session <--done(result or StatusError)------------  devices        on the loop's thread, in any order

`SessionDevices` are what one session has: they are numbered 0, 1, ... A `Ref` names an array that devices hold or will
hold; only they know what it is. An array is a row of shards, one for each device of its sharding, in its order. An
operation returns at once with references to results that are computed later, so an error of the computation is
found where somebody waits for it (`when_ready`, `fetch`); an operation that cannot begin raises `StatusError`.
Nothing says that execution is local. Implementations: `local_devices`, `cluster_devices`; tests have a fake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from backend.contents import StagedProgram
from backend.xla import StatusError

from ..protocol import ShardSpec, StatusCode
from .session_callbacks import SessionCallbacks

Ref = Any  # an array, as the devices know it


def invalid(text: str) -> StatusError:
    return StatusError(StatusCode.INVALID_ARGUMENT, text)


def unsupported(text: str) -> StatusError:
    return StatusError(StatusCode.UNIMPLEMENTED, text)


class ArrayType(NamedTuple):
    """`kind`: of its elements, a DTypeProto.Kind. `shape` is the whole array's."""

    kind: int
    shape: tuple[int, ...]
    sharding: ShardSpec

    @property
    def shard_shape(self) -> tuple[int, ...]:
        return self.sharding.shard_shape(self.shape)


class ArrayCopy(NamedTuple):
    """An array of type `source`, and what it is to become elsewhere, or cut otherwise; then both cuts are exact."""

    source: ArrayType
    target: ArrayType
    ref: Ref

    @property
    def cut_alike(self) -> bool:
        return self.source.sharding.cuts_as(self.target.sharding, self.source.shape)


class ArrayFiles(NamedTuple):
    """Arrays in a folder, each by its name: their types are those that they have here. `root`: the folder that it must
    be in, wherever links lead. `over`: whether nobody waits any more, after `seconds` at the latest."""

    folder: str
    root: str
    names: tuple[str, ...]
    types: tuple[ArrayType, ...]
    seconds: float
    over: Callable[[], bool]


@dataclass(frozen=True)
class MemoryFacts:
    id: int
    kind: str
    devices: tuple[int, ...]
    repr: str
    text: str


@dataclass(frozen=True)
class DeviceFacts:
    """`repr` and `text`: what Python's repr() and str() of it are at the client."""

    id: int
    kind: str
    default_memory: int
    memories: tuple[int, ...]
    repr: str
    text: str
    attributes: Mapping[str, str | bool | int | float | tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Platform:
    """What a session says when it begins. `serdes`: the serialization version of the XLA that is behind it: shardings
    of executables travel as they are to a client of the same version only. `flags`: XLA's, as a client of that version
    has them that was given the same; empty: unknown."""

    name: str
    version: str
    runtime: str
    devices: tuple[DeviceFacts, ...]
    memories: tuple[MemoryFacts, ...]
    serdes: int
    flags: frozenset[tuple[int, Any]] = frozenset()

    def default_memory_kind(self) -> str:
        device = self.devices[0]
        return next(each.kind for each in self.memories if each.id == device.default_memory)


@dataclass(frozen=True)
class CompiledFacts:
    """What a client asks about an executable. `parameters`: their kinds and whole
    shapes, None: unknown; `results`: their types. Shardings are serialized OpShardings;
    a layout is its text, as XLA writes it, and None for a token. `waiting`: runs it instead of `execute`, where that
    would wait for functions of the client's process."""

    name: str
    devices: tuple[int, ...]
    fingerprint: bytes
    parameters: tuple[tuple[int, tuple[int, ...]] | None, ...]
    results: tuple[ArrayType, ...]
    parameter_shardings: tuple[bytes, ...] | None
    output_shardings: tuple[bytes, ...] | None
    parameter_layouts: tuple[str | None, ...] | StatusError
    output_layouts: tuple[str | None, ...] | StatusError
    output_memory_kinds: tuple[str, ...] | StatusError
    donated: tuple[int, ...]
    memory_stats: Mapping[str, int]
    code_size: int
    places: tuple[tuple[int, ...], ...] = ()  # devices of each parameter, if these are not those of the program
    passing: int = 0  # bytes of arrays that it makes and gives up again
    waiting: RunsWaiting | None = None


class PlanStep(NamedTuple):
    """`stage`: which of the executables runs; None: output k is input k on the devices of its type, cut as that is.
    `last`: places among `inputs` of arrays that nothing needs afterwards."""

    stage: int | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    last: frozenset[int] = frozenset()


class StagePlan(NamedTuple):
    """An MPMD program. Arrays are numbered, and the first are the arguments. No result is an argument, or another
    result."""

    name: str
    types: tuple[ArrayType, ...]
    steps: tuple[PlanStep, ...]
    results: tuple[int, ...]


Unready = Callable[[StatusError | None], None]  # told when a wait is over: None, or what went wrong
WhenCompiled = Callable[[Any, CompiledFacts | StatusError], None]  # told the executable, and what is known of it
WhenExecuted = Callable[["list[Ref] | Refs | StatusError"], None]
RunsWaiting = Callable[[Sequence[Ref], Sequence[int], int, WhenExecuted], None]  # as `execute`; told when it has run


class Refs(Protocol):
    """Several results of one program, as one. Which are taken apart from the others is the session's affair; whoever
    has some of them drops them when it is gone."""

    @property
    def count(self) -> int: ...

    def part(self, at: int) -> Refs:
        """Keep the first `at`, return the others."""

    def alone(self) -> Ref:
        """The array that is left, if it is one. Nothing else is done with this object afterwards."""

    def waits(self) -> Sequence[Ref]:
        """For `when_ready`: all that they are now, whatever is taken from them later."""


class SessionDevices(Protocol):
    @property
    def platform(self) -> Platform: ...

    def put(self, array_type: ArrayType, shards: Sequence[np.ndarray[Any, Any]]) -> Ref:
        """An array of these contents, one for each of its shards. They may be views on memory that nobody changes."""

    def assemble(self, array_type: ArrayType, shards: Sequence[Ref]) -> Ref:
        """One array of arrays on one device each. `shards` stay what they are."""

    def shards(self, ref: Ref) -> list[Ref]:
        """An array for each shard, which may share its memory."""

    def copy(self, arrays: Sequence[ArrayCopy], always: bool, donate: bool = False) -> list[Ref]:
        """The same contents with other shardings. `always`: even if nothing moves. `donate`: nobody needs the arrays
        themselves any more, and what becomes of them is copied always."""

    def compile(
        self, program: bytes, options: bytes, devices: Sequence[int], done: WhenCompiled,
        callbacks: SessionCallbacks | None = None,
    ) -> None:  # fmt: skip
        """Compiles StableHLO. `options`: a CompileOptionsProto of which only what is safe is left; `devices`: those of
        its device assignment, replica by replica. `callbacks`: for what the program calls; None: nobody answers."""

    def read_stages(self, program: bytes, serdes: int, done: Callable[[StagedProgram | StatusError], None]) -> None:
        """What an MPMD program says, which a client with this serialization version wrote."""

    def staged(self, plan: StagePlan, stages: Sequence[Any], facts: CompiledFacts) -> Any:
        """An executable of several, which stay. Raises StatusError."""

    def execute(self, executable: Any, arguments: Sequence[Ref], keep: Sequence[int], launch: int) -> list[Ref] | Refs:
        """Runs it on these arguments. One of them may be a `Refs` that stands for several, which is taken or not as a
        whole. `keep`: indices of arguments that stay usable although it would take them; each of these is alone."""

    def fetch(self, ref: Ref, done: Callable[[np.ndarray[Any, Any] | StatusError], None]) -> None:
        """The contents of an array on one device."""

    def when_ready(self, refs: Sequence[Ref], done: Unready) -> None: ...

    def delete(self, ref: Ref) -> None:
        """Frees an array's memory, or that of a `Refs`, although others may have references to it."""

    def is_deleted(self, ref: Ref) -> bool: ...

    def unload(self, executable: Any) -> None: ...

    def cost_analysis(self, executable: Any, done: Callable[[Mapping[str, Any] | StatusError], None]) -> None: ...

    def program_text(self, executable: Any, done: Callable[[str | StatusError], None]) -> None: ...

    def save(self, files: ArrayFiles, arrays: Sequence[Ref], done: WhenExecuted) -> None:
        """Writes these arrays. `done` is told references to wait for with `when_ready`: then all of it is on disk."""

    def restore(self, files: ArrayFiles, done: WhenExecuted) -> None:
        """Reads arrays. `done` is told a reference to each."""

    def default_layout(self, kind: int, shape: tuple[int, ...], device: int, memory_kind: str) -> str: ...

    def crowded(self, resume: Callable[[], None]) -> bool:
        """Whether so much is under way that nothing more should be executed now; if so, `resume` will be called."""

    def now(self) -> int | None:
        """Nanoseconds by a clock of their own, if they are simulated."""

    def close(self) -> None:
        """The session is over: what only it had is freed."""
