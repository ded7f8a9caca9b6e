"""SessionDevices of this process: sessions compute with JAX's own devices, through jaxlib.

    loop's thread   put, execute, copy, ...: all that has an order; JAX enqueues and returns
    compiling       programs, a few at a time: a child reads and compiles them (`ProgramGate`), here they are loaded
    waiting         arrays that are not ready when somebody wants to know or to have them

An array is a `jax.Array` of which only jaxlib's half is used, whatever its type. XLA's CPU devices run each shard of a
program in a thread of one pool: programs whose collectives wait for each other would use it up, so few of many devices
may be under way (`crowded`). Neighbour: `program_facts`.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np
from jaxlib import _jax

from backend.contents import CallbackFault, StagedProgram
from backend.pjrt.code import Forwarders, stablehlo_executables, wake_lapack
from backend.sandbox import ProgramGate
from backend.xla import assigned_to
from core.model import ranges

from ...auth import Rules
from ..program_facts import compiled_facts, fault_of, known_stages, program_facts, read_program, translated
from ..protocol import STRING, TOKEN, ShardSpec, StatusCode, Tiles, cut_otherwise, dtype_of, name_of, op_sharding
from ..session import (
    ArrayCopy,
    ArrayFiles,
    ArrayType,
    CompiledFacts,
    Ref,
    Refs,
    SessionCallbacks,
    StagePlan,
    StatusError,
    Unready,
    WhenCompiled,
    WhenExecuted,
    invalid,
    unsupported,
)
from . import local_files
from .kept_executables import KeptExecutables, key_of
from .local_platform import platform_of
from .local_resharding import recut
from .local_stages import StagedExecutable

native: Any = _jax
hlo: Any = importlib.import_module("jax._src.lib").xla_client

COMPILING = 4  # programs at a time, so that one session's does not hold up others'
WAITING = 64  # threads at most that wait for arrays
UNDER_WAY = 24  # programs of one device: JAX itself would wait at 32
AT_ONCE = 1 << 20  # bytes of an array that is cut otherwise while others wait
DEFAULT_RULES = Rules()


class Executable:
    """`handlers` make arrays of its results, in C++; None: it has tokens among them. `forwarders`: for what it calls in
    its client's process."""

    __slots__ = ("devices", "donated", "forwarders", "handlers", "loaded", "results")

    def __init__(
        self, loaded: Any, facts: CompiledFacts, handlers: list[Any] | None, forwarders: Forwarders | None
    ) -> None:
        self.loaded, self.handlers, self.forwarders = loaded, handlers, forwarders
        self.devices, self.results, self.donated = len(facts.devices), facts.results, frozenset(facts.donated)


class LocalRefs:
    """Results of one program, as one."""

    __slots__ = ("arrays",)

    def __init__(self, arrays: list[Any]) -> None:
        self.arrays = arrays

    @property
    def count(self) -> int:
        return len(self.arrays)

    def part(self, at: int) -> LocalRefs:
        rest = LocalRefs(self.arrays[at:])
        del self.arrays[at:]
        return rest

    def alone(self) -> Ref:
        return self.arrays[0]

    def waits(self) -> Sequence[Ref]:
        return tuple(self.arrays)


class TokenRef:
    """A result without contents, on `count` devices: it is ready when its program has ended, which `ended` tells."""

    __slots__ = ("_ended", "_over", "count")

    def __init__(self, count: int, ended: Any) -> None:
        self.count, self._ended, self._over = count, ended, False

    def is_ready(self) -> bool:
        return self._over

    def block_until_ready(self) -> None:
        self._ended.block_until_ready()
        self._over = True


