"""Code, compiled in the background for the devices of its gangs, and kept until its backend ends.

Code with donated inputs is compiled twice, since each launch says whether they are really donated. The same code for
the same layouts is compiled once for all plans. If a folder was given, compiled code is also kept on disk.
If clients are not trusted, `admit` tries code in another process before this process reads it (`code_gate`).
Neighbours: `blobs`, `world`, `launcher`, `checked`.
"""

from __future__ import annotations

import importlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from core.model import Code, Gang, Layout, Plan, Sharding, Shards, canonical
from core.protocol import Blame
from core.protocol import effects as e

from . import blobs, jax_errors
from .world import WorldMembership

log = logging.getLogger("seaway.pjrt")
Admit = Callable[[Code, Gang, Sequence[Layout], Sequence[Layout], Mapping[str, bytes]], None]
MOST = 8192  # codes of plans that are kept; no command says when a host may forget one


class LaunchableCode:
    """What a launch needs of a code."""

    __slots__ = ("bounds", "given", "giving", "inputs", "keeping", "local", "multi", "name", "shardings")

    def __init__(
        self, world: WorldMembership, gang: Gang, inputs: Sequence[Layout], outputs: Sequence[Layout]
    ) -> None:
        self.name = gang.name
        self.keeping: Any = None  # the executable that takes over nothing
        self.giving: Any = None  # the executable that takes over what the gang donates
        self.inputs = tuple(inputs)
        self.given = given(gang)
        self.shardings = tuple(world.sharding(layout) for layout in inputs)
        self.multi = gang.place.size > 1
        self.local = world.alone(gang.place)  # no other host takes part
        self.bounds = bounds_of(outputs) if gang.irregular else None


def given(gang: Gang) -> tuple[int, ...]:
    """The inputs that a gang gives away: donated ones, unless the gang also reads them as another input."""
    return tuple(
        number for number, slot in enumerate(gang.inputs)
        if slot in gang.donated and gang.inputs.count(slot) == 1
    )  # fmt: skip


def bounds_of(outputs: Sequence[Layout]) -> tuple[tuple[int, int], ...]:
    return tuple((layout.shape[0], Shards(layout).size[0]) for layout in outputs)


class Codes:
    """All compiled code. `memory`: bytes of each device; code that takes more is refused. `cache`: a folder."""

    def __init__(
        self, world: WorldMembership, post: Callable[[e.Event], None], memory: int, cache: Path | None
    ) -> None:
        self._world, self._post, self._memory = world, post, memory
        self._of: OrderedDict[tuple[int, int], LaunchableCode] = OrderedDict()  # by (plan, code)
        self._same: OrderedDict[Any, LaunchableCode] = OrderedDict()
        self.compiled = 0
        self.admit: Admit | None = None  # raises if the code may not be compiled here
        keep_on_disk(cache)
        wake_lapack()

    def __len__(self) -> int:
        return len(self._of)

    def get(self, plan: int, code: int) -> LaunchableCode | None:
        return self._of.get((plan, code))

    def void(self) -> None:
        """Drops all code, since the backend has ended. Call it under the world's lock."""
        self._of.clear()
        self._same.clear()

    # --- the compiling thread ---------------------------------------------------------------------------------

    def compile(self, command: e.CompileCode, plan: Plan, code_of: Mapping[str, bytes]) -> None:
        """Compiles for the current world; compiles again if the world changes meanwhile."""
        blame: Blame | None = None
        try:
            self._check_first(plan.codes[command.code], plan, code_of)
            while not self._try(command, plan, code_of):
                log.info("the world changed while code %s was compiled", plan.codes[command.code].name)
        except Exception as error:
            blame = jax_errors.of(error)
        self._post(e.CodeReady(command.plan, command.code, blame))

    def _check_first(self, code: Code, plan: Plan, code_of: Mapping[str, bytes]) -> None:
        """Has clients' code checked before this process reads it. Code that core made has no bytes of a client."""
        if self.admit is None or not code_of:
            return
        gang, inputs, outputs = _gang_and_layouts(code, plan)
        if self._same.get(_content(code, gang, inputs, outputs)) is None:
            self.admit(code, gang, inputs, outputs, code_of)

    def _try(self, command: e.CompileCode, plan: Plan, code_of: Mapping[str, bytes]) -> bool:
        code = plan.codes[command.code]
        gang, inputs, outputs = _gang_and_layouts(code, plan)
        world = self._world
        key = _content(code, gang, inputs, outputs)
        with world.lock:
            world.changed.wait_for(lambda: world.ready)
            generation = world.generation
            made = self._same.get(key)
            # Traced under the lock, so that the backend cannot be dropped meanwhile.
            lowered = None if made is not None else lower(world, code, gang, inputs, outputs, code_of)
        if lowered is not None:
            made = self._finish(*lowered)
        assert made is not None
        with world.lock:
            if world.generation != generation:
                return False
            self._same[key] = self._of[command.plan, command.code] = made
            for table in (self._same, self._of):
                while len(table) > MOST:
                    table.popitem(last=False)
        return True

    def _finish(self, made: LaunchableCode, lowered: Sequence[Any]) -> LaunchableCode:
        """Compiles, which is the long part, without the lock."""
        made.keeping, *giving = [each.compile() for each in lowered]
        made.giving = giving[0] if giving else None
        self.compiled += len(lowered)
        self._check_memory(made)
        return made

    def _check_memory(self, made: LaunchableCode) -> None:
        use = made.keeping.memory_analysis() if self._memory else None
        if use is None:
            return
        needed = use.argument_size_in_bytes + use.output_size_in_bytes + use.temp_size_in_bytes
        if needed > self._memory:
            raise MemoryError(
                f"out of memory: computation {made.name!r} takes {needed} bytes on each device (arguments "
                f"{use.argument_size_in_bytes}, results {use.output_size_in_bytes}, scratch "
                f"{use.temp_size_in_bytes}), and {self._memory} may be used; split it over more devices"
            )


