"""Requests as values: drawn from a seed, read from files, changed, saved, and played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seaway as sw
from seaway.workload import Arrival, Arrivals

MS, S = 1_000_000, 1_000_000_000
ZERO = np.float32(0)

arrivals = st.lists(
    st.builds(
        Arrival,
        at=st.integers(0, 10**15),
        client=st.text("abc1.", min_size=1, max_size=3),
        name=st.sampled_from(["request", "NA", "1e3", "a,b", '"']),
        input=st.integers(0, 10**6),
        output=st.integers(0, 10**6),
    ),
    max_size=20,
).map(Arrivals)


# --- Poisson ----------------------------------------------------------------------------------------------------


def test_the_same_seed_draws_the_same_arrivals_and_another_seed_draws_others() -> None:
    def drawn(seed: int) -> Arrivals:
        return sw.workload.poisson(1_000, "1s", seed=seed, clients={"ann": 3, "bob": 1}, names=["x", "y"])

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_poisson_arrivals_have_the_asked_rate_exponential_gaps_and_the_asked_shares() -> None:
    load = sw.workload.poisson(2_000, "20s", seed=5, clients={"ann": 3, "bob": 1})
    times = np.array([each.at for each in load])
    gaps = np.diff(times) / 1e9
    count = len(load)
    assert abs(count - 40_000) < 5 * 40_000**0.5  # five standard deviations
    assert gaps.mean() == pytest.approx(1 / 2_000, rel=0.05)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)  # exponential
    assert np.mean(gaps > 1 / 2_000) == pytest.approx(np.exp(-1), rel=0.05)
    mine = sum(each.client == "ann" for each in load)
    assert abs(mine - 0.75 * count) < 5 * (count * 0.75 * 0.25) ** 0.5
    assert load.span < 20 * S


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rate": 0}, "arrivals a second, more than 0"),
        ({"rate": float("nan")}, "arrivals a second, more than 0"),
        ({"rate": 1e9, "time": "1000s"}, "1,000,000,000,000 arrivals"),
        ({"time": "10"}, "has no unit"),
        ({"clients": {}}, "a name, several, or a dict of shares"),
        ({"clients": {"ann": 0}}, "shares are numbers above 0"),
    ],
)
def test_a_poisson_process_that_cannot_be_says_what_is_wrong(options: Any, says: str) -> None:
    with pytest.raises((ValueError, sw.errors.Impossible), match=says):
        sw.workload.poisson(**{"rate": 1, "time": "1s", **options})


# --- as values --------------------------------------------------------------------------------------------------


@given(arrivals, arrivals)
def test_two_workloads_together_have_all_arrivals_of_both_in_order(one: Arrivals, two: Arrivals) -> None:
    both = one + two
    assert sorted(both, key=repr) == sorted([*one, *two], key=repr)
    assert [each.at for each in both] == sorted(each.at for each in both)


def test_a_workload_is_scaled_in_time_and_cut() -> None:
    load = Arrivals([Arrival(10 * S, input=8), Arrival(20 * S, output=6)])
    assert list(load.scaled(time=1e-3)) == [Arrival(10 * MS, input=8), Arrival(20 * MS, output=6)]
    assert list(load.between("15s", "25s")) == [Arrival(5 * S, output=6)]
    assert list(load[:1]) == [load[0]]
    with pytest.raises(ValueError, match="a number above 0"):
        load.scaled(time=0)


def test_an_arrival_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="not negative"):
        Arrivals([Arrival(-1)])
    with pytest.raises(ValueError, match="not negative"):
        Arrivals([Arrival(1, output=-1)])
    with pytest.raises(ValueError, match="a client and a name"):
        Arrivals([Arrival(1, client="")])


# --- files ------------------------------------------------------------------------------------------------------


def test_what_a_file_says_of_its_pandas_columns_need_not_be_true(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"at_s": [1.0, 2.0]}).replace_schema_metadata({"pandas": '{"columns": [{"name": "at_s"}]}'})
    pq.write_table(table, tmp_path / "load.parquet")
    assert [each.at for each in sw.workload.load(tmp_path / "load.parquet")] == [1_000_000_000, 2_000_000_000]


@given(arrivals, st.sampled_from([".csv", ".parquet"]))
def test_what_is_saved_is_loaded_exactly(tmp_path_factory: pytest.TempPathFactory, load: Arrivals, kind: str) -> None:
    file = load.save(tmp_path_factory.mktemp("load") / f"arrivals{kind}")
    assert sw.workload.load(file) == load


def test_a_file_needs_only_times_and_their_unit_is_in_the_columns_name(tmp_path: Path) -> None:
    file = tmp_path / "arrivals.csv"
    file.write_text("at_s,client\n0.000001, ann\n2.5,\n")
    assert list(sw.workload.load(file)) == [Arrival(1_000, "ann"), Arrival(2_500 * MS, "load")]
    file.write_text("at_ms,output,input,name\n1.5,20,8,chat\n")
    assert list(sw.workload.load(file)) == [Arrival(1_500_000, "load", "chat", 8, 20)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("client\nann\n", "no column says when each arrives; name it at_s"),
        ("at_s,cleint\n1,ann\n", r"no column 'cleint' is known \(did you mean 'client'\?\)"),
        ("at_s,at_ms\n1,1000\n", "columns at_s and at_ms say the same"),
        ("at_s\n1\n-2\n", "row 2: at_s is '-2'; a number, not negative"),
        ("at_s\nsoon\n", "row 1: at_s is 'soon'"),
        ("at_s\nnan\n", "row 1: at_s is 'nan'"),
        ("at_s,input\n1,1.5\n", "row 1: input is '1.5'; a whole number"),
    ],
)
def test_a_file_that_cannot_be_read_says_which_column_or_row_and_why(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "arrivals.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=says):
        sw.workload.load(file)


def test_a_file_of_another_kind_is_refused_by_its_ending(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ends with \.csv or \.parquet"):
        sw.workload.load(tmp_path / "arrivals.json")


# --- played -----------------------------------------------------------------------------------------------------


step = sw.synthetic("step", devices=8, duration="4ms")
LOADS = {rate: sw.workload.poisson(rate, "2s", seed=3, clients=["ann", "bob"]) for rate in (25, 225)}


def played(load: Arrivals, **options: Any) -> tuple[sw.workload.LoadReport, sw.Session]:
    with sw.simulate("B", hosts=2, devices_per_host=4, profile="seaway", **options) as s:
        report = load.play(lambda arrival: step(ZERO))
    return report, s


def test_each_arrival_is_called_at_its_time_whether_or_not_the_ones_before_are_over() -> None:
    frame = played(LOADS[225])[0].frame()
    assert frame["arrived_us"].tolist() == [each.at / 1_000 for each in LOADS[225]]
    assert (frame["lag_us"] < 100).all()  # of a call's host time there is no more than a few
    assert (frame["latency_us"] >= 4_000).all()
    assert (frame["latency_us"] > 8_000).any()  # it waited for others
    assert (frame["called_us"] + 4_000 <= frame["ended_us"]).all()


def test_latency_under_load_is_that_of_a_queue_with_one_server_and_poisson_arrivals() -> None:
    """M/D/1: the mean wait is rho / (2 (1 - rho)) services. Light load has next to none of it, heavy load several."""
    load = sw.workload.poisson(125, "20s", seed=11)  # rho = 0.5, of a service of 4 ms
    frame = played(load)[0].frame()
    alone = frame["latency_us"].min()
    assert frame["latency_us"].mean() - alone == pytest.approx(0.5 * 4_000, rel=0.15)
    low, high = (played(LOADS[rate])[0].latency() for rate in (25, 225))
    assert (high["latency_p99_us"] > 3 * low["latency_p99_us"]).all()


def test_a_workload_repeats_to_the_nanosecond() -> None:
    assert played(LOADS[225])[0].frame().equals(played(LOADS[225])[0].frame())


def test_clients_have_the_weights_given_and_a_workload_may_be_played_twice_in_a_session() -> None:
    with sw.simulate("B", hosts=2, devices_per_host=4, profile="seaway", policy="stride") as s:
        LOADS[25].play(lambda arrival: step(ZERO), weights={"ann": 3})
        report = LOADS[25].play(lambda arrival: step(ZERO))
    table = s.trace.clients().set_index("client")
    assert table["weight"].to_dict() == {"ann": 3, "bob": 1}
    assert table["runs"].sum() == 2 * len(LOADS[25]) == 2 * len(report.frame())


def test_what_fails_is_counted_and_has_its_cause_and_the_others_their_latency() -> None:
    wide = sw.synthetic("wide", devices=64, duration="1ms")
    with sw.simulate("B", hosts=2, devices_per_host=4) as s:
        kinds = sw.workload.poisson(50, "1s", seed=2, names=["good", "bad"])
        report = kinds.play(lambda arrival: (step if arrival.name == "good" else wide)(ZERO))
    table = report.latency(by="name").set_index("name")
    good, bad = (table.loc[name].to_dict() for name in ("good", "bad"))
    assert good["failed"] == 0
    assert bad["failed"] == bad["arrivals"]
    assert np.isnan(bad["latency_p50_us"])
    assert report.frame().query("not ok")["cause"].str.contains("64 devices").all()
    assert s.closed


def test_a_call_that_returns_nothing_or_a_weight_of_nobody_is_refused() -> None:
    with sw.simulate("B", hosts=2) as s:
        with pytest.raises(TypeError, match="return the arrays that the arrival asks for"):
            sw.workload.poisson(10, "1s").play(lambda arrival: None)
        with pytest.raises(ValueError, match="no arrival is 'cat''s; there are load"):
            sw.workload.poisson(10, "1s").play(lambda arrival: step(ZERO), weights={"cat": 2})
        s.close(abort=True)
    with pytest.raises(sw.errors.NoSession):
        LOADS[25].play(lambda arrival: step(ZERO))


def test_a_window_of_a_report_counts_only_arrivals_of_that_time() -> None:
    report = played(LOADS[225])[0]
    inside = sum(S // 2 <= each.at < S for each in LOADS[225])
    assert report.latency(window=("500ms", "1s"))["arrivals"].sum() == inside
    with pytest.raises(ValueError, match="'client' or 'name'"):
        report.latency(by="nmae")


def test_the_same_arrivals_are_played_on_real_connections_and_their_latency_is_measured() -> None:
    load = sw.workload.poisson(60, "1s", seed=4, clients=["ann", "bob"])
    with sw.local(hosts=2, devices_per_host=4, platform="timed") as s:
        with s.client("first"):
            step(ZERO).block_until_ready()  # it is compiled, and hosts are connected
        frame = load.play(lambda arrival: step(ZERO)).frame()
    assert len(frame) == len(load)
    assert frame["ok"].all()
    assert frame["arrived_us"].tolist() == [each.at / 1_000 for each in load]
    assert (frame["lag_us"] >= 0).all()
    assert (frame["latency_us"] >= 4_000).all()


# --- as a textbook says -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_without_host_costs_one_server_is_the_queue_of_the_textbook(seed: int) -> None:
    """Poisson arrivals, one server, a constant time: by Lindley's recursion, each is over so many nanoseconds after its
    arrival; what comes on top is four messages of a nanosecond: call, order, report, answer."""
    takes = 4 * MS
    step = sw.synthetic("step", devices=2, duration="4ms")
    load = sw.workload.poisson(200, "5s", seed=seed)
    with sw.simulate("B", hosts=1, profile="ideal"):
        frame = load.play(lambda arrival: step(ZERO)).frame()
    free, want = 0, []
    for arrival in load:
        free = max(free, arrival.at) + takes
        want.append(free - arrival.at)
    extra = (frame["latency_us"] * 1000).round().astype(int) - want
    assert set(extra) <= {3, 4}
    assert (frame["lag_us"] == 0).all()


def test_without_host_costs_the_mean_wait_is_that_of_an_m_d_1_queue() -> None:
    """rho * d / (2 * (1 - rho)), within three standard errors of independent draws."""
    takes, rate = 4 * MS, 175
    step = sw.synthetic("step", devices=2, duration="4ms")
    waits = []
    for seed in range(6):
        load = sw.workload.poisson(rate, "4s", seed=100 + seed)
        with sw.simulate("B", hosts=1, profile="ideal"):
            frame = load.play(lambda arrival: step(ZERO)).frame()
        waits.append(frame["latency_us"].mean() * 1000 - takes)
    rho = rate * takes / S
    error = np.std(waits, ddof=1) / len(waits) ** 0.5
    assert error < 0.2 * takes
    assert abs(np.mean(waits) - rho * takes / (2 * (1 - rho))) < 3 * error


@pytest.mark.parametrize(("window", "between"), [(8, 0), (1, 2)])
@pytest.mark.parametrize("fidelity", ["cohort", "exact"])
def test_without_host_costs_a_chain_takes_the_sum_of_its_gangs(fidelity: Any, window: int, between: int) -> None:
    """Besides: two nanoseconds, in which the host takes the order and the controller the report; and as many between
    one gang and the next if the window is one gang."""
    step = sw.synthetic("step", devices=8, duration="1ms")

    @sw.program
    def chain(x: Any) -> Any:
        for _ in range(10):
            x = step(x)
        return x

    with sw.simulate("B", hosts=1, profile="ideal", fidelity=fidelity, config={"window": window}) as s:
        chain(ZERO).block_until_ready()
    assert set((s.trace.gangs()["started_us"].diff().dropna() * 1000).round()) == {MS + between}
    assert round(s.trace.runs()["latency_us"].iloc[0] * 1000) == 10 * MS + 9 * between + 2
