"""What is read of a program before it is compiled: its results and donated arguments, and what it may not call."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from backend.door.program_facts import ProgramFacts, read_program
from backend.door.protocol.ifrt_messages import TOKEN, dtype_of, name_of
from backend.door.session.session_devices import StatusError


def artifact(text: str) -> bytes:
    """StableHLO as a client sends it."""
    stablehlo: Any = importlib.import_module("jax.extend.mlir.dialects.stablehlo")
    mlir: Any = importlib.import_module("jax._src.interpreters.mlir")
    ir: Any = importlib.import_module("jax._src.lib.mlir").ir
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        version = stablehlo.get_current_version()
        return bytes(stablehlo.serialize_portable_artifact(module, version))


def facts(text: str, more: tuple[str, ...] = (), callbacks: bool = False) -> ProgramFacts:
    return read_program(artifact(text), more, callbacks)


def calling(name: str, config: str = "", twice: str = "tensor<2xf32>") -> str:
    attributes = f"{{mhlo.backend_config = {config}}}" if config else ""
    return f"""
    module @jit_f {{
      func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
        %y = stablehlo.custom_call @{name}(%x) {attributes} : (tensor<2xf32>) -> tensor<2xf32>
        %z = stablehlo.custom_call @{name}(%x) {attributes} : (tensor<2xf32>) -> {twice}
        return %y : tensor<2xf32>
      }}
    }}"""


def test_results_and_donated_arguments_are_those_of_main() -> None:
    found = facts("""
    module @jit_step {
      func.func public @main(%a: tensor<4x2xbf16> {tf.aliasing_output = 0 : i32}, %b: tensor<i1>,
          %c: tensor<ui8> {jax.buffer_donor = true}, %d: tensor<complex<f64>> {jax.buffer_donor = false})
          -> (tensor<4x2xbf16>, tensor<i1>, tensor<ui8>, tensor<complex<f64>>) {
        return %a, %b, %c, %d : tensor<4x2xbf16>, tensor<i1>, tensor<ui8>, tensor<complex<f64>>
      }
      func.func private @main_not() { return }
    }""")
    assert found.name == "jit_step"
    assert [(name_of(kind), shape) for kind, shape in found.results] == [
        ("bf16", (4, 2)), ("pred", ()), ("u8", ()), ("c128", ()),
    ]  # fmt: skip
    assert found.parameters == found.results
    assert found.donated == (0, 2)


def test_a_result_that_is_no_array_is_a_token() -> None:
    found = facts("""
    module @m {
      func.func public @main(%t: !stablehlo.token) -> !stablehlo.token { return %t : !stablehlo.token }
    }""")
    assert found.results == ((TOKEN, ()),)
    (token,) = found.parameters
    assert token is not None
    assert (name_of(token.kind), token.shape) == ("pred", (0,))  # what JAX passes for it


def test_elements_of_every_width_have_a_kind() -> None:
    for name in ("f8E4M3FN", "f8E5M2", "f4E2M1FN", "i2", "ui4", "i64", "f16"):
        found = facts(f"module @m {{ func.func public @main(%x: tensor<{name}>) -> tensor<{name}> {{"
                      f" return %x : tensor<{name}> }} }}")  # fmt: skip
        assert dtype_of(found.results[0].kind) is not None


def test_foreign_functions_are_refused_by_name_but_for_those_that_are_allowed() -> None:
    with pytest.raises(StatusError, match="'run_anything', which is not on the list"):
        facts(calling("run_anything"))
    with pytest.raises(StatusError, match="memory as others have left it"):
        facts(calling("AllocateBuffer"))
    assert facts(calling("AllocateBuffer"), more=("AllocateBuffer",)).name == "jit_f"
    assert facts(calling("Sharding")).name == "jit_f"


def test_functions_of_the_client_are_called_only_if_it_answers_and_by_its_numbers() -> None:
    name, config = "xla_ffi_python_cpu_callback", "{index = 4000000000000 : ui64}"
    with pytest.raises(StatusError, match="its process does not answer such calls: install seaway where"):
        facts(calling(name, config))
    with pytest.raises(StatusError, match="its process does not answer such calls"):
        facts(calling(name, config), more=(name,))
    assert facts(calling("Sharding"), callbacks=True).callbacks == ()
    (found,) = facts(calling(name, config), callbacks=True).callbacks
    assert found.function == 4000000000000
    assert found.results == (("f32", (2,)),)
    for target in (
        "CustomSPMDPartitioning",
        "InspectSharding",
        "xla_python_cpu_callback",
        "xla_ffi_python_tpu_callback",
    ):
        with pytest.raises(StatusError, match="calls back into Python"):
            facts(calling(target, config), callbacks=True)


@pytest.mark.parametrize(
    "config", ["", "{}", '{index = "x"}', "{index = [1]}", "{index = 1.5 : f32}", "{other = 1 : ui64}"]
)
def test_calls_of_the_client_that_name_no_function_are_refused(config: str) -> None:
    with pytest.raises(StatusError, match="does not say which function it calls"):
        facts(calling("xla_ffi_python_cpu_callback", config), callbacks=True)


def test_a_function_of_the_client_has_results_of_one_type() -> None:
    with pytest.raises(StatusError, match="function 3 is called with results of two types"):
        facts(calling("xla_ffi_python_cpu_callback", "{index = 3 : ui64}", twice="tensor<4xf32>"), callbacks=True)


def test_operations_that_speak_with_the_host_are_refused() -> None:
    with pytest.raises(StatusError, match=r"has the operation 'stablehlo.infeed'"):
        facts("""
        module @m {
          func.func public @main(%t: !stablehlo.token) -> (tensor<2xf32>, !stablehlo.token) {
            %a, %b = "stablehlo.infeed"(%t) : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
            return %a, %b : tensor<2xf32>, !stablehlo.token
          }
        }""")


def test_a_program_that_is_none_is_refused() -> None:
    with pytest.raises(StatusError, match="not StableHLO that can be read"):
        read_program(b"nonsense", (), False)
    with pytest.raises(StatusError, match="no function 'main'"):
        facts("module @m { func.func private @other() { return } }")
