"""Fairness over time and the distribution of latency, against what they are by definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core.protocol import Blame
from core.record import Trace as CoreTrace
from seaway.trace import Trace
from seaway.trace.fairness import jain

from . import traces


def shared(turns: list[int], weights: dict[str, int], idle: set[int] = frozenset()) -> Trace:  # type: ignore[assignment]
    """One device. Clients by number take turns of 100 ns each; all but those in `idle` always have a run under way."""
    core = CoreTrace()
    core.place(0, 0, ((0, 1),))
    for number, (name, weight) in enumerate(weights.items(), 1):
        core.client(number, name, weight, 0, 0)
        if number not in idle:
            core.submitted(1000 + number, number, 0, "long", 0)
    for seq, client in enumerate(turns):
        core.submitted(seq, client, seq, "p", 100 * seq)
        core.gang(seq, seq, "s", 0, 0, started=100 * seq, ended=100 * seq + 100)
        core.ended(seq, 100 * seq + 100)
    for number in range(1, len(weights) + 1):
        if number not in idle:
            core.ended(1000 + number, 100 * len(turns))
    return Trace(core)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_jains_index_is_1_for_equal_shares_and_one_nth_for_one_that_has_all(shares: list[float]) -> None:
    assume(sum(shares) > 1e-3)
    values = np.array(shares)
    assert 1 / len(values) - 1e-9 <= jain(values) <= 1 + 1e-9
    assert jain(3 * values) == pytest.approx(jain(values))  # of shares, not of amounts
    assert jain(np.ones(len(values))) == pytest.approx(1)
    assert jain(np.eye(len(values))[0]) == pytest.approx(1 / len(values))


def test_shares_are_fair_if_they_are_as_the_weights_ask() -> None:
    (row,) = shared([1, 2, 2, 2] * 5, {"ann": 1, "bob": 3}).fairness(bins=1).to_dict("records")
    assert (row["clients"], row["jain"], row["max_min"]) == (2, pytest.approx(1), pytest.approx(1))


def test_unfairness_is_told_with_its_size_and_the_client_that_has_least() -> None:
    table = shared([1, 1, 1, 2] * 5 + [1, 2] * 10, {"ann": 1, "bob": 1}).fairness(bins=[0, "2us", "4us"])
    first, second = table.to_dict("records")
    assert first["jain"] == pytest.approx((0.75 + 0.25) ** 2 / (2 * (0.75**2 + 0.25**2)))
    assert first["max_min"] == pytest.approx(1 / 3)
    assert first["worst_client"] == "bob"
    assert second["jain"] == pytest.approx(1)


def test_a_client_that_gets_nothing_though_it_asks_counts_and_one_that_does_not_ask_does_not() -> None:
    weights = {"ann": 1, "bob": 1, "cat": 1}
    (row,) = shared([1, 2] * 10, weights).fairness(bins=1, window=(0, "2us")).to_dict("records")
    assert (row["clients"], row["max_min"], row["worst_client"]) == (3, 0, "cat")
    assert row["jain"] == pytest.approx(2 / 3)
    (row,) = shared([1, 2] * 10, weights, idle={3}).fairness(bins=1, window=(0, "2us")).to_dict("records")
    assert (row["clients"], row["max_min"], row["jain"]) == (2, pytest.approx(1), pytest.approx(1))


def test_there_is_no_fairness_where_fewer_than_two_compete() -> None:
    (row,) = shared([1] * 5, {"ann": 1}).fairness(bins=1).to_dict("records")
    assert row["clients"] == 1
    assert np.isnan(row["jain"])
    assert np.isnan(row["max_min"])
    assert row["worst_client"] == ""


def test_stride_is_fair_over_time_and_the_picture_names_the_window() -> None:
    trace = Trace(traces.shared(gangs=600))
    table = trace.fairness(bins=8)
    assert (table["clients"] == 4).all()
    assert (table["jain"] > 0.98).all()
    (axes,) = trace.plot_fairness(bins=8).axes
    low, high = trace.contended
    drawn = [np.asarray(line.get_ydata()).tolist() for line in axes.lines]
    assert drawn == [table["jain"].tolist(), table["max_min"].tolist()]
    assert " to " in axes.get_title(loc="left")
    assert axes.get_xlim()[1] - axes.get_xlim()[0] == pytest.approx((high - low) / 1_000_000, rel=1e-3)


def latencies() -> Trace:
    core = CoreTrace()
    core.place(0, 0, ((0, 1),))
    core.client(1, "ann", 1, 0, 0)
    core.client(2, "bob", 1, 0, 0)
    for run, (client, begun, ended) in enumerate(
        [(1, 0, 1_000), (1, 0, 3_000), (1, 0, 3_000), (1, 0, 9_000), (2, 500, 2_500)]
    ):
        core.submitted(run, client, run, "p", begun)
        core.gang(run, run, "s", 0, 0, started=begun, ended=ended)
        core.ended(run, ended)
    core.submitted(10, 1, 10, "p", 0)
    core.ended(10, 50_000, Blame("host-lost", "gone", "p", "s", 0))
    core.submitted(11, 1, 11, "p", 0)  # not over
    return Trace(core)


def test_the_distribution_of_latency_is_of_runs_that_succeeded_a_curve_for_each_client() -> None:
    table = latencies().latency_cdf()
    ann = table[table["client"] == "ann"]
    assert ann["latency_us"].tolist() == [1, 3, 3, 9]
    assert ann["fraction"].tolist() == [0.25, 0.75, 0.75, 1]
    assert table[table["client"] == "bob"][["latency_us", "fraction"]].to_numpy().tolist() == [[2, 1]]


def test_the_distribution_of_a_window_or_of_programs_is_asked_for() -> None:
    trace = latencies()
    assert trace.latency_cdf("program")["fraction"].tolist() == [0.2, 0.4, 0.8, 0.8, 1]
    assert trace.latency_cdf(window=(0, "2us"))["latency_us"].tolist() == [1]
    with pytest.raises(ValueError, match="client or program"):
        trace.latency_cdf("host")  # type: ignore[arg-type]


def test_the_percentiles_of_the_clients_table_lie_on_the_curve() -> None:
    trace = Trace(traces.shared(gangs=400))
    curve = trace.latency_cdf()
    for row in trace.clients().to_dict("records"):
        mine = curve[curve["client"] == row["client"]]
        assert len(mine) == row["runs"]
        assert np.percentile(mine["latency_us"], 99) == pytest.approx(row["latency_p99_us"])
        assert mine["fraction"].iloc[-1] == 1


def test_the_picture_has_a_curve_for_each_client() -> None:
    (axes,) = latencies().plot_latency_cdf().axes
    curves = [np.asarray(line.get_ydata()) for line in axes.lines if line.get_drawstyle() == "steps-post"]
    assert [curve.tolist() for curve in curves] == [[0, 0.25, 0.75, 0.75, 1], [0, 1]]
    assert axes.get_title(loc="left") == "Latency of 5 runs"
