"""An MPMD program on a cluster: one program of core's, so that a step is one call, whatever it has of stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backend.door.protocol.ifrt_shardings import ShardSpec, Tiles
from backend.door.session.session_devices import ArrayType, CompiledFacts, PlanStep, StagePlan, StatusError
from core.model import Arg, Node, Out, Reshard, validate
from core.protocol import messages as m

from ..cluster_rig import F32, HOST_LOST, ClusterRig

SHAPE = (128, 64)
HALVES = Tiles((2, 1), (), (2,), (0,))


@pytest.fixture
def rig() -> ClusterRig:
    return ClusterRig()


def on(*devices: int, tiles: Tiles | None = None) -> ArrayType:
    return ArrayType(F32, SHAPE, ShardSpec(devices, tiles or Tiles()))


def staged(rig: ClusterRig, cut: Tiles | None = None) -> Any:
    """weights, x --first on 0--> h --copied to 2 and 3--> h' --second--> y. Weights are donated, and so is h."""
    first = rig.executable([SHAPE] * 2, [SHAPE], (0, 1), step="first")
    second = rig.executable([SHAPE], [SHAPE], (0,), devices=(2, 3), tiles=cut, step="second")
    types = (on(0), on(0), on(0), on(2, 3, tiles=cut), on(2, 3, tiles=cut))
    steps = (
        PlanStep(0, (0, 1), (2,), frozenset((0,))), PlanStep(None, (2,), (3,), frozenset((0,))),
        PlanStep(1, (3,), (4,), frozenset((0,))),
    )  # fmt: skip
    facts = CompiledFacts(
        "jit_train", (0, 2, 3), b"", ((F32, SHAPE),) * 2, (types[4],), None, None, (), (), (), (0,), {}, 0
    )
    return rig.devices.staged(StagePlan("jit_train", types, steps, (4,)), [first, second], facts)


def test_a_step_is_one_call_of_a_program_with_a_node_for_each_stage_and_copy(rig: ClusterRig) -> None:
    step = staged(rig)
    weights, x = rig.large(), rig.large()
    rig.calls()
    (y,) = rig.run(step, weights, x)
    register, submit = rig.calls()
    program = register.ir
    assert isinstance(submit, m.Submit)
    assert (submit.program, len(submit.results)) == (register.program, 1)
    assert program.name == "train"
    assert [(each.name, each.of) for each in program.slices][1:] == [
        ("devices[0]", "devices"),
        ("devices[2,3]", "devices"),
    ]
    first, copy, second = program.nodes
    assert (first.name, first.slice, first.inputs, first.donate) == ("first", 1, (Arg(0), Arg(1)), (0,))
    assert isinstance(copy, Reshard)
    assert (copy.inputs, copy.outputs[0].slice) == ((Out(0),), 2)
    assert (second.name, second.slice, second.inputs, second.donate) == ("second", 2, (Out(1),), (0,))
    assert (program.results, program.donate_args) == ((Out(2),), (0,))
    assert weights.gone
    assert not x.gone
    rig.run(step, rig.large(), x)
    assert [type(call) for call in rig.calls()] == [m.Put, m.Submit]
    assert y.type.sharding.devices == (2, 3)


def test_weights_that_are_to_stay_are_not_given_away(rig: ClusterRig) -> None:
    step, weights = staged(rig), rig.large()
    rig.run(step, weights, rig.large(), keep=[0])
    register, _ = [call for call in rig.calls() if not isinstance(call, m.Put)]
    assert register.ir.donate_args == ()
    assert [each.donate for each in register.ir.nodes if isinstance(each, Node)] == [(), (0,)]
    assert not weights.gone


def test_an_array_may_be_cut_otherwise_on_its_way(rig: ClusterRig) -> None:
    program = staged(rig, HALVES).ir
    validate(program)
    assert program.nodes[1].outputs[0].sharding.dims == ((0,), ())


def test_a_stage_that_fails_spoils_what_the_step_makes(rig: ClusterRig) -> None:
    (y,) = rig.run(staged(rig), rig.large(), rig.large())
    told = rig.told(y)
    rig.link.say(m.Ended(1, HOST_LOST))
    assert "host 1 is gone" in told[0].text


def test_stages_are_priced_by_what_each_takes(rig: ClusterRig) -> None:
    step = staged(rig)
    rig.run(step, rig.large(), rig.large())
    old = step.giving
    rig.calls()
    rig.programs.priced({"second": (9, 5_000_000)})
    assert [each.cost for each in step.ir.computations] == [1_000_000, 5_000_000]
    assert m.Unregister(old) in rig.calls()
    rig.run(step, rig.large(), rig.large())
    (submit,) = [call for call in rig.calls() if isinstance(call, m.Submit)]
    assert submit.program == step.giving != old


def test_what_core_does_not_know_is_refused_when_it_is_compiled(rig: ClusterRig) -> None:
    first = rig.executable([SHAPE], [SHAPE])
    plan = StagePlan("p", (on(0), on(0)), (PlanStep(0, (0, 0), (1,)),), (1,))
    facts = CompiledFacts("p", (0,), b"", ((F32, SHAPE),), (on(0),), None, None, (), (), (), (), {}, 0)
    with pytest.raises(StatusError, match="2 inputs, but it expects 1"):
        rig.devices.staged(plan, [first], facts)


def test_small_arguments_travel_in_the_call(rig: ClusterRig) -> None:
    first = rig.executable([(2,)], [(2,)])
    small = ArrayType(F32, (2,), ShardSpec((0,)))
    facts = CompiledFacts("p", (0,), b"", ((F32, (2,)),), (small,), None, None, (), (), (), (), {}, 0)
    step = rig.devices.staged(StagePlan("p", (small, small), (PlanStep(0, (0,), (1,)),), (1,)), [first], facts)
    rig.run(step, rig.put([1, 2]))
    assert rig.calls()[-1].args == (np.array([1, 2], np.float32).tobytes(),)
