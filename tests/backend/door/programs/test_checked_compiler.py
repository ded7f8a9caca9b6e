"""Programs are compiled in a child first: what passes, and what is left of a door whose compiler a program breaks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

from backend.auth import Rules
from backend.door.programs.checked_compiler import CheckedCompiler
from backend.door.programs.compiled_facts import compiled_facts
from backend.door.protocol.ifrt_messages import StatusCode
from backend.door.session.options import safe_options
from backend.door.session.session_devices import StatusError
from backend.pjrt import TRIES
from backend.pjrt.stablehlo_executables import about_executable, load_program
from tests.backend.real import await_end

from ..session_rig import compile_options
from .test_programs import artifact, calling

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


@pytest.fixture(scope="module")
def compiler() -> Iterator[CheckedCompiler]:
    found = CheckedCompiler(Rules(), devices=1, compiles=True)
    yield found
    found.close()
    assert found.pids == []


def fault(compiler: CheckedCompiler, program: bytes) -> StatusError:
    with pytest.raises(StatusError) as caught:
        compiler.check(program, OPTIONS, (0,))
    return caught.value


def test_what_a_child_compiled_runs_here(compiler: CheckedCompiler) -> None:
    about, executable = compiler.check(adding(3), OPTIONS, (0,))
    assert (about.name, about.donated) == ("jit_adding", ())
    device = jax.local_devices()[0]
    found = load_program(device.client, executable, OPTIONS, [device])
    (shards,) = found.execute_sharded(
        [jax.device_put(np.array([1, 2], np.float32))]
    ).disassemble_into_single_device_arrays()
    assert np.asarray(shards[0]).tolist() == [4.0, 5.0]
    facts = compiled_facts(about, about_executable(found), (0,), device.default_memory().kind)
    assert [array_type.shape for array_type in facts.results] == [(2,)]
    assert "HloModule jit_adding" in found.get_hlo_text()


def test_a_program_that_breaks_the_compiler_is_an_error_and_the_next_one_compiles(
    compiler: CheckedCompiler,
) -> None:
    compiler.check(adding(4), OPTIONS, (0,))
    before = compiler.pids
    found = fault(compiler, artifact(BREAKS))
    assert found.code == StatusCode.INTERNAL
    assert found.text.startswith(
        "the compiler crashed on this program: its process was ended by SIGABRT: Check failed"
    )
    assert compiler.pids == []
    assert fault(compiler, artifact(BREAKS)).text == found.text
    assert compiler.pids == []  # nothing was started: it is known
    compiler.check(adding(5), OPTIONS, (0,))
    assert compiler.pids not in ([], before)


def test_refusals_and_errors_of_the_compiler_are_those_of_the_child_which_lives_on(
    compiler: CheckedCompiler,
) -> None:
    compiler.check(adding(6), OPTIONS, (0,))
    before = compiler.pids
    assert "calls back into Python" in fault(compiler, artifact(calling("InspectSharding"))).text
    assert "is not StableHLO" in fault(compiler, b"MLIR and then nothing").text
    unknown = artifact(calling("Sharding").replace("@main(%x: tensor<2xf32>)", "@other(%x: tensor<2xf32>)"))
    assert "has no function 'main'" in fault(compiler, unknown).text
    assert compiler.pids == before


@pytest.mark.parametrize("kills", [1, TRIES])
def test_a_program_whose_child_is_killed_is_compiled_in_another_and_given_up_after_a_few(
    compiler: CheckedCompiler, kills: int
) -> None:
    compiler.check(adding(7), OPTIONS, (0,))
    pids = compiler.pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(compiler.check, adding(8 + kills), OPTIONS, (0,))
        wait_until(lambda: len(compiler._idle) < len(pids))  # a child has been taken for this program
        killed: set[int] = set()
        while len(killed) < kills:
            wait_until(lambda: bool(set(compiler.pids) - killed))
            for pid in set(compiler.pids) - killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        if kills == 1:
            assert asked.result()[1]
        else:
            with pytest.raises(StatusError, match="ended by SIGKILL: if nobody did this, memory ran out"):
                asked.result()
    assert compiler.check(adding(8 + kills), OPTIONS, (0,))[1]


def wait_until(over: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not over():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_programs_are_compiled_side_by_side_each_in_a_child_of_its_own(compiler: CheckedCompiler) -> None:
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(compiler.check, adding(10 + at), OPTIONS, (0,)) for at in range(4)]
        assert all(each.result()[1] for each in asked)
    assert 1 <= len(compiler.pids) <= 2


def test_compiling_is_bounded_in_time() -> None:
    compiler = CheckedCompiler(Rules(seconds=1e-4), devices=1, compiles=True)
    try:
        found = fault(compiler, adding(1))
        assert found.code == StatusCode.DEADLINE_EXCEEDED
        assert "--check-seconds of the door" in found.text
        assert compiler.pids == []
    finally:
        compiler.close()


def test_programs_for_devices_that_a_child_does_not_have_are_read_and_not_compiled() -> None:
    compiler = CheckedCompiler(Rules(more=("mine",)), devices=1, compiles=False)
    try:
        compiler.warm()
        compiler.warm()
        assert len(compiler.pids) == 1
        assert compiler.check(artifact(calling("mine")), OPTIONS, (7,))[1] == b""
        assert "is refused" in fault(compiler, artifact(calling("other"))).text
        (pid,) = compiler.pids
    finally:
        compiler.close()
    await_end(pid)
    assert "the door stops" in fault(compiler, adding(1)).text
