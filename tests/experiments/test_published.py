"""Published rows: their facts agree with each other, and plans take the time that closed forms say."""

from typing import Any

import msgspec
import pytest

from experiments import published
from experiments.framework import BadOption, run
from experiments.framework.options import read_all
from experiments.pricing.rooflines import Plan, combined
from experiments.pricing.shapes import Decoder
from experiments.training import planned
from seaway.costs import synthetic
from sim.hardware.profiles import profile

TINY = Decoder("tiny", 8, 64, 256, heads=4, d_head=16, vocabulary=512)
IDEAL = profile("ideal")


def made(**how: int) -> Plan:
    shape: dict[str, Any] = {"data": 1, "tensor": 8, "stages": 4, "microbatch": 1, "microbatches": 8} | how
    return Plan(model=TINY, topology=f"a100-{8 * shape['stages']}", length=16, **shape)


def known(plan: Plan) -> planned.Costs:
    times = {"forward": "10ms", "backward": "20ms", "update": "1us"}
    return {f"{part.name}/{kind}": synthetic(time) for part in planned.parts(plan) for kind, time in times.items()}


@pytest.mark.parametrize("name", [name for name, row in published.rows().items() if "billions" in row])
def test_a_rows_shape_has_the_printed_parameters(name: str) -> None:
    row = published.rows()[name]
    model = published.plan(row).model
    tied = 0 if model.gated else model.vocabulary * model.d_model  # GPT's embedding is its softmax
    assert (model.parameters - tied) / 1e9 == pytest.approx(row["billions"], rel=0.005, abs=0.06)


@pytest.mark.parametrize("name", [name for name, row in published.rows().items() if "devices" in row])
def test_a_rows_plan_has_the_printed_devices_and_batch(name: str) -> None:
    row = published.rows()[name]
    of = published.plan(row)
    assert (of.devices, of.data * of.microbatch * of.microbatches) == (row["devices"], row["batch"])


@pytest.mark.parametrize(("chunks", "microbatches"), [(1, 8), (2, 8), (2, 4), (1, 3)])
def test_a_pipelines_bubble_is_stages_less_one_over_chunks_times_microbatches(chunks: int, microbatches: int) -> None:
    of = made(chunks=chunks, microbatches=microbatches)
    took = planned._simulated(of, known(of), IDEAL)
    work = 0.030 * chunks * microbatches
    assert took / work - 1 == pytest.approx(3 / (chunks * microbatches), rel=0.01)


@pytest.mark.parametrize("chunks", [1, 2])
def test_a_long_step_is_extended_from_two_short_ones(chunks: int) -> None:
    of = made(chunks=chunks, microbatches=12)
    costs = known(of)
    assert planned.step_seconds(of, costs, IDEAL) == pytest.approx(planned._simulated(of, costs, IDEAL), rel=1e-3)


def test_a_backward_pass_without_recomputation_is_both_passes_less_the_forward_one() -> None:
    forward, both = synthetic("1ms", allreduce="8B", count=2), synthetic("3ms", allreduce="8B", count=2)
    backward = combined("backward", (both, 2), (forward, -1))
    assert backward.duration == 10_000_000
    assert [(one.kind, one.nbytes, one.count) for one in backward.collectives] == [("all-reduce", 8, 2)]


def test_layers_that_cannot_be_divided_leave_the_ends_one_less() -> None:
    uneven = msgspec.structs.replace(made(), model=msgspec.structs.replace(TINY, layers=6))
    assert [part.layers for part in planned.parts(uneven)] == [1, 2, 2, 1]


def test_a_row_that_cannot_be_predicted_says_why() -> None:
    found = run("published", row="Llama 3 405B 131k tokens", progress=False)
    assert "context parallelism" in found.text
    with pytest.raises(BadOption, match="no row 'GPT'"):
        published.points(read_all(published.OPTIONS, {"row": "GPT"}))


def test_a_small_row_end_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    small = dict(published.rows()["22B scores again"], layers=2, d_model=512, heads=8, vocabulary=512, microbatch=1)
    monkeypatch.setitem(published.rows(), "small", small | {"published": 0.001})
    row = run("published", row="small", progress=False).frame.iloc[0]
    assert 0 < row["free"] <= row["faster"] < row["predicted"] <= row["no_overlap"]


@pytest.mark.full
def test_a_full_size_row_is_within_the_assumptions_of_a_roofline() -> None:
    row = run("published", row="22B scores again", progress=False).frame.iloc[0]
    assert -0.5 < row["error"] < 0
