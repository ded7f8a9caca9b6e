"""Training in the simulator: programs that are a step, the book of costs, and the paper's tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pandas as pd
import pytest
from matplotlib.figure import Figure

from core.model.program import Node
from experiments import fig10, fig12, table1, table2
from experiments.framework import BadOption
from experiments.framework.options import read_all
from experiments.framework.tables import split
from experiments.pricing import book, jobs
from experiments.pricing.jobs import Job
from experiments.pricing.shapes import LM_3B, MODELS
from experiments.training import rows, setups
from experiments.training.drive import ablation, computing, train
from experiments.training.exchange import Islands, islands
from experiments.training.pipelines import Pipeline, pipeline
from experiments.training.steps import Pricing, Step
from seaway.costs import Cost
from sim.hardware.profiles import profile
from sim.hardware.setups import load

from . import price
from .models.built import built, topology

PAPER = profile("paper")
MS = 1_000_000
FORWARD, BACKWARD, UPDATE = 10 * MS, 30 * MS, 5 * MS


@pytest.fixture
def stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """State all costs by kind, whatever the model, so that a schedule's length can be computed by hand."""

    def cost(job: Job) -> Cost:
        kinds = {"forward": FORWARD, "backward": BACKWARD, "update": UPDATE}
        return Cost.stated(next((ns for kind, ns in kinds.items() if f"/{kind};" in job.key), 100 * MS), job.key)

    monkeypatch.setattr(book, "cost", cost)


def pipe(count: int, microbatches: int, *, schedule: str = "gpipe", light: bool = False, apart: int = 1) -> Step:
    setup = setups.cluster(32 * apart, apart)
    slices = setups.stages(setup, count)
    costed = jobs.stages("LM-3B", slices[0].devices, count, 32, 128, microbatches)
    return pipeline(Pipeline(costed, slices, microbatches, 32, 128, schedule, light), Pricing())


def point(module: Any, **asked: object) -> dict[str, Any]:
    """The first configuration under these options, reduced to one run."""
    found: dict[str, Any] = module.points(read_all(module.OPTIONS, {"parts": False, **asked}))[0]
    return found


# --- the book of costs


@pytest.mark.parametrize("listed", [price.table1, price.table2, price.fig12, price.sweeps])
def test_the_book_has_every_cost_that_the_tables_need(listed: Callable[[], Iterator[Job]]) -> None:
    for job in listed():
        found = book.committed(book.file_of(job.key)).get(job.key)
        assert found is not None, f"not committed: {job.key}; run `python -m tests.experiments.price`"
        assert found.source == "tpu-compiler"
        assert {"jax", "libtpu"} <= set(found.versions)
        assert found.target == topology(job.key)


def test_figures_10_and_12_need_no_other_costs() -> None:
    """The book is made to contain what `python -m experiments` needs by default."""
    for point in fig12.points(read_all(fig12.OPTIONS, {})):
        each, alone = point["cores"] // point["islands"], point["batch"] // point["islands"]
        for costed in jobs.segments(
            point["model"], each, point["segments"], alone, point["length"], point["islands"], point["split"]
        ):
            assert all(book.cost(job).duration for job in costed.jobs)
    for point in fig10.points(read_all(fig10.OPTIONS, {})):
        cores = point["cores"] // point["stages"]
        batch = point["batch"] // point["microbatches"]
        waiting = jobs.waiting_last(point["schedule"], point["stages"], point["microbatches"])
        for costed in jobs.stages(point["model"], cores, point["stages"], batch, point["length"], waiting):
            assert all(book.cost(job).duration for job in costed.jobs)


def test_a_job_that_is_priced_joins_the_others_in_the_book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "DATA", tmp_path)
    monkeypatch.setattr(price, "compiled", lambda key: Cost.stated(7, key))
    asked = [jobs.step("LM-3B", 128, 2048, length) for length in (16, 32)]
    for job in asked:
        price.commit(job.key)
    assert set(book.committed(book.file_of(asked[0].key))) == {job.key for job in asked}
    assert [path.name for path in tmp_path.iterdir()] == ["costs-lm-3b.json"]


