"""Answers of hosts that are only simulated: code is read and compiled here, for as many CPU devices as it is for.

    CodeDescriber.of(StableHLOCode) -> DescribedCode     the answer to the code's question, and what its cost depends on

Nothing of the code runs. A child with virtual devices partitions and compiles it, as hosts with CPU devices would; so
shardings, layouts and memory are what XLA says, for any number of devices. Neighbours: `sandbox`, whose
children compile; `backend.contents.stablehlo_code` has the questions; `simulation_port`. This module imports JAX.
"""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import msgspec
from msgspec.structs import replace

from backend import xla
from backend.contents import PlatformAbout, StableHLOCode, stablehlo_code
from backend.pjrt.code import stablehlo_executables
from backend.sandbox import Description, ProgramGate

from ...auth import Rules
from ..program_facts import translated
from ..session import unsupported
from .simulation_port import DescribedCode

log = logging.getLogger("seaway.door")
COMPILING = 2  # programs at a time
KEPT = 64  # programs of which the text is kept, for questions that may follow
RUNTIME = "seaway_simulator"


class CodeDescriber:
    """`count`: devices of a session on an island, at most. `kind`: what each is called. `rules`: what programs may
    call, and may take."""

    def __init__(self, count: int, kind: str, rules: Rules) -> None:
        self._count, self._kind = count, kind
        self._gate = ProgramGate(rules, devices=count, compiles=True, describes=True)
        self._pool = ThreadPoolExecutor(COMPILING, "describe")
        self._known: dict[tuple[bytes, bytes], tuple[str, int, Description]] = {}

    def warm(self) -> None:
        self._gate.warm()

    async def of(self, code: StableHLOCode) -> DescribedCode:
        """Raises StatusError if the code is refused, or cannot be compiled."""
        if code.question == "platform":
            return DescribedCode(stablehlo_code.encode_about(self._platform()))
        if not code.compiled:
            raise unsupported(f"simulated hosts do not answer the question {code.question!r}")
        name, devices, found = await self._described(code)
        match code.question:
            case "text":
                return DescribedCode(stablehlo_code.encode_text(found.text))
            case "costs":
                return DescribedCode(stablehlo_code.encode_costs(found.costs))
            case _:
                return DescribedCode(
                    stablehlo_code.encode_about(found.about), name, devices, found.partitioned or found.text,
                    bool(found.partitioned), found.about.memory_stats,
                )  # fmt: skip

    async def _described(self, code: StableHLOCode) -> tuple[str, int, Description]:
        key = code.program, code.options
        found = self._known.get(key)
        if found is None:
            loop = asyncio.get_running_loop()
            found = self._known[key] = await loop.run_in_executor(self._pool, self._ask, code)
            if len(self._known) > KEPT:
                del self._known[next(iter(self._known))]
        return found

    def _ask(self, code: StableHLOCode) -> tuple[str, int, Description]:
        options, devices = xla.safe_options(code.options, self._count)
        began = time.monotonic()
        with translated():
            main, said = self._gate.check(code.program, options, devices)
        log.info("%s: compiled for %d devices in %.1f s", main.name, len(devices), time.monotonic() - began)
        return main.name, len(devices), msgspec.msgpack.decode(said, type=Description)

    def _platform(self) -> PlatformAbout:
        """A session's devices: CPU devices by their compiler, and by their names what they stand for."""
        about = stablehlo_executables.about_platform(jax.local_devices()[:1])
        device = replace(
            about.devices[0], kind=self._kind, repr=f"SimulatedDevice(kind={self._kind}, id=0)",
            text=f"{self._kind} 0", attributes={},
        )  # fmt: skip
        return replace(about, runtime=RUNTIME, devices=(device,) * self._count)

    def end(self) -> None:
        self._gate.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
