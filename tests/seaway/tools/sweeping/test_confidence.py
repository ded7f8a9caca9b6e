"""Means over seeds, how sure they are, and how much surer differences between policies are on the same seeds."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import image

from seaway.tools.sweeping import picture, summarised, text
from seaway.trace import style

# Seeds differ by hundreds, and policies by ten on each.
TABLE = pd.DataFrame(
    [{"load": load, "policy": policy, "seed": seed, "jct": load * 1000 + seed * 100 + more + (seed if more else 0)}
     for load in (0.5, 1.0) for policy, more in (("fifo", 0), ("mine", -10)) for seed in range(4)]
)  # fmt: skip


def row(summary: pd.DataFrame, **chosen: Any) -> pd.Series[Any]:
    for name, value in chosen.items():
        summary = summary[summary[name] == value]
    assert len(summary) == 1
    return summary.iloc[0]


def test_a_mean_has_the_interval_of_students_t() -> None:
    found = row(summarised(TABLE, ["jct"], "fifo"), load=0.5, policy="fifo")
    assert (found["seeds"], found["mean"]) == (4, 650)
    assert found["ci95"] == pytest.approx(3.182446 * np.std([0, 100, 200, 300], ddof=1) / 2, rel=1e-6)  # from a book
    assert np.isnan(found["difference"])


def test_differences_are_seed_by_seed() -> None:
    found = row(summarised(TABLE, ["jct"], "fifo"), load=1, policy="mine")
    assert found["difference"] == -8.5
    assert found["difference_ci95"] == pytest.approx(3.182446 * np.std([0, 1, 2, 3], ddof=1) / 2, rel=1e-6)
    assert found["difference_ci95"] < found["ci95"] / 90


def test_seeds_that_one_of_two_policies_lacks_count_for_no_difference() -> None:
    less = TABLE.drop(index=0)  # seed 0 of fifo
    found = row(summarised(less, ["jct"], "fifo"), load=0.5, policy="mine")
    assert (found["seeds"], found["difference"]) == (4, -8)
    none = less[(less["policy"] != "fifo") | (less["load"] != 0.5)]
    assert np.isnan(row(summarised(none, ["jct"], "fifo"), load=0.5, policy="mine")["difference"])


def test_one_seed_has_no_interval_and_numbers_that_are_missing_are_no_seeds() -> None:
    some = TABLE.assign(jct=TABLE["jct"].where(TABLE["seed"] < 1))
    found = row(summarised(some, ["jct"], "fifo"), load=1, policy="fifo")
    assert (found["seeds"], found["mean"]) == (1, 1000)
    assert np.isnan(found["ci95"])
    assert text(summarised(some, ["jct"], "fifo"), "fifo").splitlines()[2].split() == ["0.5", "fifo", "1", "500"]


def test_the_text_has_as_many_digits_as_are_known() -> None:
    assert text(summarised(TABLE, ["jct"], "fifo"), "fifo").splitlines() == [
        "jct",
        " load policy  seeds        mean minus fifo",
        "  0.5   fifo      4   650 ± 205",
        "  0.5   mine      4   642 ± 207 -8.5 ± 2.1",
        "  1.0   fifo      4 1,150 ± 205",
        "  1.0   mine      4 1,142 ± 207 -8.5 ± 2.1",
    ]


def test_the_picture_has_a_panel_a_number_and_a_line_a_policy() -> None:
    table = TABLE.assign(busy=0.5, cuts=1)
    figure = picture(summarised(table, ["jct", "busy", "cuts"], "fifo"), "load")
    seen = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in seen] == ["jct", "busy", "cuts"]
    assert [entry.get_text() for entry in figure.legends[0].get_texts()] == ["fifo", "mine"]
    assert np.asarray(seen[0].lines[0].get_xdata()).tolist() == [0.5, 1]
    assert np.ptp(image.imread(BytesIO(style.png(figure)))) > 0.8
