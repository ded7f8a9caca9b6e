"""What one session has: arrays and executables by handle, host buffers, and what it may have at most. Plain data.

A client names most arrays itself and does not wait to hear whether they could be made. So an operation that fails
leaves its `StatusError` under the handles of its results, and uses end with it. Neighbours: `door_session`, `ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from core.model import ranges

from ..protocol import StatusCode
from .memory_meter import Memory, MemoryMeter
from .session_arrays import SERVER_MADE, ArrayRow, ArrayTable, ArrayValue, ArrayValues
from .session_callbacks import SessionCallbacks
from .session_devices import ArrayType, CompiledFacts, Ref, Refs, SessionDevices, StatusError, invalid
from .session_port import Version

COMPILING = 256  # programs of a session that may wait for the compiler


@dataclass(frozen=True)
class SessionLimits:
    """What one session may have at a time, so that no client takes all memory of this process."""

    arrays: int = 1 << 20
    array_bytes: int = 1 << 62  # of device memory
    executables: int = 1 << 14
    futures: int = 1 << 16
    host_bytes: int = 1 << 34  # of host buffers that no request has named yet, or that are not read yet
    host_buffers: int = 1 << 16
    program_bytes: int = 1 << 28
    queued: int = 1 << 10  # requests that wait for a host buffer, or for room on the devices
    waits: int = 1 << 14  # answers that wait for arrays
    persist: Path | None = None  # the folder below which it may have files written and read; None: nowhere


class ExecutableValue:
    """`row`: its results. `fits`: arguments that were found to have the types of its parameters, as entries of their
    row, with the index of the first. `stages`: those of an MPMD program, by name, as
    handles of executables; None: it is none."""

    __slots__ = ("donated", "edges", "executable", "facts", "fits", "row", "stages")

    def __init__(self, executable: Any, facts: CompiledFacts, stages: Mapping[str, int] | None = None) -> None:
        self.executable, self.facts, self.stages = executable, facts, stages
        self.row = ArrayRow(facts.results)
        self.donated = frozenset(facts.donated)
        # arguments of which just one of itself and the one before it is donated
        self.edges = sorted(self.donated.symmetric_difference(at + 1 for at in self.donated))
        self.fits: dict[tuple[int, int, int, int], ArrayRow] = {}


class Carried(NamedTuple):
    """What a `SessionProgram` has made. `waits`: what else is to be waited for."""

    results: list[tuple[ArrayType, Ref, Memory]]
    waits: list[Ref]


@dataclass(frozen=True)
class SessionProgram:
    """An executable that no device has: the session does what it says. `run` takes the arguments, as many as there are
    `parameters`, and tells what it has made, as many `results`, or raises StatusError. `waits`: it may tell that later,
    and the session takes no request meanwhile."""

    name: str
    devices: tuple[int, ...]  # as many as each argument has shards
    parameters: int
    results: int
    donated: tuple[int, ...]
    run: Callable[[SessionState, list[ArrayValue], Callable[[Carried | StatusError], None]], None]
    waits: bool = False


class HostBufferTable:
    """Bytes on their way from and to the client, by handle."""

    def __init__(self, limits: SessionLimits) -> None:
        self._limits = limits
        self._buffers: dict[int, bytes | bytearray | memoryview] = {}
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._buffers)

    def __contains__(self, handle: int) -> bool:
        return handle in self._buffers

    def put(self, handle: int, data: bytes | bytearray | memoryview) -> None:
        """Raises StatusError if it is too much, or if there is such a buffer."""
        if handle in self._buffers:
            raise invalid(f"there is a host buffer {handle}")
        size = _nbytes(data)
        if len(self._buffers) >= self._limits.host_buffers or self.nbytes + size > self._limits.host_bytes:
            raise StatusError(
                StatusCode.RESOURCE_EXHAUSTED,
                f"{len(self._buffers)} host buffers of {self.nbytes} bytes wait for their requests; a session may have "
                f"{self._limits.host_buffers} of {self._limits.host_bytes} bytes",
            )
        self._buffers[handle] = data
        self.nbytes += size

    def get(self, handle: int) -> bytes | bytearray | memoryview | None:
        return self._buffers.get(handle)

    def take(self, handle: int) -> bytes | bytearray | memoryview | None:
        data = self._buffers.pop(handle, None)
        if data is not None:
            self.nbytes -= _nbytes(data)
        return data

    def clear(self) -> None:
        self._buffers.clear()
        self.nbytes = 0


def _nbytes(data: bytes | bytearray | memoryview) -> int:
    return data.nbytes if isinstance(data, memoryview) else len(data)


class SessionState:
    """`incoming` and `outgoing` host buffers are apart: their handles are made by different sides of the client."""

    devices: SessionDevices
    count: int
    exact: bool  # the client is of the same version as the devices

    def __init__(self, version: Version, session_id: int, limits: SessionLimits) -> None:
        self.version, self.session_id, self.limits = version, session_id, limits
        self.arrays = ArrayTable(limits.arrays)
        self.executables: dict[int, ExecutableValue] = {}
        # of what is over; whether the answer to a question about it has a sequence number
        self.futures: dict[int, bool] = {}
        self.statuses: dict[int, list[Ref] | StatusError] = {}
        self.incoming, self.outgoing = HostBufferTable(limits), HostBufferTable(limits)
        self.memory = MemoryMeter(limits.array_bytes)
        self.compiling = 0
        self.callbacks = SessionCallbacks()
        # takes no request more, until what it returns is called with the rest of what the current one does
        self.hold: Callable[[], Callable[[Callable[[], None]], None]]
        self.flags_seen = False  # a client's XLA flags are looked at once
        self.over = False  # what comes late is dropped
        self._next = SERVER_MADE

    def given(self, devices: SessionDevices) -> None:
        self.devices, self.count = devices, len(devices.platform.devices)
        self.exact = self.version.serdes_version == devices.platform.serdes

    def new_handle(self, count: int = 1) -> int:
        """The first of so many new handles."""
        self._next += count
        return self._next - count

    # --- arrays --------------------------------------------------------------------------------------------

    def keep(self, handle: int, array_type: ArrayType, ref: Ref, memory: Memory) -> int:
        """Keeps an array under the client's handle, or under a new one if that is 0; returns the handle."""
        if not handle:
            handle = self.new_handle()
        else:
            self.arrays.check_new((handle,))
        self.arrays.check_room(1)
        self.arrays.keep(handle, ArrayValue(array_type, ref, memory))
        return handle

    def keep_all(self, handles: Sequence[int], made: Sequence[tuple[ArrayType, Ref, Memory]]) -> list[int]:
        """Without `handles`, under new ones."""
        if len(handles) not in (0, len(made)):
            raise invalid(f"{len(handles)} handles for {len(made)} arrays")
        return [self.keep(handle, *each) for handle, each in zip(handles or [0] * len(made), made, strict=True)]

    def keep_row(self, handles: Sequence[int], row: ArrayRow, refs: list[Ref] | Refs) -> Sequence[int]:
        """Keeps all results of a program, or none; without `handles`, under new ones."""
        count = len(row.types)
        if not handles:
            handles = range(self.new_handle(count), self.new_handle(0))
        else:
            if len(set(handles)) < count:
                raise invalid("two results of a program have the same handle")
            self.arrays.check_new(handles)
        self.arrays.check_room(count)
        if isinstance(refs, list):
            made = zip(handles, row.types, refs, row.sizes, strict=True)
            for handle, array_type, ref, size in made:
                self.arrays.keep(handle, ArrayValue(array_type, ref, self.memory.take(size)))
            return handles
        rest = ArrayValues(row, 0, refs, self.memory.take(row.total))
        for first, several in map(ranges.span, ranges.folded(handles, few=2)):
            values = rest
            if several < values.count:
                rest = values.part(several)
            self.arrays.keep(first, values)
        return handles

    def poison(self, field: str, handles: int | Iterable[int], fault: StatusError) -> None:
        """Whatever uses these handles, of a request's `field`, will end with this fault. Handles that are in use stay
        what they are."""
        for handle in (handles,) if isinstance(handles, int) else handles:
            if 0 < handle < SERVER_MADE:
                if field == "result_status_handle":
                    self.keep_status(handle, self.statuses.get(handle, fault))
                else:
                    self.arrays.poison(handle, fault)

    # --- others --------------------------------------------------------------------------------------------

    def executable(self, handle: int) -> ExecutableValue:
        found = self.executables.get(handle)
        if found is None:
            raise invalid(f"there is no executable {handle}")
        return found

    def unload(self, value: ExecutableValue) -> None:
        if not isinstance(value.executable, SessionProgram):
            self.devices.unload(value.executable)

    def check_executables(self, count: int) -> None:
        """Raises StatusError unless so many more may be compiled."""
        if len(self.executables) + count > self.limits.executables or self.compiling >= COMPILING:
            raise StatusError(
                StatusCode.RESOURCE_EXHAUSTED,
                f"a session may have {self.limits.executables} executables, and {COMPILING} that are being compiled: "
                "jax.clear_caches() frees those that are not in use",
            )

    def keep_executable(self, value: ExecutableValue) -> int:
        handle = self.new_handle()
        self.executables[handle] = value
        return handle

    def keep_future(self, counted: bool) -> int:
        handle = self.new_handle()
        self._keep(self.futures, handle, counted)
        return handle

    def keep_status(self, handle: int, status: list[Ref] | StatusError) -> int:
        """What `fetch_execute_result` waits for; 0: under a new handle."""
        handle = handle or self.new_handle()
        self._keep(self.statuses, handle, status)
        return handle

    def _keep(self, held: dict[int, Any], handle: int, value: Any) -> None:
        """A client asks once for each, at once: the oldest goes if there are too many."""
        if len(held) >= self.limits.futures:
            held.pop(next(iter(held)))
        held[handle] = value

    def end(self) -> None:
        self.over = True
        for each in self.executables.values():
            self.unload(each)
        self.arrays.clear()
        for held in (self.executables, self.futures, self.statuses):
            held.clear()
        self.incoming.clear()
        self.outgoing.clear()
