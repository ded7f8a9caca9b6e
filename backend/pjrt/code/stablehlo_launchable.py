"""A gang's raw StableHLO as it is launched, and what is answered to a client that asks about it.

One executable serves all launches: an argument that the program would take over, and that a launch does not give, is
copied before. Nothing of JAX is traced, and results that are tokens are left out: a gang's end says all that a token
would. Neighbours: `stablehlo_codes`, which compiles; `launcher`; `launchable_code`, the other flavour.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jaxlib import _jax

from core.model import Gang, Layout, Shards
from core.protocol import effects as e

from ... import xla
from ...contents import StableHLOCode, shard_io, stablehlo_code
from ..world import WorldMembership
from . import stablehlo_executables as executables
from .forwarders import CallbackRun, Forwarders
from .launchable_code import LaunchableCode, Unusable
from .stablehlo_reading import ArrayFacts, MainFacts

native: Any = _jax
LAUNCH_IDS = 0x7FFF_FFFF  # they have 31 bits


class CompiledProgram(NamedTuple):
    key: Any
    main: MainFacts
    executable: Any
    devices: tuple[Any, ...]
    forwarders: Forwarders | None = None  # for what it calls in its client's process


class ExecutionToken:
    """When a program has run on this host's devices. `first`: one of its results, to look at without waiting. `run`:
    of a program with callbacks."""

    __slots__ = ("_first", "_run", "_token")

    def __init__(self, token: Any, first: Any, run: CallbackRun | None) -> None:
        self._token, self._first, self._run = token, first, run

    def is_ready(self) -> bool:
        """False also where it cannot be told without waiting."""
        first = self._first
        return first is not None and self._run is None and not first.is_deleted() and bool(first.is_ready())

    def block_until_ready(self) -> None:
        try:
            self._token.block_until_ready()
        finally:
            if self._run is not None:
                self._run.end()


class StableHLOLaunchable(LaunchableCode):
    """`question`: what its client asks. `compiled`: None if it asks something that needs no program."""

    __slots__ = ("_asked", "_donated", "_handlers", "_tokens", "_unfit", "compiled", "jax_devices")

    def __init__(
        self, world: WorldMembership, gang: Gang, inputs: Sequence[Layout], outputs: Sequence[Layout],
        asked: StableHLOCode,
    ) -> None:  # fmt: skip
        super().__init__(world, gang, inputs, outputs)
        self.compiled: CompiledProgram | None = None
        self._asked = asked
        self.jax_devices = world.devices_of(gang.place)
        self._donated: tuple[int, ...] = ()
        self._handlers: list[Any] | None = None
        self._tokens: frozenset[int] = frozenset()  # which results are none
        self._unfit = f"{gang.name!r} asks {asked.question!r} and has no program to run"

    # --- compiling ----------------------------------------------------------------------------------------------

    def use(self, compiled: CompiledProgram) -> None:
        """Raises Unusable if the gang's arrays are not those of the program."""
        self.compiled, main = compiled, compiled.main
        self._tokens = frozenset(at for at, facts in enumerate(main.results) if facts is None)
        self._donated = main.donated
        arrays = [facts for facts in main.results if facts is not None]
        if self.inputs or self.outputs.layouts or not main.parameters:
            self._check("input", main.parameters, self.inputs)
            self._unfit = ""
        else:
            self._unfit = f"{self.name!r} was compiled without its arguments, to be asked about"
        if self.outputs.layouts:
            self._check("result", arrays, self.outputs.layouts)
        self._check_shardings(compiled)
        if self.outputs.layouts and not self._tokens:
            self._handlers = [
                native.array_result_handler(_aval(layout), sharding, committed=True, **executables.UNCHECKED)
                for layout, sharding in zip(self.outputs.layouts, self.outputs.lies, strict=True)
            ]

    def _check(self, what: str, wanted: Sequence[ArrayFacts | None], layouts: Sequence[Layout]) -> None:
        if len(wanted) != len(layouts):
            raise Unusable(f"computation {self.name!r} has {len(wanted)} {what}s, but the plan has {len(layouts)}")
        for at, (facts, layout) in enumerate(zip(wanted, layouts, strict=True)):
            if facts is None:
                raise Unusable(f"{what} {at} of computation {self.name!r} has a type that no array has")
            same = facts.shape == layout.shape or len(self.jax_devices) > 1  # of several, see `_check_same`
            if xla.core_dtype(facts.element) != layout.dtype or not same:
                raise Unusable(self._other(what, at, facts, layout))

    def _other(self, what: str, at: int, facts: ArrayFacts, layout: Layout) -> str:
        return (
            f"{what} {at} of computation {self.name!r} is {facts.element}{list(facts.shape)}, but the plan "
            f"has {layout.dtype}{list(layout.shape)}"
        )

    def _check_shardings(self, compiled: CompiledProgram) -> None:
        if len(compiled.devices) == 1:
            return
        executable, main = compiled.executable, compiled.main
        results = executable.get_output_shardings()
        if self.inputs:
            given = executable.get_parameter_shardings()
            self._check_same("input", given, main.parameters, self.inputs, self.shardings)
        if self.outputs.layouts:
            kept = None if results is None else [each for at, each in enumerate(results) if at not in self._tokens]
            arrays = [facts for facts in main.results if facts is not None]
            self._check_same("result", kept, arrays, self.outputs.layouts, self.outputs.lies)

    def _check_same(
        self, what: str, theirs: Sequence[Any] | None, wanted: Sequence[ArrayFacts | None],
        layouts: Sequence[Layout], ours: Sequence[Any],
    ) -> None:  # fmt: skip
        """Each device has the part of each array that the plan gives it. For a stack, and for a program compiled for
        one shard, it is enough that the parts have the same shape."""
        devices = native.DeviceList(self.jax_devices)
        for at, (facts, layout, sharding) in enumerate(zip(wanted, layouts, ours, strict=True)):
            assert facts is not None  # `_check` would have raised
            found = None if theirs is None else native.GSPMDSharding(devices, theirs[at])
            if found is None or stablehlo_code.is_stack(layout):
                part = facts.shape if found is None else found.shard_shape(facts.shape)
                if not _fits(tuple(part), layout):
                    raise Unusable(self._other(what, at, facts, layout))
            elif facts.shape != layout.shape:
                raise Unusable(self._other(what, at, facts, layout))
            elif not found.is_equivalent_to(sharding, len(layout.shape)):
                raise Unusable(
                    f"{what} {at} of computation {self.name!r} is split as {_text(found)}, but the plan has it as "
                    f"{sharding.spec} on a mesh of {layout.mesh}"
                )

    # --- launching ----------------------------------------------------------------------------------------------

    @property
    def takes(self) -> bool:
        return bool(self._donated)

    @property
    def unfit(self) -> str:
        return self._unfit

    def launch(self, inputs: list[Any], command: e.Launch, giving: bool) -> tuple[Sequence[Any], Any]:
        assert self.compiled is not None
        if self._donated:
            self._spare(inputs, command.inputs, frozenset(command.donated) if giving else frozenset())
        forwarders = self.compiled.forwarders
        run = None if forwarders is None else forwarders.begin()
        try:
            results = self.compiled.executable.execute_sharded(
                inputs, with_tokens=True, launch_id=command.seq & LAUNCH_IDS
            )
        except Exception:
            if run is not None:
                run.end()  # says it better
            raise
        token = results.consume_token()
        outputs: Sequence[Any] = ()
        if self._handlers is not None:
            outputs = results.consume_with_handlers(self._handlers)
        elif self.outputs.layouts:
            outputs = self._assembled(results.disassemble_into_single_device_arrays())
        return outputs, ExecutionToken(token, outputs[0] if outputs else None, run)

    def _spare(self, inputs: list[Any], buffers: Sequence[int], given: frozenset[int]) -> None:
        """Copies the arguments that the program would take over although they are not given, or are read twice."""
        repeated = len(set(buffers)) < len(buffers)
        for at in self._donated:
            if buffers[at] not in given or (repeated and buffers.count(buffers[at]) > 1):
                inputs[at] = _copied(inputs[at])

    def _assembled(self, results: Sequence[Sequence[Any]]) -> list[Any]:
        arrays = [shards for at, shards in enumerate(results) if at not in self._tokens]
        return [
            native.ArrayImpl(_aval(layout), sharding, list(shards), committed=True, _skip_checks=True)
            for layout, sharding, shards in zip(self.outputs.layouts, self.outputs.lies, arrays, strict=True)
        ]

    # --- answering ----------------------------------------------------------------------------------------------

    def answer(self) -> bytes:
        """What the client asked, as bytes. Raises Unusable, or JAX's error."""
        match self._asked.question, self.compiled:
            case "", CompiledProgram(executable=executable):
                said = stablehlo_code.encode_about(executables.about_executable(executable))
            case "text", CompiledProgram(executable=executable):
                said = stablehlo_code.encode_text(str(executable.get_hlo_text()))
            case "costs", CompiledProgram(executable=executable):
                said = stablehlo_code.encode_costs(executables.costs_of(executable))
            case _:
                said = stablehlo_code.encode_about(executables.about_platform(self.jax_devices))
        if len(said) > stablehlo_code.ABOUT_LIMIT:
            raise Unusable(
                f"what is to be said of computation {self.name!r} has {len(said)} bytes, and at most "
                f"{stablehlo_code.ABOUT_LIMIT} travel"
            )
        return said


def _fits(part: tuple[int, ...], layout: Layout) -> bool:
    """A single number is a row of one in a stack."""
    size = Shards(layout).size
    return part == size or (not part and size == (1,) and stablehlo_code.is_stack(layout))


def _aval(layout: Layout) -> Any:
    return jax.core.ShapedArray(layout.shape, shard_io.numpy_dtype(layout.dtype))


def _copied(array: Any) -> Any:
    """Shard by shard: jaxlib copies no array of which other processes have shards."""
    parts = [part.data for part in array.addressable_shards]
    homes = [part.sharding for part in parts]
    copies = native.batched_copy_array_to_devices_with_sharding(
        parts, [home._internal_device_list for home in homes], homes,
        [native.ArrayCopySemantics.ALWAYS_COPY] * len(parts),
    )  # fmt: skip
    return native.ArrayImpl(array.aval, array.sharding, copies, committed=True, _skip_checks=True)


def _text(sharding: Any) -> str:
    return "something unknown" if sharding is None else " ".join(str(sharding._hlo_sharding).split())
