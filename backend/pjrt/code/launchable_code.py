"""Exported code as a gang launches it: read, traced and lowered for its layouts, to be compiled.

A blob is what `jax.export` serialises: StableHLO for several platforms, with the shapes and shardings for which it was
traced. It becomes a function that takes a gang's inputs and returns its outputs, flat, and one more number, which is
ready when the program has run (`Flight.token`); for an irregular gang, that is the count of rows. Code with donated
inputs is compiled twice, since each launch says whether they are really donated. Neighbours: `compiled_codes`, which
keeps them; `stablehlo_launchable`, the other flavour.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from core.model import Code, Gang, Layout, Sharding, Shards
from core.protocol import effects as e

from ..device_arrays import device_dtype
from ..stored_buffers import OutputRow
from ..world import WorldMembership

log = logging.getLogger("seaway.pjrt")
Function = Callable[..., tuple[Any, ...]]
RESHARD = "reshard:"


class Unusable(ValueError):
    """Code that does not fit the plan."""


class LaunchableCode:
    """What a launch needs of a code."""

    __slots__ = (
        "bounds", "devices", "given", "giving", "inputs", "keeping", "local", "multi", "name", "outputs", "shardings",
    )  # fmt: skip

    def __init__(self, world: WorldMembership, gang: Gang, inputs: Sequence[Layout], outputs: Sequence[Layout]) -> None:
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
        """Enqueues it. Returns the outputs, and what is ready when it has run. `giving`: it may take what is given."""
        *outputs, token = (self.giving if giving else self.keeping)(*inputs)
        return outputs, token

    def answer(self) -> bytes:
        """What its client is told about it when it is compiled."""
        return b""


def given(gang: Gang) -> tuple[int, ...]:
    """The inputs that a gang gives away: donated ones, unless the gang also reads them as another input."""
    return tuple(
        number for number, slot in enumerate(gang.inputs) if slot in gang.donated and gang.inputs.count(slot) == 1
    )


def bounds_of(outputs: Sequence[Layout]) -> tuple[tuple[int, int], ...]:
    return tuple((layout.shape[0], Shards(layout).size[0]) for layout in outputs)


def lower(
    world: WorldMembership, code: Code, gang: Gang, inputs: Sequence[Layout], outputs: Sequence[Layout],
    code_of: Mapping[str, bytes], platform: str = "",
) -> tuple[LaunchableCode, list[Any]]:  # fmt: skip
    """Lowers code, and once more if the gang gives inputs away. `platform`: for devices that are not here."""
    made = LaunchableCode(world, gang, inputs, outputs)
    function = function_of(code, gang, inputs, outputs, code_of)
    shape: Any = jax.ShapeDtypeStruct
    leaves = [
        shape(layout.shape, device_dtype(layout), sharding=sharding)
        for layout, sharding in zip(inputs, made.shardings, strict=True)
    ]
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


# --- functions of exported code ----------------------------------------------------------------------------------


def function_of(
    code: Code, gang: Gang, inputs: Sequence[Layout], outputs: Sequence[Layout], blobs: Mapping[str, bytes]
) -> Function:
    if code.key.startswith(RESHARD):
        return _resharding
    call = _Exported(code, len(outputs) + gang.irregular, blobs)
    if gang.irregular:
        return _counted(call, outputs)

    def called(*leaves: Any) -> tuple[Any, ...]:
        return *call(*leaves), jnp.int32(0)

    return called


def _resharding(*arrays: Any) -> tuple[Any, ...]:
    """The identity: the program's shardings say what moves where."""
    return *arrays, jnp.int32(0)


class _Exported:
    """One exported computation, as a function of flat arguments."""

    def __init__(self, code: Code, outputs: int, blobs: Mapping[str, bytes]) -> None:
        if not code.code:
            raise Unusable(
                f"computation {code.name!r} has a duration and no code, so it runs in simulations and on `timed` "
                "devices; for real ones, write it with sw.jit"
            )
        blob = blobs.get(code.code)
        if blob is None:
            raise Unusable(f"the code of computation {code.name!r}, {code.code[:12]}, has not arrived")
        self._name, self._outputs = code.name, outputs
        try:
            self._exported: Any = export.deserialize(bytearray(blob))
        except Exception as error:
            raise Unusable(f"the code of computation {code.name!r} cannot be read: {error}") from error

    def __call__(self, *leaves: Any) -> list[Any]:
        self._check(leaves)
        args, kwargs = jax.tree.unflatten(self._exported.in_tree, leaves)
        made = jax.tree.leaves(self._exported.call(*args, **kwargs))
        if len(made) != self._outputs:
            raise Unusable(f"computation {self._name!r} makes {len(made)} arrays, but the plan has {self._outputs}")
        return made

    def _check(self, leaves: Sequence[Any]) -> None:
        has = [(leaf.shape, leaf.dtype) for leaf in leaves]
        wants = [(aval.shape, aval.dtype) for aval in self._exported.in_avals]
        if has != wants:
            raise Unusable(f"computation {self._name!r} takes {_looks(wants)}, but the plan gives it {_looks(has)}")


def _looks(avals: Sequence[tuple[Any, Any]]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for shape, dtype in avals) or "nothing"


def _counted(call: _Exported, bounds: Sequence[Layout]) -> Function:
    """Wraps an irregular computation, which returns (arrays, count): cuts each array to `count` rows, and pads it
    with zeros up to its bound."""

    def cut(*leaves: Any) -> tuple[Any, ...]:
        *made, count = call(*leaves)
        count = jnp.asarray(count, jnp.int32)
        return *(_fit(x, bound, count) for x, bound in zip(made, bounds, strict=True)), count

    return cut


def _fit(x: Any, bound: Layout, count: Any) -> Any:
    rows = bound.shape[0]
    x = x[:rows]
    meant = jnp.arange(x.shape[0]).reshape(-1, *(1,) * (x.ndim - 1)) < count
    x = jnp.where(meant, x, jnp.zeros((), x.dtype))
    return jnp.pad(x, [(0, rows - x.shape[0])] + [(0, 0)] * (x.ndim - 1))
