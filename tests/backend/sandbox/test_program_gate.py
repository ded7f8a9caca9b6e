"""Programs are compiled in a child first: what passes, and what is left of a door whose compiler a program breaks."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

from backend.auth import Rules
from backend.door.program_facts import compiled_facts, program_facts
from backend.door.protocol.ifrt_messages import StatusCode
from backend.door.session.ops.executables import safe_options
from backend.pjrt.code.stablehlo_executables import about_executable, load_program
from backend.sandbox.checker_process import CheckerChild
from backend.sandbox.program_gate import ProgramGate
from backend.xla import StatusError
from tests.backend.real import await_end

from ..door.session_rig import compile_options
from ..door.test_programs import artifact, calling

OPTIONS, _ = safe_options(compile_options((0,)), 1)
# XLA:CPU ends its process over this one, in both versions.
BREAKS = """
module @jit_breaks {
  func.func public @main(%x: tensor<3xi2>) -> tensor<6xi2> {
    %y = stablehlo.concatenate %x, %x, dim = 0 : (tensor<3xi2>, tensor<3xi2>) -> tensor<6xi2>
    return %y : tensor<6xi2>
  }
}"""


def adding(number: float) -> bytes:
    return artifact(f"""
    module @jit_adding {{
      func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
        %c = stablehlo.constant dense<{number:.1f}> : tensor<2xf32>
        %y = stablehlo.add %x, %c : tensor<2xf32>
        return %y : tensor<2xf32>
      }}
    }}""")


def pids(gate: ProgramGate) -> list[int]:
    return [child._process.pid for child in gate.checkers._children if child.alive]


@pytest.fixture(scope="module")
def gate() -> Iterator[ProgramGate]:
    found = ProgramGate(Rules(), devices=1, compiles=True)
    yield found
    found.close()
    assert pids(found) == []


def fault(gate: ProgramGate, program: bytes) -> StatusError:
    with pytest.raises(StatusError) as caught:
        gate.check(program, OPTIONS, (0,))
    return caught.value


def test_what_a_child_compiled_runs_here(gate: ProgramGate) -> None:
    about, executable = gate.check(adding(3), OPTIONS, (0,))
    assert (about.name, about.donated) == ("jit_adding", ())
    device = jax.local_devices()[0]
    found = load_program(device.client, executable, OPTIONS, [device])
    (shards,) = found.execute_sharded(
        [jax.device_put(np.array([1, 2], np.float32))]
    ).disassemble_into_single_device_arrays()
    assert np.asarray(shards[0]).tolist() == [4.0, 5.0]
    facts = compiled_facts(program_facts(about), about_executable(found), (0,), device.default_memory().kind)
    assert [array_type.shape for array_type in facts.results] == [(2,)]
    assert "HloModule jit_adding" in found.get_hlo_text()


def test_a_program_that_breaks_the_compiler_is_an_error_and_the_next_one_compiles(gate: ProgramGate) -> None:
    gate.check(adding(4), OPTIONS, (0,))
    before = pids(gate)
    found = fault(gate, artifact(BREAKS))
    assert found.code == StatusCode.INTERNAL
    assert found.text.startswith("the compiler crashed on this program: its process was ended by SIGABRT: Check failed")
    assert pids(gate) == []
    assert fault(gate, artifact(BREAKS)).text == found.text
    assert pids(gate) == []  # nothing was started: it is known
    gate.check(adding(5), OPTIONS, (0,))
    assert pids(gate) not in ([], before)


def test_refusals_and_errors_of_the_compiler_are_those_of_the_child_which_lives_on(gate: ProgramGate) -> None:
    gate.check(adding(6), OPTIONS, (0,))
    before = pids(gate)
    assert "calls back into Python" in fault(gate, artifact(calling("InspectSharding"))).text
    assert "is not StableHLO" in fault(gate, b"MLIR and then nothing").text
    unknown = artifact(calling("Sharding").replace("@main(%x: tensor<2xf32>)", "@other(%x: tensor<2xf32>)"))
    assert "has no function 'main'" in fault(gate, unknown).text
    assert pids(gate) == before


def test_programs_are_compiled_side_by_side_each_in_a_child_of_its_own(gate: ProgramGate) -> None:
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(gate.check, adding(10 + at), OPTIONS, (0,)) for at in range(4)]
        assert all(each.result()[1] for each in asked)
    assert 1 <= len(pids(gate)) <= 2


def test_compiling_is_bounded_in_time() -> None:
    gate = ProgramGate(Rules(seconds=1e-4), devices=1, compiles=True)
    try:
        found = fault(gate, adding(1))
        assert found.code == StatusCode.DEADLINE_EXCEEDED
        assert "--check-seconds of the door" in found.text
        assert pids(gate) == []
    finally:
        gate.close()


def test_programs_for_devices_that_a_child_does_not_have_are_read_and_not_compiled() -> None:
    gate = ProgramGate(Rules(more=("mine",)), devices=1, compiles=False)
    try:
        gate.warm()
        gate.warm()
        assert len(pids(gate)) == 1
        assert gate.check(artifact(calling("mine")), OPTIONS, (7,))[1] == b""
        assert "is refused" in fault(gate, artifact(calling("other"))).text
        (pid,) = pids(gate)
    finally:
        gate.close()
    await_end(pid)
    assert "this process ends" in fault(gate, adding(1)).text


def test_a_child_that_cannot_be_started_leaves_nothing_open() -> None:
    """A socket that were left would fail this test as a warning."""
    with pytest.raises(OSError, match="too long"):
        CheckerChild("backend.sandbox.program_checker", b"x" * (1 << 21), 1)
    gc.collect()