@pytest.mark.parametrize(("at", "kind"), [(0, "forward"), (1, "backward"), (-1, "forward"), (1, "update")])
def test_the_book_belongs_to_the_current_models(at: int, kind: str) -> None:
    """Compiled code has a digest. A model that was changed must be priced again."""
    from seaway.costs.lowering import lower

    job = getattr(jobs.stages("LM-3B", 8, 16, 32, 1024, 64)[at], kind)
    cost = book.cost(job)
    if cost.versions["jax"] != jax.__version__:
        pytest.skip(f"made with jax {cost.versions['jax']}; this is {jax.__version__}, which writes other text")
    one = built(job.key)
    lowered = lower(
        one.function, one.arguments, platform="tpu", out_shardings=one.results, donate=one.donate, name=one.name
    )
    assert lowered.digest == cost.digest, "run `python -m tests.experiments.price --again`"


def test_the_compilers_count_of_multiplications_is_that_of_the_model() -> None:
    """A micro-batch of a middle stage, on one core: forward; and forward again, without the last product of each
    layer, which no gradient needs, and twice that for gradients."""
    stage = jobs.stages("LM-3B", 32, 4, 128, 1024, 16)[1]
    tokens, layers = 4 * 1024, stage.part.layers
    weights = 2 * tokens * layers * (LM_3B.per_layer - 2 * LM_3B.d_model)
    attention = 2 * 2 * tokens * 1024 * LM_3B.d_model * layers
    assert book.cost(stage.forward).flops == pytest.approx(weights + attention, rel=0.02)
    unneeded = 2 * tokens * layers * LM_3B.d_model * LM_3B.d_ff
    assert book.cost(stage.backward).flops == pytest.approx(3 * (weights + attention) - unneeded, rel=0.02)


def test_a_key_has_all_that_its_computation_depends_on() -> None:
    """So that a cost can be added by the key alone."""
    listed = [*price.table1(), *price.table2(), *price.fig12(), *price.sweeps()]
    for key in dict.fromkeys(job.key for job in listed if "136B" not in job.key):
        assert built(key).name == key.partition(";")[0]
    with pytest.raises(ValueError, match="'LM-3B/step' is no key"):
        built("LM-3B/step")


def test_a_cost_that_is_not_in_the_book_is_refused_with_the_command_that_adds_it() -> None:
    job = jobs.step("LM-3B", 128, 2048, 336)
    with pytest.raises(BadOption, match=re.escape(f"python -m tests.experiments.price '{job.key}'")):
        book.cost(job)


# --- programs


def test_a_pipeline_has_a_node_for_each_pass_and_a_move_for_each_boundary(stated: None) -> None:
    step = pipe(4, 8)
    nodes = [node for node in step.step.nodes if isinstance(node, Node)]
    assert len(nodes) == 4 * 8 * 2 + 4
    crossing = [
        ref for node in nodes for ref in node.inputs if hasattr(ref, "node") and nodes[ref.node].slice != node.slice
    ]
    assert len(crossing) == 3 * 8 * 2
    assert len(step.start.nodes) == len(step.step.args) == 2 + 4 * 4
    assert len(step.step.donate_args) == 4 * 4


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_simulated_pipeline_takes_as_long_as_the_formula_says(schedule: str, stated: None) -> None:
    found = train(pipe(4, 8, schedule=schedule, light=True), setups.cluster(32), PAPER)
    assert found.step_ns == pytest.approx((8 + 4 - 1) * (FORWARD + BACKWARD) + UPDATE, rel=0.01)
    assert found.busy == pytest.approx((8 * (FORWARD + BACKWARD) + UPDATE) / found.step_ns, rel=0.01)


def test_moves_between_islands_hide_behind_computation(stated: None) -> None:
    one = train(pipe(4, 8), setups.cluster(32), PAPER)
    four = train(pipe(4, 8, apart=4), setups.cluster(128, 4), PAPER)
    boundary = 32 * 128 * 2048 * 2
    assert one.moved_bytes == pytest.approx(3 * 8 * 2 * boundary, rel=0.01)
    assert four.moved_bytes == pytest.approx(one.moved_bytes, rel=0.01)
    assert one.step_ns < four.step_ns < 1.1 * one.step_ns


