"""Code that is raw StableHLO, compiled for a gang's devices: the second flavour beside what `jax.export` writes.

    StableHLOCodes.begin(...) -> finish() -> StableHLOLaunchable

The same program with the same options at one place is compiled once, whatever is asked of it. With a cache, executables
outlive this process. Neighbours: `compiled_codes`, which calls this; `stablehlo_reading`, `stablehlo_executables`,
`stablehlo_launchable`, `executable_cache`.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.model import Code, Gang, Layout

from ... import xla
from ...contents import CALLBACK_S, StableHLOCode, stablehlo_code
from ..world import WorldMembership
from . import stablehlo_executables as executables
from .executable_cache import ExecutableCache
from .forwarders import AskClient, Forwarders, unasked
from .launchable_code import Unusable, check_memory
from .stablehlo_launchable import CompiledProgram, StableHLOLaunchable
from .stablehlo_reading import MainFacts, main_of, module_of

MOST = 4096  # executables that are kept


def stablehlo_of(code: Code, blobs: Mapping[str, bytes]) -> StableHLOCode | None:
    """None: the code is of the other flavour. Raises Unusable."""
    blob = blobs.get(code.code)
    if blob is None or not stablehlo_code.is_stablehlo(blob):
        return None
    try:
        return stablehlo_code.decode(blob)
    except stablehlo_code.MalformedCode as error:
        raise Unusable(f"the code of computation {code.name!r} cannot be used: {error}") from None


def identity(asked: StableHLOCode) -> tuple[str, str, str]:
    """Equal for what is compiled to the same executable, on the same devices."""
    return hashlib.sha256(asked.program).hexdigest(), hashlib.sha256(asked.options).hexdigest(), asked.callbacks


def options_for(asked: StableHLOCode, gang: Gang, ids: Sequence[int]) -> bytes:
    """What is safe of the options, for the devices with these ids. Raises Unusable."""
    try:
        options, devices = xla.safe_options(asked.options, len(ids))
    except xla.UnsafeOptions as error:
        raise Unusable(f"the options of computation {gang.name!r} cannot be used: {error}") from None
    if devices != tuple(range(len(ids))):
        raise Unusable(
            f"the options of computation {gang.name!r} have the devices {list(devices)[:16]}, but must have all "
            f"{len(ids)} of its slice, in order"
        )
    return xla.assigned_to(options, ids)


def cacheable(devices: Sequence[Any]) -> bool:
    """Whether a host may load an executable although others have to compile it: on GPUs, hosts measure parts of one
    program for each other while they compile, so each waits for all."""
    return devices[0].platform == "cpu" or len({device.process_index for device in devices}) == 1


class StableHLOCodes:
    """`memory`: bytes of each device; 0: no limit. `cache`: where executables are kept for the next process. `asks`:
    calls a function of the client's process whose session has this key; None: nothing will run here."""

    def __init__(
        self, world: WorldMembership, memory: int, cache: ExecutableCache,
        asks: Callable[[str], AskClient] | None = None, patience: float = CALLBACK_S,
    ) -> None:  # fmt: skip
        self._world, self._memory, self._cache = world, memory, cache
        self._asks, self._patience = asks, patience
        self._programs: OrderedDict[Any, CompiledProgram] = OrderedDict()
        self.compiled = 0

    def begin(
        self, asked: StableHLOCode, gang: Gang, inputs: Sequence[Layout], outputs: Sequence[Layout]
    ) -> Callable[[], StableHLOLaunchable]:
        """Reads what is of the world, under its lock. What it returns compiles, without the lock."""
        if gang.irregular:
            raise Unusable(f"computation {gang.name!r} is StableHLO, so its sizes are known before it runs")
        made = StableHLOLaunchable(self._world, gang, inputs, outputs, asked)

        def finish() -> StableHLOLaunchable:
            if asked.compiled:
                made.use(self._compiled(asked, gang, made.jax_devices))
            return made

        return finish

    def keep(self, made: StableHLOLaunchable) -> None:
        """For others that have the same program. Call it under the world's lock, if the world is still the same."""
        if made.compiled is not None:
            self._programs[made.compiled.key] = made.compiled
            while len(self._programs) > MOST:
                self._programs.popitem(last=False)

    def void(self) -> None:
        self._programs.clear()

    def _compiled(self, asked: StableHLOCode, gang: Gang, devices: tuple[Any, ...]) -> CompiledProgram:
        key = (*identity(asked), gang.place)
        known = self._programs.get(key)
        if known is not None:
            return known
        options = options_for(asked, gang, [device.id for device in devices])
        with module_of(asked.program) as module:
            main = main_of(module)
        forwarders = None
        if main.callbacks and self._asks is not None:
            ask = self._asks(asked.callbacks)
            forwarders = Forwarders(main.callbacks, ask, self._patience, alone=len(devices) == 1)
        called = unasked(main.callbacks) if forwarders is None else forwarders.functions
        executable = self._executable(asked, main, options, devices, called)
        found = CompiledProgram(key, main, executable, devices, forwarders)
        if self._memory:
            use = executable.get_compiled_memory_stats()
            check_memory(gang.name, self._memory, use)
        return found

    def _executable(
        self, asked: StableHLOCode, main: MainFacts, options: bytes, devices: tuple[Any, ...],
        called: Sequence[Callable[..., Any]],
    ) -> Any:  # fmt: skip
        """From the cache, or compiled and put there."""
        client = devices[0].client
        name = self._cache.name_of(asked, devices)
        keeps = cacheable(devices)
        kept = self._cache.find(name) if keeps else None
        if kept is not None:
            try:
                return executables.load_program(client, kept, options, devices, called)
            except Exception as error:
                self._cache.drop(name, error)
        made = executables.compile_program(client, asked.program, options, devices, called)
        self.compiled += 1
        if keeps and self._cache.open:
            self._cache.keep(name, executables.serialized(client, made, main, devices))
        return made
