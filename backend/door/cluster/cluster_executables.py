"""Programs of a session on a cluster: compiled by the hosts, and described by the host that has the first device.

    compile     StableHLO is read here (its results, what it would call) and left with the controller as code; a
                program that only asks is registered; its answer says what just compilation tells: shardings, layouts
    run         then core can be told what the executable takes and makes: its program is registered at its first run

Neighbours: `cluster_programs` makes the programs, `program_facts` reads; `backend.contents.stablehlo_code` is the
code, and the answers to its questions.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from backend import xla
from backend.contents import StableHLOCode, StagedProgram, hash_of, stablehlo_code
from backend.sandbox import ProgramGate
from core.client import Blocked, Client
from core.model import Illegal, Node, Program, ProgramError, ranges, validate
from core.protocol import Blame

from ..program_facts import ProgramFacts, compiled_facts, known_stages, read_program, tiles_on
from ..protocol import REPLICATED, TOKEN, ShardSpec, StatusCode
from ..session import (
    ArrayType,
    CompiledFacts,
    SessionCallbacks,
    StagePlan,
    StatusError,
    WhenCompiled,
    invalid,
    unsupported,
)
from .cluster_callbacks import ClusterCallbacks
from .cluster_link import ClusterLink, fault_of_blame
from .cluster_programs import Places, executable_program, function_of, question_program, staged_program, with_costs

log = logging.getLogger("seaway.door")
StepTimes = Mapping[str, tuple[int, int]]  # step -> (executions, their typical time in nanoseconds)
SIMULATED = (
    "the program calls functions of its process (jax.debug, pure_callback, io_callback), and in a simulation nothing "
    "is computed that they could be called with: leave them out, or run it on a door to devices"
)
NO_SOURCE = StableHLOCode(b"", b"")
READING = 2  # programs at a time
SEEN = 3  # executions, before what they took is believed: the first is often slow
NEAR = 1.25  # by what factor a cost may differ from what was said


class ClusterExecutable:
    """`giving`, `keeping`: its programs by their names at core's client, with donation and without (0: not yet).
    `arrays`: its results without tokens. `together`: its results are counted as one until one of them is used alone."""

    __slots__ = (
        "__weakref__", "arrays", "devices", "donated", "giving", "ir", "keeping", "keeping_ir", "parameters", "results",
        "source", "together",
    )  # fmt: skip

    def __init__(
        self, devices: tuple[int, ...], parameters: Sequence[ArrayType], results: tuple[ArrayType, ...],
        donated: Collection[int], ir: Program, keeping_ir: Program, source: StableHLOCode = NO_SOURCE,
    ) -> None:  # fmt: skip
        self.devices, self.parameters, self.results = devices, parameters, results
        self.donated, self.source = frozenset(donated), source
        self.ir, self.keeping_ir = ir, keeping_ir
        self.giving = self.keeping = 0
        self.arrays = [each for each in results if each.kind != TOKEN]
        plain = all(each.sharding.shard is None for each in self.arrays)
        self.together = plain and len(self.arrays) == len(results) >= ranges.FEW

    def registered(self, giving: bool, client: Client, now: int) -> int:
        """Registers the program with donation or without; its name at core's client, 0: there is no room for it now."""
        found = client.register(self.ir if giving else self.keeping_ir, now)
        if isinstance(found, Blocked):
            return 0
        if giving:
            self.giving = found
        else:
            self.keeping = found
        return found