def test_islands_send_every_gradient_to_each_other(stated: None) -> None:
    setup = load("C", islands=2)
    costed = jobs.segments("LM-3B", 32, 3, 32, 128, 2)
    both = Islands(costed, setups.whole(setup, 4), 32, 128)
    found = train(islands(both, Pricing()), setup, PAPER)
    assert found.moved_bytes == pytest.approx(2 * 4 * LM_3B.parameters, rel=0.01)
    alone = 3 * (FORWARD + BACKWARD + UPDATE)
    assert found.step_ns > alone
    light = train(islands(Islands(costed, both.slices, 32, 128, light=True), Pricing()), setup, PAPER)
    assert light.step_ns == pytest.approx(alone, rel=0.02)


def test_the_parts_of_a_step_add_up_to_the_step(stated: None) -> None:
    setup = setups.cluster(32)
    whole, parts = ablation(lambda light: pipe(4, 8, light=light), setup, PAPER)
    assert sum(parts.values()) == pytest.approx(whole.step_ns / 1e9, rel=1e-4)
    assert parts["compute_s"] == pytest.approx(computing(pipe(4, 8), 32) / 1e9)
    assert parts["bubbles_s"] == pytest.approx(3 * (FORWARD + BACKWARD) / 1e9, rel=0.01)
    assert parts["transfers_s"] > 0
    assert parts["control_s"] > 0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: setups.cluster(12), "whole hosts of 8"),
        (lambda: setups.stages(setups.cluster(128, 4), 6), "6 stages do not share"),
        (lambda: setups.whole(setups.cluster(128), 3), "do not divide the 16 along a side"),
        (lambda: table2.measure(point(table2, stages=16, batch=1000)), "1000 sequences"),
    ],
)
def test_impossible_configurations_are_refused_with_a_reason(wrong: Callable[[], object], says: str) -> None:
    with pytest.raises(BadOption, match=says):
        wrong()


# --- tables and figures


def test_the_fit_uses_one_row_of_table_2_whose_error_is_zero() -> None:
    row = table2.measure(point(table2, stages=4))
    assert row["fitted"]
    assert row["paper"] == 133.7e3
    assert abs(row["error"]) < 0.002


def test_a_computation_on_all_cores_is_predicted_with_the_same_factor() -> None:
    row = table2.measure(point(table2, stages=1))
    assert not row["fitted"]
    assert row["efficiency"] == rows.fits()[1024].efficiency
    assert row["paper"] == 125.7e3
    assert abs(row["error"]) < 0.15


def test_the_mesh_that_was_chosen_stands_beside_others() -> None:
    """The paper does not say its mesh, and the row hangs on that."""
    found = table2.points(read_all(table2.OPTIONS, {"stages": 1}))
    assert [each["split"] for each in found] == [8, 4, 16]
    rows_ = [table2.measure(each) for each in table2.points(read_all(table2.OPTIONS, {"stages": 1, "parts": False}))]
    assert [row["paper"] for row in rows_] == [125.7e3, None, None]
    chosen, less, more = (row["tokens_per_s"] for row in rows_)
    assert less > chosen > more


def test_t5_is_as_fast_under_one_controller_as_under_many() -> None:
    both = [table1.measure(point(table1, model="T5-Base", system=system)) for system in ("jax", "pathways")]
    assert both[1]["tokens_per_s"] == pytest.approx(both[0]["tokens_per_s"], rel=0.01)
    assert both[0]["parameters"] == MODELS["T5-Base"].parameters


def test_points_are_rows_of_the_paper() -> None:
    asked = [(one["stages"], one["microbatches"], one["split"]) for one in table2.points(read_all(table2.OPTIONS, {}))]
    assert asked == [(1, 0, 8), (1, 0, 4), (1, 0, 16), (4, 16, 1), (16, 64, 1)]
    several = table2.points(
        read_all(table2.OPTIONS, {"stages": (1, 8), "schedule": ("gpipe", "1f1b"), "split": (4, 8)})
    )
    assert [(one["stages"], one["schedule"], one["split"]) for one in several] == [
        (1, "-", 4), (1, "-", 8), (8, "gpipe", 1), (8, "1f1b", 1),
    ]  # fmt: skip
    assert [one["cores"] for one in fig12.points(read_all(fig12.OPTIONS, {}))] == [1024, 1024, 2048, 2048]