def _gang_and_layouts(code: Code, plan: Plan) -> tuple[Gang, tuple[Layout, ...], tuple[Layout, ...]]:
    """The gang to which the code belongs, and the layouts of its inputs and outputs."""
    gang = plan.steps[code.step]
    assert isinstance(gang, Gang)
    inputs, outputs = (
        tuple(plan.slots[slot].layout for slot in slots) for slots in (gang.inputs, gang.outputs)
    )
    return gang, inputs, outputs


def lower(
    world: WorldMembership, code: Code, gang: Gang, inputs: Sequence[Layout], outputs: Sequence[Layout],
    code_of: Mapping[str, bytes], platform: str = "",
) -> tuple[LaunchableCode, list[Any]]:  # fmt: skip
    """Lowers code as it is, and once more if the gang gives inputs away. `platform`: for devices that are not
    here."""
    made = LaunchableCode(world, gang, inputs, outputs)
    function = blobs.function_of(code, gang, inputs, outputs, code_of)
    leaves = [blobs.look(*pair) for pair in zip(inputs, made.shardings, strict=True)]
    whole = Layout((), "int32", gang.place, (gang.place.size,), Sharding())
    homes = tuple(world.sharding(layout) for layout in (*outputs, whole))
    lowered = []
    for numbers in [()] if not made.given else [(), made.given]:
        jitted = jax.jit(function, in_shardings=made.shardings, out_shardings=homes, donate_argnums=numbers)
        traced: Any = jitted.trace(*leaves)
        lowered.append(traced.lower(lowering_platforms=(platform,)) if platform else traced.lower())
    return made, lowered


def _content(code: Code, gang: Gang, inputs: Sequence[Layout], outputs: Sequence[Layout]) -> Any:
    """A key: two codes with equal keys are the same program."""
    parts = tuple((part.code, part.inputs, part.outputs) for part in code.parts)
    return (
        code.code or code.key, parts, code.results, tuple(map(canonical, inputs)), tuple(map(canonical, outputs)),
        given(gang), gang.irregular, gang.place,
    )  # fmt: skip


def keep_on_disk(cache: Path | None) -> None:
    if cache is None:
        return
    cache.mkdir(parents=True, exist_ok=True)
    for name, value in (
        ("jax_compilation_cache_dir", str(cache)),
        ("jax_persistent_cache_min_compile_time_secs", 0.0),
        ("jax_persistent_cache_min_entry_size_bytes", -1),
    ):
        jax.config.update(name, value)  # type: ignore[no-untyped-call]


def wake_lapack() -> None:
    """Initialises linear algebra on CPUs. JAX does so when it traces such code, but blobs were traced elsewhere."""
    try:
        importlib.import_module("jax._src.lib").lapack._lapack.initialize()
    except (ImportError, AttributeError) as error:
        log.warning("linear algebra in exported code may not work on CPU devices here: %s", error)
