"""Raw StableHLO of clients that are not trusted is compiled in a child first: what passes, and what breaks it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from backend.auth.trust import Rules
from backend.contents import StableHLOCode
from backend.pjrt.code.launchable_code import Unusable
from backend.pjrt.code.stablehlo_codes import cacheable
from backend.sandbox.code_gate import CodeGate
from core.model.place import line
from core.model.plan import Gang
from core.model.program import Value
from tests.laws import examples

from ..pjrt.pjrt_rig import Work, value
from ..pjrt.stablehlo_rig import artifact, compile_options, lowered, raw, results
from .test_code_check import code_gate, gate

__all__ = ["gate"]  # a fixture

EIGHT = value((8,))


def step(
    program: bytes, takes: list[Value] | None = None, name: str = "step", devices: int = 1, **options: Any
) -> Work:
    return raw(name, program, (devices,), takes or [], takes or [], **options)


def check(gate: CodeGate, work: Work, base: int = 0) -> None:
    devices = work.mesh[0]
    plan = work.plan(line(0, base, devices), *results(work))
    (code,), gang = plan.codes, plan.steps[0]
    assert isinstance(gang, Gang)
    inputs, outputs = ([plan.slots[slot].layout for slot in slots] for slots in (gang.inputs, gang.outputs))
    gate.check(code, gang, inputs, outputs, work.blobs, tuple(range(base, base + devices)))


def refusal(gate: CodeGate, work: Work) -> str:
    with pytest.raises(Unusable) as caught:
        check(gate, work)
    return str(caught.value)


def plain(fn: Callable[..., Any], devices: int = 1) -> bytes:
    return lowered(fn, (devices,), [EIGHT], [EIGHT])


def calling(target: str) -> bytes:
    return artifact(
        f"""module @jit_f attributes {{mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32}} {{
          func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {{
            %y = stablehlo.custom_call @{target}(%x) : (tensor<8xf32>) -> tensor<8xf32>
            return %y : tensor<8xf32>
          }}
        }}"""
    )


GOOD = plain(lambda x: jnp.sin(x) + jnp.sort(x))


def test_a_program_passes_and_so_does_every_question_about_it_without_another_look(gate: CodeGate) -> None:
    program = plain(lambda x: jnp.sin(x) * 2)
    before = gate.checked
    for work in (
        step(program), step(program, [EIGHT]), step(program, question="text"), step(program, question="costs"),
        step(b"", question="platform"),
    ):  # fmt: skip
        check(gate, work)
    assert gate.checked == before + 1
    check(gate, step(program), base=5)  # on another device
    assert gate.checked == before + 1
    check(gate, step(program, options=compile_options(1, xla_embed_ir_in_executable="True")))  # other options
    assert gate.checked == before + 2


def test_foreign_functions_are_those_of_the_list(gate: CodeGate) -> None:
    check(gate, step(plain(lambda x: x + jnp.linalg.cholesky(jnp.eye(8, dtype=x.dtype) * 4)[0])))
    said = refusal(gate, step(calling("never_heard_of"), name="guess"))
    assert said.startswith("the code of computation 'guess' is refused: it calls 'never_heard_of', which is not")
    assert "it calls back into Python" in refusal(gate, step(calling("xla_ffi_python_cpu_callback")))


def test_bytes_options_and_sizes_are_looked_at_before_anything_is_compiled(gate: CodeGate) -> None:
    assert "is refused: the program is not StableHLO that can be read here" in refusal(gate, step(b"junk"))
    broken = Work((1,))
    broken.call("broken", None, [], [], [], exported=StableHLOCode(b"", b"", "weather").encode())
    assert "the code of computation 'broken' cannot be used: it asks 'weather'" in refusal(gate, broken)
    said = refusal(gate, step(plain(lambda x: x), options=b"\xff\xff"))
    assert said == "the options of computation 'step' cannot be used: the compile options cannot be read"
    with code_gate(Rules(largest=100)) as narrow:
        assert "bytes, but at most 100 are allowed" in refusal(narrow, step(plain(lambda x: x)))


# XLA:CPU ends its process over this one, in both versions.
DEADLY = """module @jit_f attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<3xi2>) -> tensor<6xi2> {
    %y = stablehlo.concatenate %x, %x, dim = 0 : (tensor<3xi2>, tensor<3xi2>) -> tensor<6xi2>
    return %y : tensor<6xi2>
  }
}"""


def test_a_program_that_ends_the_compiler_ends_only_the_child(gate: CodeGate) -> None:
    said = refusal(gate, step(artifact(DEADLY), name="deadly"))
    assert said.startswith("computation 'deadly' cannot be compiled: the compiler's process was ended by SIGABRT")
    check(gate, step(plain(lambda x: x * 3)))


@examples(12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_programs_do_no_harm_here(gate: CodeGate, spoilt: list[tuple[float, int]]) -> None:
    """Some of them end the child: the reader is not made for such bytes."""
    broken, said = bytearray(GOOD), "computation 'spoilt'"
    for where, byte in spoilt:
        broken[int(where * len(GOOD))] = byte
    try:
        check(gate, step(bytes(broken), name="spoilt"))
    except Unusable as error:
        said = str(error)
    assert "computation 'spoilt'" in said


@examples(12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_damaged_options_do_no_harm_here(gate: CodeGate, junk: bytes) -> None:
    """Junk is either unreadable, or says nothing about devices."""
    assert "the options of computation 'spoilt' cannot be used" in refusal(
        gate, step(GOOD, name="spoilt", options=junk)
    )


def test_programs_for_accelerators_are_read_and_not_compiled(gate: CodeGate) -> None:
    with code_gate(Rules(), "tpu") as tpu:
        check(tpu, step(artifact(DEADLY)))
        assert "'never_heard_of', which is not on the list" in refusal(tpu, step(calling("never_heard_of")))
        assert "cannot be read" in refusal(tpu, step(plain(lambda x: x), options=b"\xff\xff"))


def test_what_the_child_has_compiled_is_kept_for_its_agent(tmp_path: Path) -> None:
    folder = tmp_path / "executables"
    with code_gate(Rules(), "cpu", tmp_path) as keeping:
        check(keeping, step(plain(lambda x: x * 5)))
        (kept,) = folder.iterdir()
        assert kept.stat().st_size > 1000
        assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("platform", "processes", "kept"),
    [("cpu", (0, 1), True), ("gpu", (0, 1), False), ("gpu", (1, 1), True), ("tpu", (0,), True)],
)
def test_hosts_that_tune_a_program_together_all_compile_it(
    platform: str, processes: tuple[int, ...], kept: bool
) -> None:
    devices = [SimpleNamespace(platform=platform, process_index=process) for process in processes]
    assert cacheable(devices) == kept