@pytest.mark.parametrize(
    ("asked", "batch", "microbatches"),
    [
        ({"stages": 16}, 2048, 64),
        ({"stages": 16, "cores": 512}, 8192, 64),
        ({"stages": 16, "cores": 512, "microbatches": 32}, 4096, 32),
        ({"stages": 4, "batch": 1024}, 1024, 8),
        ({"stages": 1, "cores": 512}, 8192, 0),
    ],
)
def test_the_batch_follows_stages_microbatches_and_cores(
    asked: dict[str, object], batch: int, microbatches: int
) -> None:
    """Four sequences a micro-batch and core of a stage, four micro-batches a stage: as in the paper."""
    for module in (table2, fig10)[: 1 + (asked["stages"] != 1)]:
        found = module.points(read_all(module.OPTIONS, asked))[0]
        assert (found["batch"], found["microbatches"]) == (batch, microbatches)


def test_less_than_four_sequences_a_core_is_a_warning() -> None:
    same = {"cores": 512, "stages": 16, "microbatches": 64}
    frame = pd.DataFrame([{**same, "batch": 2048}, {**same, "batch": 8192}])
    (warning,) = rows.sparse(frame)
    assert "WARNING: S=16, M=64 on 512 cores has 1 sequences" in warning
    assert "`--batch 8192`" in warning


@pytest.mark.parametrize(
    ("length", "schedule", "kept"), [(512, "gpipe", True), (1024, "gpipe", False), (1024, "1f1b", True)]
)
def test_logits_are_kept_where_those_of_all_waiting_microbatches_fit(length: int, schedule: str, kept: bool) -> None:
    waiting = jobs.waiting_last(schedule, 16, 64)
    assert waiting == {"gpipe": 64, "1f1b": 1}[schedule]
    last = jobs.stages("LM-3B", 8, 16, 32, length, waiting)[-1]
    assert last.forward.key.endswith(jobs.KEPT) == last.backward.key.endswith(jobs.KEPT) == kept
    assert not last.update.key.endswith(jobs.KEPT)


def drawn(module: Any, rows_of: list[dict[str, Any]]) -> str:
    frame, extra = split(rows_of, getattr(module, "EXTRA", ()))
    axes = Figure(figsize=module.SIZE).subplots(*getattr(module, "PANELS", (1, 1)))
    module.draw(frame, axes, **extra)
    return str(module.findings(frame))


def test_figure_10_shows_the_cost_of_islands(stated: None) -> None:
    both = fig10.points(read_all(fig10.OPTIONS, {"stages": 4, "batch": 256, "length": 128}))
    text = drawn(fig10, [one | fig10.measure(one) for one in both])
    assert text.startswith("- Costs of computations: experiments/data")
    assert "k tokens/s on 4 islands" in text
    assert "what transfers add" in text


def test_figure_12_shows_the_cost_of_two_islands(stated: None) -> None:
    asked = {"model": "LM-3B", "cores": 64, "segments": 2, "batch": 64, "length": 128}
    both = fig12.points(read_all(fig12.OPTIONS, asked))
    text = drawn(fig12, [one | fig12.measure(one) for one in both])
    assert "on 2 islands of 32 cores" in text
    assert "26 GB cross" in text


def test_figure_12_compares_only_rows_whose_matrices_are_split_alike(stated: None) -> None:
    by_default = fig12.points(read_all(fig12.OPTIONS, {}))
    for model in fig12.CORES:
        assert len({one["split"] for one in by_default if one["model"] == model}) == 1
    asked = {"model": "LM-3B", "cores": 64, "segments": 2, "batch": 64, "length": 128, "split": (4, 8)}
    frame, _ = split([one | fig12.measure(one) for one in fig12.points(read_all(fig12.OPTIONS, asked))], ())
    assert [(one.split, other.split) for one, other in fig12.pairs(frame)] == [(4, 4), (8, 8)]


def test_the_tables_are_drawn_with_their_findings(stated: None) -> None:
    all_of_2 = table2.points(read_all(table2.OPTIONS, {"stages": (1, 4), "batch": 256, "length": 128}))
    text = drawn(table2, [one | table2.measure(one) for one in all_of_2])
    assert "SPMD, 8 cores a matrix" in text
    all_of_1 = table1.points(read_all(table1.OPTIONS, {"model": "T5-Base", "parts": False}))
    assert "Pathways / JAX = " in drawn(table1, [one | table1.measure(one) for one in all_of_1])
