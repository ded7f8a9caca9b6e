"""JAX's devices of this process as sessions use them: an array that is gone is an error, and never ends the process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import jax
import numpy as np
import pytest

from backend.door.local.local_devices import LocalDevices
from backend.door.protocol.ifrt_messages import DTypeProto
from backend.door.protocol.ifrt_shardings import ShardSpec
from backend.door.session.ops.executables import safe_options
from backend.door.session.session_devices import ArrayCopy, ArrayType, PlanStep, StagePlan, StatusError
from tests.backend.pjrt.pjrt_rig import value
from tests.backend.pjrt.stablehlo_rig import compile_options as plain
from tests.backend.pjrt.stablehlo_rig import lowered

from ..jax_programs import until
from ..session_rig import compile_options
from ..test_programs import artifact

KIND = ArrayType(DTypeProto.KIND_F32, (4,), ShardSpec((0,)))
USES: dict[str, Callable[[LocalDevices, Any], Any]] = {
    "copied": lambda devices, gone: devices.copy([ArrayCopy(KIND, KIND, gone)], True),
    "taken apart": lambda devices, gone: devices.shards(gone),
    "put together": lambda devices, gone: devices.assemble(KIND, [gone]),
}


@pytest.fixture(scope="module")
def devices() -> Any:
    # A door's process computes with 64 bits, and this one goes on without.
    wide = jax.config.read("jax_enable_x64")  # type: ignore[no-untyped-call]
    found = LocalDevices(lambda function, *arguments: function(*arguments), count=1, trusted=True)
    yield found
    found.end()
    jax.config.update("jax_enable_x64", wide)  # type: ignore[no-untyped-call]


def test_a_program_that_was_compiled_is_there_for_the_next_session(devices: LocalDevices) -> None:
    """With the same options; and so is what it compiles to, which is called as often as they like."""
    program = lowered(lambda x: x + 1, (1,), [value((4,), ())])
    said: SimpleQueue[Any] = SimpleQueue()
    found: list[Any] = []
    for options in (plain(1), plain(1), plain(1, xla_embed_ir_in_executable="True")):
        devices.compile(program, options, (0,), lambda *made: said.put(made))
        found.append(said.get(timeout=60))
    (first, facts), (second, again), (other, _) = found
    assert first is second is not other
    assert facts is again
    for executable in (first, second):
        results = devices.execute(executable, [devices.put(KIND, [np.ones(4, np.float32)])], (), 0)
        assert isinstance(results, list)
        assert np.asarray(results[0]).tolist() == [2] * 4


def deleted(devices: LocalDevices) -> Any:
    array = devices.put(KIND, [np.ones(4, np.float32)])
    devices.delete(array)
    return array


@pytest.mark.parametrize("use", USES)
def test_a_deleted_array_cannot_be(devices: LocalDevices, use: str) -> None:
    """JAX 0.10 ends the process that does this."""
    with pytest.raises(StatusError, match="was deleted or donated"):
        USES[use](devices, deleted(devices))


def test_a_deleted_array_is_waited_for_and_read_as_an_error(devices: LocalDevices) -> None:
    said: list[Any] = []
    devices.when_ready([deleted(devices)], said.append)
    devices.fetch(deleted(devices), said.append)
    assert [type(each) for each in said] == [StatusError, StatusError]
    assert devices.is_deleted(deleted(devices))
    assert not devices.crowded(lambda: None)


ADDS = """
module @jit_adds {
  func.func public @main(%w: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<4xf32>) -> tensor<4xf32> {
    %y = stablehlo.add %w, %x : tensor<4xf32>
    return %y : tensor<4xf32>
  }
}"""


def test_stages_take_over_what_nothing_needs_and_the_caller_gives_up(devices: LocalDevices) -> None:
    """w + x by a stage that takes its first argument, twice: w is given up, unless it is to stay. x always stays."""
    said: list[Any] = []
    options, _ = safe_options(compile_options(), 1)
    devices.compile(artifact(ADDS), options, (0,), lambda *made: said.append(made))
    until(lambda: said, "it does not compile")
    ((stage, about),) = said
    steps = (
        PlanStep(0, (0, 1), (2,), frozenset((0,))), PlanStep(0, (1, 2), (3,), frozenset((1,))),
        PlanStep(None, (3,), (4,), frozenset((0,))),
    )  # fmt: skip
    step = devices.staged(StagePlan("p", (KIND,) * 5, steps, (4,)), [stage], replace(about, donated=(0,)))
    x = devices.put(KIND, [np.full(4, 3, np.float32)])
    w: Any = None
    for keep in ((0,), ()):
        w = devices.put(KIND, [np.ones(4, np.float32)])
        made: Any = devices.execute(step, [w, x], keep, 0)
        (found,) = made
        assert np.asarray(found).tolist() == [7.0] * 4
        assert (devices.is_deleted(w), devices.is_deleted(x)) == (not keep, False)
    with pytest.raises(StatusError, match="was deleted or donated"):
        devices.execute(step, [w, x], (), 0)
    assert not devices.is_deleted(x)
