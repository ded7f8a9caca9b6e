"""Exported code as a gang launches it: traced and lowered for its layouts, to be compiled.

Code with donated inputs is compiled twice, since each launch says whether they are really donated. Neighbours: `blobs`,
which makes functions of the bytes; `compiled_codes`, which keeps them; `stablehlo_launchable`, the other flavour.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from core.model import Code, Gang, Layout, Sharding, Shards
from core.protocol import effects as e

from . import blobs
from .stored_buffers import OutputRow
from .world import WorldMembership

log = logging.getLogger("seaway.pjrt")


class LaunchableCode:
    """What a launch needs of a code."""

    __slots__ = (
        "bounds", "devices", "given", "giving", "inputs", "keeping", "local", "multi", "name", "outputs", "shardings",
    )  # fmt: skip

    def __init__(
        self, world: WorldMembership, gang: Gang, inputs: Sequence[Layout], outputs: Sequence[Layout]
    ) -> None:
        self.name = gang.name
        self.keeping: Any = None  # the executable that takes over nothing
        self.giving: Any = None  # the executable that takes over what the gang donates
        self.inputs, self.outputs = tuple(inputs), OutputRow(outputs, world.sharding)
        self.given = given(gang)
        self.shardings = tuple(world.sharding(layout) for layout in inputs)
        self.multi = gang.place.size > 1
        self.local = world.alone(gang.place)  # no other host takes part
        self.devices = world.here(gang.place)
        self.bounds = bounds_of(outputs) if gang.irregular else None

    @property
    def takes(self) -> bool:
        """Whether it takes over arguments, if a launch gives them."""
        return self.giving is not None

    @property
    def unfit(self) -> str:
        """Why it cannot be launched; "": it can."""
        return ""

    def launch(self, inputs: list[Any], command: e.Launch, giving: bool) -> tuple[Sequence[Any], Any]:
        """Enqueues it. Returns the outputs, and what is ready when the program has run. `giving`: it may take over
        what the command donates."""
        *outputs, token = (self.giving if giving else self.keeping)(*inputs)
        return outputs, token

    def answer(self) -> bytes:
        """What its client is told about it when it is compiled."""
        return b""


def given(gang: Gang) -> tuple[int, ...]:
    """The inputs that a gang gives away: donated ones, unless the gang also reads them as another input."""
    return tuple(
        number for number, slot in enumerate(gang.inputs)
        if slot in gang.donated and gang.inputs.count(slot) == 1
    )  # fmt: skip


def bounds_of(outputs: Sequence[Layout]) -> tuple[tuple[int, int], ...]:
    return tuple((layout.shape[0], Shards(layout).size[0]) for layout in outputs)


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


def check_memory(name: str, most: int, use: Any) -> None:
    """Raises MemoryError if code takes more than `most` bytes of each device. `use`: what the compiler says of it."""
    if use is None:
        return
    needed = use.argument_size_in_bytes + use.output_size_in_bytes + use.temp_size_in_bytes
    if needed > most:
        raise MemoryError(
            f"out of memory: computation {name!r} takes {needed} bytes on each device (arguments "
            f"{use.argument_size_in_bytes}, results {use.output_size_in_bytes}, scratch {use.temp_size_in_bytes}), "
            f"and {most} may be used; split it over more devices"
        )


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
