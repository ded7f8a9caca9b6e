"""What is read of an MPMD program as Shardy's front end wrote it, and what is refused; in a child, whatever it does."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from backend.auth import Rules
from backend.contents.staged_program import COPY, RESHARD
from backend.door.protocol.ifrt_messages import StatusCode
from backend.pjrt.code.stablehlo_executables import serdes
from backend.sandbox import stage_reading
from backend.sandbox.inspection import read_program
from backend.sandbox.program_gate import ProgramGate
from backend.sandbox.stage_reading import ifrt_context, read_stages
from backend.xla import StatusError

PROGRAMS = Path(__file__).parents[1] / "door" / "mpmd"
TEXTS = {name: (PROGRAMS / f"{name}.mlir").read_text(encoding="utf-8") for name in ("two_stages", "pipeline")}
ARRAY = "!ifrt.array<tensor<4xf32>, #ifrt.sharding_param<2 to [0] on 2>, [0, 1]>"


def bytecode(text: str) -> bytes:
    with ifrt_context() as ir:
        written = io.BytesIO()
        ir.Module.parse(text).operation.write_bytecode(written)
        return written.getvalue()


def main(body: str, kind: str = ARRAY) -> bytes:
    return bytecode(f"""module @p {{ func.func public @main(%a: {kind}) -> {kind} attributes {{ifrt.function}} {{
        {body} }} }}""")


def refused(program: bytes, version: int | None = None) -> StatusError:
    with pytest.raises(StatusError) as caught:
        read_stages(program, serdes() if version is None else version)
    return caught.value


def test_a_pipeline_is_calls_of_a_few_stages_and_copies_between_them() -> None:
    found = read_stages(bytecode(TEXTS["pipeline"]), serdes())
    assert (found.name, found.parameters, found.donated) == ("jit_train", 12, (0, 1, 2, 3))
    copies = [step for step in found.steps if step.call == COPY]
    assert (len(found.steps), len(copies), len(found.calls), len(found.codes)) == (116, 48, 14, 14)
    assert {(call.mesh, call.devices) for call in found.calls} == {
        ("a", (0, 1)), ("b", (2, 3)), ("c", (4, 5)), ("d", (6, 7)),
    }  # fmt: skip
    assert found.calls[0].key == "p0_stage0_fwd_calls0to7.train_mesh_a"
    assert len(found.types) == found.parameters + sum(step.outputs for step in found.steps)
    stage = read_program(found.codes[found.calls[0].code], ())
    assert [each and each.shape for each in stage.parameters] == [(16, 16), (8, 16)]


def test_a_stage_takes_over_what_shardy_gave_it() -> None:
    found = read_stages(bytecode(TEXTS["two_stages"]), serdes())
    assert found.donated == (0, 1)
    assert read_program(found.codes["p4_update1_fwd.train"], ()).donated == (0, 1)


def test_a_reshard_is_read_and_other_operations_are_refused_by_name() -> None:
    whole = ARRAY.replace("<2 to", "<1 to")
    (step,) = read_stages(
        main(f'%b, %c = "ifrt.Reshard"(%a) <{{donated = false, operandSegmentSizes = array<i32: 1, 0>}}> '
             f": ({ARRAY}) -> ({whole}, !ifrt.control) return %a : {ARRAY}"), serdes()
    ).steps  # fmt: skip
    assert (step.call, step.inputs, step.outputs) == (RESHARD, (0,), 1)
    one, other = (
        ARRAY.replace("<2 to [0] on 2>, [0, 1]", f"<1 to [0] on 1>, [{at}]").replace("<4x", "<2x") for at in (0, 1)
    )
    found = refused(main(
        f'%b, %c, %d = "ifrt.Disassemble"(%a) : ({ARRAY}) -> ({one}, {other}, !ifrt.control) return %a : {ARRAY}'
    ))  # fmt: skip
    assert (found.code, found.text.partition(": ")[2]) == (
        StatusCode.UNIMPLEMENTED, "it has the operation 'ifrt.Disassemble', which is not known here",
    )  # fmt: skip


def test_a_client_of_another_jaxlib_is_told_so() -> None:
    found = refused(bytecode(TEXTS["two_stages"]), 5)
    assert "the client's has serialization version 5, and the door's" in found.text
    assert found.text.endswith("use the same jaxlib at both ends")


def test_bytes_that_are_no_such_program_are_refused() -> None:
    whole = bytecode(TEXTS["two_stages"])
    for program in (b"", b"module {", whole[:300], whole[:-5], bytecode("module { func.func private @f() }")):
        assert refused(program).text.startswith("the MPMD program is refused: ")
    assert "cannot be read here" in refused(b'"an.other"() : () -> ()').text, "its dialect is not registered"


def test_a_program_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    program = bytecode(TEXTS["two_stages"])
    for name in ("STEPS", "ARRAYS", "USES", "CALLS", "TEXT"):
        with monkeypatch.context() as patch:
            patch.setattr(stage_reading, name, 3)
            assert refused(program).code == StatusCode.RESOURCE_EXHAUSTED


@pytest.fixture
def gate() -> Iterator[ProgramGate]:
    found = ProgramGate(Rules(), devices=1, compiles=False)
    yield found
    found.close()


@pytest.mark.full
def test_a_child_reads_hostile_bytes_and_what_ends_it_is_an_error(gate: ProgramGate) -> None:
    program, chance = bytecode(TEXTS["two_stages"]), random.Random(5)
    wanted = gate.read_stages(program, serdes())
    for _ in range(60):
        broken = bytearray(program)
        for _ in range(3):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        with suppress(StatusError):
            gate.read_stages(bytes(broken), serdes())
    assert gate.read_stages(program, serdes()) == wanted