def on_loop() -> Callable[..., None]:
    """What calls a function on the thread of the loop that runs now."""
    loop = asyncio.get_running_loop()

    def post(function: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits for this any more
            loop.call_soon_threadsafe(function, *arguments)

    return post


class LocalDevices:
    """`post(function, ...)` calls a function on the loop's thread. `rules`: what programs may call, and what compiling
    them may take; `trusted`: they are compiled in this process. One object serves all sessions, and what was compiled
    for one of them is there for all."""

    def __init__(
        self,
        post: Callable[..., Any],
        *,
        count: int | None = None,
        threads: int = 32,
        rules: Rules = DEFAULT_RULES,
        trusted: bool = False,
    ) -> None:
        jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
        wake_lapack()
        self._post, self._more, self._patience = post, frozenset(rules.more), rules.callback_seconds
        self._devices = sorted(jax.local_devices(), key=lambda each: each.id)[:count]
        self._numbers = {device: number for number, device in enumerate(self._devices)}
        self._client = self._devices[0].client
        self._here = self._devices[0].platform == "cpu"
        self.platform = platform_of(self._devices)
        self._default_kind = self.platform.default_memory_kind()
        self._compiling = ThreadPoolExecutor(min(COMPILING, max(2, os.cpu_count() or 1)), "compile")
        self._gate: ProgramGate | None = None
        if not trusted:
            self._gate = ProgramGate(rules, devices=len(self._devices), compiles=self._here)
        self._kept = KeptExecutables[tuple[Executable, CompiledFacts]]()
        self._waiting = ThreadPoolExecutor(WAITING, "wait")
        self._under_way: deque[Any] = deque()  # a result of each program, in order
        self._under_way_multi: deque[Any] = deque()
        self._stages: deque[Any] = deque()  # a token of each stage, in order
        self._threads, self._multi = threads, max(1, threads // max(len(self._devices), 1) - 1)
        self._sharding_of = lru_cache(maxsize=4096)(self._sharding)
        self._aval_of = lru_cache(maxsize=4096)(_aval)

    # --- arrays --------------------------------------------------------------------------------------------

    def put(self, array_type: ArrayType, shards: Sequence[np.ndarray[Any, Any]]) -> Ref:
        sharding = self._sharding_of(_known(array_type))
        devices = [self._devices[number] for number in array_type.sharding.devices]
        with translated():
            return native.batched_device_put(
                self._aval_of(array_type.kind, array_type.shape), sharding, shards, devices, True, enable_x64=True
            )

    def assemble(self, array_type: ArrayType, shards: Sequence[Ref]) -> Ref:
        _check_there(shards)
        with translated():
            return native.ArrayImpl(
                self._aval_of(array_type.kind, array_type.shape), self._sharding_of(_known(array_type)), list(shards),
                committed=True, _skip_checks=True,
            )  # fmt: skip

    def shards(self, ref: Ref) -> list[Ref]:
        if isinstance(ref, TokenRef):
            return [ref] * ref.count
        _check_there([ref])
        with translated():
            return list(ref._arrays)

    def copy(self, arrays: Sequence[ArrayCopy], always: bool, donate: bool = False) -> list[Ref]:
        _check_there([each.ref for each in arrays])
        alike = [each for each in arrays if each.cut_alike]
        with translated():
            copies = iter(self._copies(alike, always or donate))
            found = [next(copies) if each.cut_alike else self._cut_otherwise(each) for each in arrays]
        if donate:
            for each in arrays:
                self.delete(each.ref)
        return found

    def _copies(self, arrays: Sequence[ArrayCopy], always: bool) -> list[Ref]:
        """Shard for shard."""
        semantics = native.ArrayCopySemantics.ALWAYS_COPY if always else native.ArrayCopySemantics.REUSE_INPUT
        shardings = [self._sharding_of(_known(each.target)) for each in arrays]
        return list(
            native.batched_copy_array_to_devices_with_sharding(
                [each.ref for each in arrays], [sharding._internal_device_list for sharding in shardings],
                shardings, [semantics] * len(arrays),
            )
        )  # fmt: skip

    def _cut_otherwise(self, copy: ArrayCopy) -> Ref:
        """In the devices' default memory, from and to which whole shards are copied."""
        if self._here and copy.ref.nbytes <= AT_ONCE and _is_ready(copy.ref):
            found = [_contents(each) for each in copy.ref._arrays]
            shards = [each for each in found if not isinstance(each, StatusError)]
            if len(shards) == len(found):  # an error is left to its own copy, below
                ends = copy.source.sharding, copy.target.sharding
                return self.put(copy.target, cut_otherwise(copy.source.shape, *ends, shards))
        source, target = (
            each._replace(sharding=each.sharding.on(each.sharding.devices, "")) for each in (copy.source, copy.target)
        )
        if copy.source.sharding.memory_kind not in ("", self._default_kind):
            copy = copy._replace(ref=self._copies([copy._replace(target=source)], False)[0])
        made = recut(copy._replace(target=target), [self._devices[at] for at in target.sharding.devices])
        self._under_way.append(made[0])
        whole = self.assemble(target, made)
        if copy.target.sharding.memory_kind not in ("", self._default_kind):
            whole = self._copies([ArrayCopy(target, copy.target, whole)], False)[0]
        return whole

    def delete(self, ref: Ref) -> None:
        for each in ref.arrays if isinstance(ref, LocalRefs) else (ref,):
            if not isinstance(each, TokenRef):
                each.delete()

    def is_deleted(self, ref: Ref) -> bool:
        return not isinstance(ref, TokenRef) and bool(ref.is_deleted())

    # --- waiting -------------------------------------------------------------------------------------------

    def fetch(self, ref: Ref, done: Callable[[np.ndarray[Any, Any] | StatusError], None]) -> None:
        if self._here and _is_ready(ref):
            done(_contents(ref))
        else:
            self._waiting.submit(lambda: self._post(self._tell, done, _contents(ref)))

    def when_ready(self, refs: Sequence[Ref], done: Unready) -> None:
        if all(_is_ready(ref) for ref in refs):
            done(_awaited(refs))
        else:
            self._waiting.submit(lambda: self._post(self._tell, done, _awaited(refs)))

    def _tell(self, done: Callable[[Any], None], what: Any) -> None:
        self._forget_results()
        done(what)

    def _forget_results(self) -> None:
        """Of programs that are over, so that their memory is only the client's to keep."""
        for line in (self._under_way, self._under_way_multi):
            while line and _is_ready(line[0]):
                line.popleft()

    def crowded(self, resume: Callable[[], None]) -> bool:
        self._forget_results()
        for line, most in ((self._under_way_multi, self._multi), (self._under_way, UNDER_WAY)):
            if len(line) >= most:
                oldest = line[0]

                def wait(oldest: Any = oldest) -> None:
                    _awaited([oldest])
                    self._post(resume)

                self._waiting.submit(wait)
                return True
        return False

    # --- programs ------------------------------------------------------------------------------------------

    def compile(
        self, program: bytes, options: bytes, devices: Sequence[int], done: WhenCompiled,
        callbacks: SessionCallbacks | None = None,
    ) -> None:  # fmt: skip
        def work() -> None:
            executable: Any = None
            facts: CompiledFacts | StatusError
            try:
                with translated():
                    executable, facts = self._compile(program, options, tuple(devices), callbacks)
            except StatusError as fault:
                facts = fault
            self._post(done, executable, facts)

        self._compiling.submit(work)

    def _compile(
        self, program: bytes, options: bytes, devices: tuple[int, ...], callbacks: SessionCallbacks | None
    ) -> tuple[Executable, CompiledFacts]:
        options = assigned_to(options, [device.id for device in self._devices])
        key = key_of(program, options, devices)
        if (known := self._kept.find(key)) is not None:
            return known
        place = [self._devices[number] for number in devices]
        if self._gate is None:
            about, artifact = read_program(program, self._more, callbacks is not None), b""
        else:
            main, artifact = self._gate.check(program, options, [device.id for device in place], callbacks is not None)
            about = program_facts(main)
        forwarders = None
        if about.callbacks and callbacks is not None:
            ask = partial(self._post, callbacks.ask)
            forwarders = Forwarders(about.callbacks, ask, self._patience, alone=len(devices) == 1)
        called = forwarders.functions if forwarders is not None else ()
        if artifact:
            found = stablehlo_executables.load_program(self._client, artifact, options, place, called)
        else:
            found = stablehlo_executables.compile_program(self._client, program, options, place, called)
        said = stablehlo_executables.about_executable(found)
        facts = compiled_facts(about, said, devices, self._default_kind)
        made = Executable(found, facts, self._handlers(facts), forwarders)
        if forwarders is not None:  # it is only its session's
            return made, replace(facts, waiting=partial(self._wait_for, made))
        self._kept.keep(key, (made, facts), max(len(program), len(artifact), facts.code_size))
        return made, facts

    def read_stages(self, program: bytes, serdes: int, done: Callable[[StagedProgram | StatusError], None]) -> None:
        self._compiling.submit(lambda: self._post(done, known_stages(self._gate, program, serdes)))

    def staged(self, plan: StagePlan, stages: Sequence[Executable], facts: CompiledFacts) -> StagedExecutable:
        return StagedExecutable(plan, stages, facts)

    def _handlers(self, facts: CompiledFacts) -> list[Any] | None:
        if any(array_type.kind == TOKEN for array_type in facts.results):
            return None
        return [
            native.array_result_handler(
                self._aval_of(array_type.kind, array_type.shape), self._sharding_of(_known(array_type)),
                committed=True, **stablehlo_executables.UNCHECKED,
            )
            for array_type in facts.results
        ]  # fmt: skip

    def execute(
        self, executable: Executable | StagedExecutable, arguments: Sequence[Ref], keep: Sequence[int], launch: int
    ) -> list[Ref] | Refs:
        given = _one_by_one(arguments)
        if isinstance(executable, StagedExecutable):
            _check_there(given)
            return executable.run(self, given, keep)
        return self.run(executable, given, keep, tokens=False)

    def run(self, executable: Executable, given: list[Any], keep: Sequence[int], tokens: bool) -> list[Ref] | Refs:
        """`tokens`: it is one of many that begin together."""
        if tokens:
            self._made_room(executable.devices)
        with translated():
            for at in executable.donated.intersection(keep):
                given[at] = self._duplicate(given[at])
            handlers, waits = executable.handlers, executable.forwarders is not None
            asks = tokens or waits or handlers is None
            results = executable.loaded.execute_sharded(given, with_tokens=asks)
            ended: Any = results.consume_token() if asks else None
            if tokens:
                self._stages.append(ended)
            if waits:
                ended.block_until_ready()
            found: list[Ref] = (
                list(results.consume_with_handlers(handlers))
                if handlers is not None
                else self._mixed(executable, results, ended)
            )
        if found:
            line = self._under_way if executable.devices == 1 else self._under_way_multi
            line.append(next((each for each in found if not isinstance(each, TokenRef)), found[0]))
        return found if handlers is None or len(found) < ranges.FEW else LocalRefs(found)

    def _wait_for(
        self, executable: Executable, arguments: Sequence[Ref], keep: Sequence[int], launch: int, done: WhenExecuted
    ) -> None:
        """In a thread: XLA runs small programs in the thread that launches them, and these wait for the loop."""

        def work() -> None:
            assert executable.forwarders is not None
            run = executable.forwarders.begin()
            found: list[Ref] | Refs | StatusError
            try:
                found = self.execute(executable, arguments, keep, launch)
                fault = _awaited(found if isinstance(found, list) else found.waits())
            except StatusError as error:
                fault = error
            try:
                run.end()
            except CallbackFault as callback:
                fault = StatusError(StatusCode.INTERNAL, str(callback))
            self._post(done, fault or found)

        self._waiting.submit(work)

    def _made_room(self, devices: int) -> None:
        """Waits until one more of the stages that begin together may be enqueued, on so many devices. Their results may
        be donated before they have run, so tokens tell when they have."""
        while len(self._stages) >= max(1, self._threads // devices - 1):
            with suppress(Exception):  # who reads its results is told
                self._stages.popleft().block_until_ready()

    def _duplicate(self, array: Any) -> Any:
        _check_there([array])
        sharding = array.sharding
        copies = native.batched_copy_array_to_devices_with_sharding(
            [array], [sharding._internal_device_list], [sharding], [native.ArrayCopySemantics.ALWAYS_COPY]
        )
        return copies[0]

    def _mixed(self, executable: Executable, results: Any, ended: Any) -> list[Ref]:
        found: list[Ref] = []
        made = results.disassemble_into_single_device_arrays()
        for array_type, shards in zip(executable.results, made, strict=True):
            if array_type.kind == TOKEN:
                found.append(TokenRef(len(shards), ended))
            else:
                found.append(shards[0] if len(shards) == 1 else self.assemble(array_type, shards))
        return found

    def unload(self, executable: Any) -> None:
        """Nothing: it goes when the session forgets it."""

    def cost_analysis(self, executable: Executable, done: Callable[[Mapping[str, Any] | StatusError], None]) -> None:
        with translated():
            found = executable.loaded.cost_analysis()
        done(found[0] if isinstance(found, list) else found)

    def program_text(self, executable: Executable, done: Callable[[str | StatusError], None]) -> None:
        with translated():
            text = str(executable.loaded.get_hlo_text())
        done(text)

    # --- files ---------------------------------------------------------------------------------------------

    def save(self, files: ArrayFiles, arrays: Sequence[Ref], done: WhenExecuted) -> None:
        def work() -> list[Ref]:
            local_files.write(files, arrays)
            return []

        _check_there(arrays)
        self._in_thread(work, done)

    def restore(self, files: ArrayFiles, done: WhenExecuted) -> None:
        def work() -> list[Ref]:
            return [self.put(*each) for each in zip(files.types, local_files.read(files), strict=True)]

        self._in_thread(work, done)

    def _in_thread(self, work: Callable[[], list[Ref]], done: WhenExecuted) -> None:
        def run() -> None:
            found: list[Ref] | StatusError
            try:
                with translated():
                    found = work()
            except StatusError as fault:
                found = fault
            self._post(done, found)

        self._waiting.submit(run)

    def now(self) -> None:
        """It is this machine's clock."""

    def default_layout(self, kind: int, shape: tuple[int, ...], device: int, memory_kind: str) -> str:
        dtype = dtype_of(kind)
        if dtype is None:
            raise unsupported(f"arrays of {name_of(kind)} have no layout here")
        with translated():
            return stablehlo_executables.default_layout(self._devices[device], dtype, shape)

    def warm(self) -> None:
        """Somebody is about to compile something."""
        if self._gate is not None:
            self._gate.warm()

    def close(self) -> None:
        """A session's arrays go when it forgets them. jaxlib drops host buffers that were theirs only when it is asked
        to, or called for something else."""
        self._forget_results()
        native.collect_garbage()

    def end(self) -> None:
        """Ends threads, and children; what they wait for need not end."""
        if self._gate is not None:
            self._gate.close()
        for pool in (self._compiling, self._waiting):
            pool.shutdown(wait=False, cancel_futures=True)

    # --- shardings -----------------------------------------------------------------------------------------

    def _sharding(self, spec: ShardSpec) -> Any:
        kind = spec.memory_kind or self._default_kind
        devices = tuple(self._devices[number] for number in spec.devices)
        kinds = {each.kind for each in devices[0].addressable_memories()}
        if kind not in kinds:
            raise StatusError(
                StatusCode.INVALID_ARGUMENT,
                f"device {spec.devices[0]} has no memory of kind {kind!r}: it has {', '.join(sorted(kinds))}",
            )
        if len(devices) == 1:
            return jax.sharding.SingleDeviceSharding(devices[0], memory_kind=kind)
        return native.GSPMDSharding(native.DeviceList(devices), _hlo_sharding(spec.tiles), memory_kind=kind)


@lru_cache(maxsize=4096)
def _hlo_sharding(tiles: Tiles) -> Any:
    proto = hlo.OpSharding()
    proto.ParseFromString(op_sharding(tiles).SerializeToString())
    return hlo.HloSharding.from_proto(proto)


def _known(array_type: ArrayType) -> ShardSpec:
    """Its sharding; a guess where only the shape of shards is known, which jaxlib compares with nothing."""
    spec = array_type.sharding
    if spec.shard is None:
        return spec
    tiles = spec.guessed(array_type.shape)
    assert tiles is not None  # or its type would not have been made
    return ShardSpec(spec.devices, tiles, spec.memory_kind)


def _aval(kind: int, shape: tuple[int, ...]) -> Any:
    dtype = np.dtypes.StringDType() if kind == STRING else dtype_of(kind)
    if dtype is None:
        raise unsupported(f"arrays of {name_of(kind)} are not known here")
    return jax.core.ShapedArray(shape, dtype)


def _one_by_one(arguments: Sequence[Ref]) -> list[Ref]:
    found: list[Ref] = []
    for each in arguments:
        if isinstance(each, LocalRefs):
            found += each.arrays
        else:
            found.append(each)
    return found


# --- waiting, and errors ----------------------------------------------------------------------------------


def _is_ready(ref: Any) -> bool:
    try:
        return bool(ref.is_ready()) if isinstance(ref, TokenRef) else bool(ref.is_deleted()) or bool(ref.is_ready())
    except Exception:  # it was deleted or donated: there is nothing to wait for
        return True


def _check_there(refs: Sequence[Any]) -> None:
    """jaxlib 0.10 ends its process when an array is copied, or asked whether it is ready, that was deleted."""
    if any(isinstance(ref, TokenRef) or ref.is_deleted() for ref in refs):
        raise invalid("an array was deleted or donated, or is a token: it has no contents")


def _awaited(refs: Sequence[Any]) -> StatusError | None:
    try:
        for ref in refs:
            ref.block_until_ready()
    except Exception as error:
        return fault_of(error)
    return None


def _contents(ref: Any) -> np.ndarray[Any, Any] | StatusError:
    try:
        return np.asarray(ref)
    except Exception as error:
        return fault_of(error)
