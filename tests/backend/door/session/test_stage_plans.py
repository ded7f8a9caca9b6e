"""Plans of MPMD programs: types that the client says, who may take over whose memory, and what is refused."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from backend.contents import StagedCall, StagedProgram, StagedStep
from backend.contents.staged_program import COPY, RESHARD
from backend.door.protocol.ifrt_messages import DTypeProto
from backend.door.protocol.ifrt_shardings import REPLICATED, ShardSpec, op_sharding
from backend.door.session.session_devices import ArrayType, CompiledFacts, StatusError
from backend.door.session.stage_plans import staged_plan, type_of
from backend.sandbox.stage_reading import ifrt_context

F32 = DTypeProto.KIND_F32
IDS = (7, 5, 4, 6)


def array(devices: Sequence[int] = (0, 1), shape: str = "4x2x", more: str = "") -> str:
    axes = len(devices)
    return f"!ifrt.array<tensor<{shape}f32>, #ifrt.sharding_param<{axes}x1 to [0] on {axes}>, {list(devices)}{more}>"


def facts(inputs: int, outputs: int, devices: tuple[int, ...] = (7, 5)) -> CompiledFacts:
    made = ArrayType(F32, (4, 2), ShardSpec(devices, REPLICATED))
    return CompiledFacts(
        "stage", devices, b"", ((F32, (4, 2)),) * inputs, (made,) * outputs, None, None, (), (), (), (), {}, 1
    )


def program(steps: Sequence[StagedStep], results: Sequence[int], types: Sequence[str], **more: Any) -> StagedProgram:
    return StagedProgram("p", **{
        "parameters": 2, "donated": (1,), "types": tuple(types), "steps": tuple(steps), "results": tuple(results),
        "calls": (StagedCall("a", "m", (0, 1)),), "codes": {}, **more,
    })  # fmt: skip


def planned(asked: StagedProgram, *stages: CompiledFacts) -> tuple[Any, CompiledFacts]:
    return staged_plan(asked, IDS, stages or (facts(2, 1),), "device", lambda array_type: "{1,0}")


def test_arrays_are_given_away_by_the_last_step_that_needs_them() -> None:
    """Arguments are 0, which stays, and 1, which is donated."""
    steps = [StagedStep(0, (0, 1), 1), StagedStep(0, (1, 2), 1), StagedStep(0, (3, 3), 1)]
    plan, about = planned(program(steps, [4], [array()] * 5))
    assert [(each.inputs, each.outputs, sorted(each.last)) for each in plan.steps] == [
        ((0, 1), (2,), []), ((1, 2), (3,), [0, 1]), ((3, 3), (4,), []),
    ]  # fmt: skip
    assert plan.results == (4,)
    assert (about.places, about.donated, about.devices) == (((7, 5), (7, 5)), (1,), IDS)
    assert about.passing == 2 * 2 * 32, "two arrays of 32 bytes on two devices each"
    assert (about.parameter_layouts, about.output_memory_kinds) == (("{1,0}",) * 2, ("device",))


def test_results_are_arrays_of_their_own() -> None:
    plan, _ = planned(program([StagedStep(0, (0, 1), 1)], [0, 2, 2], [array()] * 3))
    assert plan.results == (3, 2, 4)
    assert [(each.stage, each.inputs, each.outputs) for each in plan.steps[1:]] == [
        (None, (0,), (3,)),
        (None, (2,), (4,)),
    ]


def test_copies_keep_the_cut_and_reshards_have_the_one_that_is_said() -> None:
    types = [array(), array(), array(), array((2, 3)), array((2, 3))]
    plan, _ = planned(
        program([StagedStep(0, (0, 1), 1), StagedStep(COPY, (2,), 1), StagedStep(RESHARD, (2,), 1)], [3, 4], types)
    )
    here, copied, resharded = (plan.types[at].sharding for at in (2, 3, 4))
    assert here == ShardSpec((7, 5), REPLICATED), "as the compiler says, whatever the program does"
    assert copied == ShardSpec((4, 6), REPLICATED)
    assert (resharded.devices, resharded.tiles.grid) == ((4, 6), (2, 1))


@pytest.mark.parametrize(
    ("steps", "results", "types", "says"),
    [
        ([StagedStep(0, (0, 2), 1)], [2], [array()] * 3, "before it is made"),
        ([StagedStep(0, (0, -1), 1)], [2], [array()] * 3, "before it is made"),
        ([StagedStep(0, (0, 1), 1)], [3], [array()] * 3, "before it is made"),
        ([StagedStep(0, (0,), 1)], [2], [array()] * 3, "takes other arrays"),
        ([StagedStep(0, (0, 1), 2)], [2], [array()] * 4, "makes other arrays"),
        ([StagedStep(0, (0, 1), 1)], [2], [array(), array((2, 3)), array()], "takes other arrays"),
        ([StagedStep(0, (0, 1), 1)], [2], [array(), array(), array(shape="2x2x")], "makes other arrays"),
        ([StagedStep(COPY, (0,), 1)], [2], [array(), array(), array(shape="2x2x")], "of another type"),
        ([StagedStep(COPY, (0,), 1)], [2], [array(), array(), array((0, 1, 2, 3))], "of another type"),
        ([], [], [array((0, 4)), array()], "makes no sense"),
        ([], [], [array((1, 1)), array()], "makes no sense"),
        ([], [], [array(shape="3x2x"), array()], "cannot be cut"),
        ([], [], [array(shape=f"{1 << 32}x{1 << 32}x"), array()], "makes no sense"),
        ([], [], [array().replace("to [0]", "to [1]"), array()], "makes no sense"),
        ([], [], [array().replace("on 2", "on 4"), array()], "makes no sense"),
        ([], [], [array().replace("<2x1", "<0x1"), array()], "makes no sense"),
        ([], [], [array().replace("f32", "f33"), array()], "is not known here"),
        ([], [], ["!ifrt.array<tensor<2xf32>, #ifrt.sharding_unspecified, [0]>", array()], "is not known here"),
        ([], [], [array(more=", layout = \"x\""), array()], "is not known here"),
    ],
)  # fmt: skip
def test_what_the_client_says_is_checked(
    steps: Sequence[StagedStep], results: Sequence[int], types: Sequence[str], says: str
) -> None:
    with pytest.raises(StatusError, match=says):
        planned(program(steps, results, types))


def test_a_memory_kind_is_kept_unless_it_is_the_default() -> None:
    pinned, default = (type_of(array(more=f', memory_kind = "{kind}"'), IDS, "device") for kind in ("pinned", "device"))
    assert (pinned.sharding.memory_kind, default.sharding.memory_kind) == ("pinned", "")


@pytest.mark.parametrize(
    ("mesh", "spec"),
    [
        ((2, 3), ("y", "x")), ((2, 3), ("x", "y")), ((2, 3), (None, "x")), ((2, 3), ("y",)), ((2, 3), (("y", "x"),)),
        ((4, 2), (("x", "y"), None)), ((2, 2, 3), ("z", "x")), ((2, 2, 3), (("z", "x"), "y")), ((2, 2, 3), (None, "y")),
        ((4,), ("x",)), ((2, 2), ()),
    ],
)  # fmt: skip
def test_shardings_are_those_that_jax_means(mesh: tuple[int, ...], spec: tuple[Any, ...]) -> None:
    """Shardy's own lowering writes the type."""
    axes, count = "xyz"[: len(mesh)], int(np.prod(mesh))
    with ifrt_context() as ir:
        said = ", ".join(f'"{name}"={size}' for name, size in zip(axes, mesh, strict=True))
        dims = [each if isinstance(each, tuple) else (each,) if each else () for each in (*spec, None, None)[:2]]
        cut = ", ".join("{" + ", ".join(f'"{name}"' for name in names) + "}" for names in dims)
        kind = f'!mpmd.mesh_tensor<"m", tensor<24x24xf32>, sharding=<@mesh, [{cut}]>>'
        module = ir.Module.parse(f"""module {{ sdy.mesh @mesh = <[{said}]>
            func.func public @main(%a: {kind}) -> {kind} attributes {{topology = #mpmd.topology<<"m" : <[{said}]>>>}} {{
              return %a : {kind} }} }}""")
        importlib.import_module("jaxlib._sdy_mpmd").lower_to_ifrt(module)
        main = next(op for op in module.body.operations if op.operation.name == "func.func")
        found = type_of(str(main.regions[0].blocks[0].arguments[0].type), range(count), "device")
    meant = NamedSharding(AbstractMesh(mesh, tuple(axes)), PartitionSpec(*spec))
    wanted = meant._to_xla_hlo_sharding(2)
    proto: Any = jax._src.lib.xla_client.OpSharding()
    proto.ParseFromString(op_sharding(found.sharding.tiles).SerializeToString())
    ours = jax._src.lib.xla_client.HloSharding.from_proto(proto)
    assert str(ours) == str(wanted) or ours == wanted