class ClusterPrograms:
    """`more`: foreign functions that programs may call besides the built-in list. `gate`: its children read MPMD
    programs. `default_kind`: of memory, as soon as a host has told it. `lines`: for programs that call functions of
    their client's process; None: none may."""

    def __init__(
        self, link: ClusterLink, places: Places, more: Collection[str], gate: ProgramGate | None = None,
        lines: ClusterCallbacks | None = None,
    ) -> None:  # fmt: skip
        self._link, self._places, self._more, self._gate, self._lines = link, places, more, gate, lines
        self.default_kind = ""
        self._pool = ThreadPoolExecutor(READING, "read")
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: dict[int, asyncio.Future[tuple[bytes, Blame | None]]] = {}  # by program
        self._room: list[asyncio.Future[None]] = []
        self._over: StatusError | None = None  # why nothing will be compiled any more
        self._executables: weakref.WeakSet[ClusterExecutable] = weakref.WeakSet()
        self._steps: dict[str, dict[str, str]] = {}  # function -> code -> the name of its step

    # --- compile -------------------------------------------------------------------------------------------

    def compile(
        self, program: bytes, options: bytes, devices: Sequence[int], done: WhenCompiled,
        callbacks: SessionCallbacks | None = None,
    ) -> None:  # fmt: skip
        work = self._compile(program, options, tuple(devices), callbacks)
        self.begin(work, lambda fault: done(None, fault), lambda made: done(*made))

    def begin(
        self, work: Coroutine[Any, Any, Any], failed: Callable[[StatusError], None], done: Callable[[Any], None]
    ) -> None:
        """Begins something that waits. It is answered whatever happens, but for the session's end."""

        async def run() -> None:
            try:
                found = await work
            except StatusError as fault:
                failed(fault)
            except Illegal as error:
                failed(StatusError(StatusCode.RESOURCE_EXHAUSTED, str(error)))
            except Exception as error:
                log.exception("a program of a session")
                text = f"the door failed: {type(error).__name__}: {error}"
                failed(StatusError(StatusCode.INTERNAL, text))
            else:
                done(found)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _compile(
        self, program: bytes, options: bytes, devices: tuple[int, ...], callbacks: SessionCallbacks | None
    ) -> tuple[ClusterExecutable, CompiledFacts]:
        self._places.of(devices)  # before anything is read
        loop = asyncio.get_running_loop()
        about = await loop.run_in_executor(self._pool, read_program, program, self._more, callbacks is not None)
        positions = [devices.index(each) if each in devices else -1 for each in range(max(devices) + 1)]
        key = ""
        if about.callbacks and callbacks is not None:
            if self._lines is None:
                raise unsupported(SIMULATED)
            self._lines.open(callbacks)
            key = self._lines.key
        source = StableHLOCode(program, xla.assigned_to(options, positions), callbacks=key)
        name = function_of(about.name)
        asked = await self._asking(source, name, devices)
        try:
            try:
                answer = await self._answer(asked)
            except StatusError as fault:
                answer = await self._answer_elsewhere(source, name, devices, fault)
            facts = compiled_facts(about, stablehlo_code.compiled_about(answer), devices, self.default_kind)
            given = _parameters(about, facts)
            code = hash_of(source.encode())
            made = [each for each in facts.results if each.kind != TOKEN]
            temp = facts.memory_stats.get("temp_size_in_bytes", 0)
            cost, step = self._link.expected(code, len(devices)), self._step_of(name, code)
            ir, keeping_ir = (
                executable_program(self._places, name, devices, code, temp, given, made, donated, cost, step)
                for donated in (facts.donated, ())
            )
            executable = ClusterExecutable(devices, given, facts.results, facts.donated, ir, keeping_ir, source)
            executable.giving = await self._registered(ir, tell=False)
            self._executables.add(executable)
        finally:
            self.forget(asked)  # behind the program itself, so hosts do not forget the code between
        return executable, facts

    def read_stages(self, program: bytes, serdes: int, done: Callable[[StagedProgram | StatusError], None]) -> None:
        loop = asyncio.get_running_loop()

        async def read() -> StagedProgram | StatusError:
            return await loop.run_in_executor(self._pool, known_stages, self._gate, program, serdes)

        self.begin(read(), done, done)

    def staged(self, plan: StagePlan, stages: Sequence[ClusterExecutable], facts: CompiledFacts) -> ClusterExecutable:
        """It is registered when it runs first; so are its stages, and hosts have their code."""
        parts, count = [(each.ir, each.devices) for each in stages], len(facts.parameters)
        ir, keeping = (staged_program(self._places, plan, parts, count, donated) for donated in (facts.donated, ()))
        try:
            validate(ir)
        except ProgramError as error:
            raise invalid(str(error)) from None
        executable = ClusterExecutable(facts.devices, plan.types[:count], facts.results, facts.donated, ir, keeping)
        self._executables.add(executable)
        return executable

    def _step_of(self, function: str, code: str) -> str:
        """The name of a program's one step, by which it is priced: each code that has this function's name has one of
        its own, `train_step`, `train_step.2`."""
        known = self._steps.setdefault(function, {})
        return known.setdefault(code, f"{function}.{len(known) + 1}" if known else function)

    async def ask(self, source: StableHLOCode, name: str, devices: tuple[int, ...]) -> bytes:
        """What the host of the first device answers to the code's question. Raises StatusError."""
        asked = await self._asking(source, name, devices)
        try:
            return await self._answer(asked)
        finally:
            self.forget(asked)

    async def _asking(self, source: StableHLOCode, name: str, devices: tuple[int, ...]) -> int:
        code = source.encode()
        await self.keep(code)
        asked = await self._registered(question_program(self._places, name, devices, hash_of(code)), tell=True)
        self._asked[asked] = asyncio.get_running_loop().create_future()
        return asked

    async def _answer(self, asked: int) -> bytes:
        try:
            about, blame = await self._asked[asked]
        finally:
            del self._asked[asked]
        if blame is not None:
            raise fault_of_blame(blame)
        return about

    async def _answer_elsewhere(
        self, source: StableHLOCode, name: str, devices: tuple[int, ...], fault: StatusError
    ) -> bytes:
        """If the island is down, another one with such devices answers: elastic training compiles for all of them, and
        finds out by running what it has compiled which are up."""
        for row in self._places.alike(devices) if fault.code == StatusCode.DATA_LOSS else ():
            try:
                return await self.ask(source, name, row)
            except StatusError as other:
                fault = other
                if fault.code != StatusCode.DATA_LOSS:
                    break
        raise fault

    async def _registered(self, program: Program, tell: bool) -> int:
        while True:
            self._go_on()
            found = self._link.act(lambda client, now: client.register(program, now, tell=tell))
            if not isinstance(found, Blocked):
                return found
            room = asyncio.get_running_loop().create_future()
            self._room.append(room)
            await room

    async def keep(self, *codes: bytes) -> None:
        """Leaves them with the controller."""
        for each in codes:
            self._go_on()
            await self._link.keep(each)

    def _go_on(self) -> None:
        """Raises why nothing will be compiled any more."""
        if self._over is not None:
            raise StatusError(self._over.code, self._over.text)

    def priced(self, seen: StepTimes) -> None:
        """How often this session's steps ran, and how long they typically took. Policies share devices by what programs
        are said to cost, so one that takes another time than was said is registered anew."""
        for each in list(self._executables):
            costs = _costs(each.ir, seen)
            if costs is None:
                continue
            ir, keeping_ir = (with_costs(ir, costs) for ir in (each.ir, each.keeping_ir))
            try:
                found = self._link.act(lambda client, now, ir=ir: client.register(ir, now))  # type: ignore[misc]
            except Illegal:  # it has as many programs as it may, or is over
                return
            if isinstance(found, Blocked):
                return
            self.forget(each.giving, each.keeping)
            each.ir, each.keeping_ir, each.giving, each.keeping = ir, keeping_ir, found, 0

    def forget(self, *programs: int) -> None:
        def act(client: Any, now: int) -> None:
            for each in programs:
                if each and client.state in ("new", "open", "away"):
                    client.unregister(each, now)

        self._link.act(act)

    # --- what comes ----------------------------------------------------------------------------------------

    def told(self, program: int, about: bytes, blame: Blame | None) -> None:
        answer = self._asked.get(program)
        if answer is not None and not answer.done():
            answer.set_result((about, blame))

    def unblocked(self) -> None:
        room, self._room = self._room, []
        for each in room:
            if not each.done():
                each.set_result(None)

    def lost(self, fault: StatusError) -> None:
        """Nothing will be heard any more: whatever waits ends with this fault."""
        self._over = fault
        for each in self._asked.values():
            if not each.done():
                each.set_exception(StatusError(fault.code, fault.text))
        self.unblocked()

    def close(self) -> None:
        for each in list(self._tasks):
            each.cancel()
        if self._lines is not None:
            self._lines.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _costs(program: Program, seen: StepTimes) -> list[int] | None:
    """What its computations cost, if one of them takes another time than was said."""
    found = [each.cost for each in program.computations]
    changed = False
    for node in program.nodes:
        if isinstance(node, Node):
            (count, cost), said = seen.get(node.name, (0, 0)), program.computations[node.computation].cost
            if count >= SEEN and not said <= NEAR * cost <= NEAR * NEAR * said:
                found[node.computation], changed = max(1, cost), True
    return found if changed else None


def _parameters(about: ProgramFacts, facts: CompiledFacts) -> list[ArrayType]:
    shardings, devices = facts.parameter_shardings, facts.devices
    if shardings is not None and len(shardings) != len(about.parameters):
        shardings = None
    found = []
    for at, parameter in enumerate(about.parameters):
        if parameter is None:
            raise unsupported(f"parameter {at} of {about.name} has a type that is not known to the cluster")
        tiles = REPLICATED if shardings is None else tiles_on(shardings[at], len(devices))
        found.append(ArrayType(parameter.kind, parameter.shape, ShardSpec(devices, tiles)))
    return found
