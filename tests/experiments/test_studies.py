"""The fidelity table, and the benchmark of the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments import fidelity
from experiments.bench.simulator import simulator
from experiments.bench.simulator.simulator import COMPUTE, JITTER, LATENCY, NIC, PCIE, Counted, Naive
from experiments.fig5 import crossing
from experiments.framework import run

from . import paper_table

PAGE = Path(__file__).parents[2] / "docs" / "figures.md"


def frame(name: str, **options: object) -> Any:
    return run(name, options, jobs=1, progress=False).frame


# --- fidelity -----------------------------------------------------------------------------------------------


def test_the_table_of_printed_numbers_marks_the_fitted_ones(tmp_path: Path) -> None:
    sixth = frame("fig6", cluster="B", hosts=(8, 16), curve=0)
    fifth = frame("fig5", system=("pathways", "jax"), hosts=(32, 128))
    found = fidelity.table({"fig5": fifth, "fig6": sixth})
    rows = {row["what"]: row for _, row in found.iterrows()}
    printed = rows["cluster B, hosts 16, cores 128"]
    assert (printed["paper"], bool(printed["fitted"])) == (2.3, True)
    assert printed["predicted"] == pytest.approx(sixth["smallest_ms"].iloc[1])
    assert bool(rows["cores up to which C = JAX-O"]["fitted"])
    assert not any("hosts 8" in what for what in rows)  # the paper prints no number for it
    text = fidelity.text(found)
    assert "| fig6 | cluster B, hosts 16, cores 128 | 2.3 | 2.3" in text
    fidelity.write(found, tmp_path)
    assert pd.read_parquet(tmp_path / "fidelity.parquet").equals(found)


def test_numbers_that_rest_on_assumptions_are_listed_and_not_counted() -> None:
    """Table 1 claims that two systems are equal. How fast either is does not follow from the printed numbers."""
    same = {
        "cores": 32, "batch": 128, "length": 512, "targets": 128, "split": 1, "efficiency": 1.0, "profile": "paper",
        "model": "T5-Base", "paper": 618e3, "error": 0.5,
    }  # fmt: skip
    rows = [same | {"system": "jax", "tokens_per_s": 100e3}, same | {"system": "pathways", "tokens_per_s": 99e3}]
    text = fidelity.text(fidelity.table({"table1": pd.DataFrame(rows)}))
    assert text.count("| rests on assumptions |") == 2
    assert "| table1 | T5-Base, cores 32: Pathways / JAX | 1 | 0.99 | -1.0% |" in text
    assert "2 rest on what the paper does not print." in text


def test_numbers_that_could_not_be_wrong_count_apart() -> None:
    """Devices that always have work are always busy, whatever else the model says."""
    rows = [("fig11", 1.0, 0.0, False), ("fig11", 0.5, 0.3, False), ("table2", 125.7e3, -0.026, False),
            ("table2", 133.7e3, 0.0, True), ("fig10", 1.0, -0.006, False)]  # fmt: skip
    found = pd.DataFrame(
        [{"experiment": name, "what": name, "paper": paper, "predicted": paper * (1 + error), "error": error,
          "fitted": fitted} for name, paper, error, fitted in rows]
    )  # fmt: skip
    text = fidelity.text(found)
    assert "3 of 5 numbers are predicted" in text
    assert "Their median error is 2.6%, the largest 30.0%." in text
    assert "1 could not be wrong, and count apart (fig11: devices that always have work" in text


QUICK: dict[str, dict[str, object]] = {
    "fig5": {"system": ("pathways", "jax"), "hosts": (32, 64, 96)}, "fig6": {"hosts": (16, 512), "curve": 0},
    "fig11": {"clients": 8}, "table1": {"model": "T5-Base", "parts": False}, "table2": {"stages": 1, "parts": False},
}  # fmt: skip


def test_the_summary_equals_what_is_computed() -> None:
    """Those of its lines in docs/figures.md that are quick to compute."""
    found = paper_table.lines(fidelity.table({name: frame(name, **asked) for name, asked in QUICK.items()}))
    assert len(found) == 7
    kept = PAGE.read_text().splitlines()
    assert [line for line in found if line not in kept] == []


@pytest.mark.full
def test_the_whole_summary_equals_what_is_computed() -> None:
    assert paper_table.text(fidelity.run(progress=False)) in PAGE.read_text()


def test_crossing_points_are_interpolated_between_points() -> None:
    assert crossing([1, 4, 16], [4.0, 2.0, 0.5], 1.0) == pytest.approx(8.0)
    assert crossing([1, 4, 16], [0.9, 2.0, 0.5], 1.0) == pytest.approx(8.0)  # up to there, wherever it begins
    assert crossing([1, 4], [3.0, 2.0], 1.0) is None
    assert crossing([1, 4], [0.5, 0.2], 1.0) is None


# --- the benchmark ------------------------------------------------------------------------------------------


def test_the_naive_model_counts_every_message() -> None:
    env = Counted(initial_time=0)
    ends = Naive(16, env=env).run(20)
    assert len(ends) == 20
    assert env.events / 20 == pytest.approx(19 * 16, rel=0.1)
    assert np.diff(ends).min() >= COMPUTE - LATENCY - JITTER
    first = ends[0] - COMPUTE - 2 * LATENCY - PCIE
    assert 2 * NIC <= first <= 2 * JITTER + 32 * NIC + PCIE


def test_the_benchmark_leaves_start_up_out() -> None:
    assert simulator.ours(16, 30)["spent"] > 0
    assert simulator.naive(16, 5)["events"] > 200
