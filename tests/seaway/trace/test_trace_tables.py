"""The tables of a trace: their contents, agreement with a loop over each nanosecond, and their small cost."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model.topology import PRESETS, Cluster, small
from core.protocol.messages import Blame
from core.record.tables import Lists, Table
from core.record.trace import ENDED, PLACEHOLDER
from core.record.trace import Trace as CoreTrace
from seaway import machines
from seaway.trace import Trace, place_groups
from tests.core.build import chain
from tests.world.timing import MS
from tests.world.world import World

from . import traces

# --- utilisation, against a loop over every nanosecond ----------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 9))
@settings(max_examples=15)
def test_utilization_agrees_with_a_loop_over_every_nanosecond(seed: int, bins: int) -> None:
    core, cluster, truth = traces.drawn(seed)
    trace = Trace(core, cluster)
    window = ("7ns", "107ns")
    keys: dict[str, Callable[[int, str], object]] = {
        "device": lambda device, whose: device,
        "host": lambda device, whose: cluster.host_of(device),
        "island": lambda device, whose: cluster.island_of_device(device).name,
        "client": lambda device, whose: whose,
        "total": lambda device, whose: "all",
    }
    known = {what for _, _, _, what in truth} - {"busy"}
    for by, key in keys.items():
        frame = trace.utilization(by, bins, window)  # type: ignore[arg-type]
        for row in frame.to_dict("records"):
            low, width = row["time_us"] * 1_000, row["bin_us"] * 1_000
            mine = [
                what for device, at, whose, what in truth
                if low <= at < low + width - 1e-6 and key(device, whose) == row.get(by, "all")
            ]  # fmt: skip
            devices = row.get("devices", 1)
            assert row["busy_fraction"] == pytest.approx(mine.count("busy") / width / devices), (by, row)
            for wait in known:
                assert row[f"{wait}_fraction"] == pytest.approx(mine.count(wait) / width / devices), (by, row)


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_intervals_add_up_to_utilization(seed: int) -> None:
    core, cluster, truth = traces.drawn(seed)
    trace = Trace(core, cluster)
    frame = trace.intervals(window=(0, "10us"))
    busy = (frame["ended_us"] - frame["started_us"]).groupby(frame["device"]).sum()
    for row in trace.utilization("device", 1, (0, "10us")).to_dict("records"):
        assert row["busy_fraction"] * 10 == pytest.approx(busy.get(row["device"], 0))
    gangs = trace.gangs()
    busy_in_all = sum(what == "busy" for _, _, _, what in truth)
    assert gangs["device_us"].sum() * 1_000 == pytest.approx(busy_in_all)
    assert trace.clients()["device_us"].sum() * 1_000 == pytest.approx(
        sum(what == "busy" and whose != "?" for _, _, whose, what in truth)
    )
    skew = trace.utilization("total", 1, (0, "10us"))["skew_fraction"].iloc[0]
    if frame["skew_us"].notna().any():
        assert skew * 10 * cluster.devices == pytest.approx(frame["skew_us"].sum())


def test_bins_may_be_given_by_number_by_width_or_by_edges() -> None:
    trace = Trace(traces.shared(gangs=20))
    assert len(trace.utilization(bins=7)) == 7
    assert trace.utilization(bins="1ms", window=(0, "2.5ms"))["bin_us"].tolist() == [1000, 1000, 500]
    assert trace.utilization(bins=[0, "1ms", "3ms"])["bin_us"].tolist() == [1000, 2000]
    assert trace.utilization(bins=pd.Timedelta("1ms"), window=(0, "1ms"))["time_us"].tolist() == [0]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"by": "clients"}, "client"),
        ({"bins": 0}, "at least one"),
        ({"bins": ["5ns"]}, "at least two"),
        ({"bins": "1 parsec"}, "unknown unit, 'parsec'"),
        ({"bins": "soon"}, "330us"),
        ({"bins": "1ns", "window": (0, "1s")}, "wider"),
        ({"window": 5}, "pair"),
        ({"window": ("2ms", "1ms")}, "empty"),
        ({"devices": [99_999]}, "no device 99999; there is: 64 devices"),
        ({"devices": []}, "asks for none"),
    ],
)
def test_an_error_names_the_argument_and_what_to_write(wrong: dict[str, object], says: str) -> None:
    trace = Trace(traces.shared(gangs=3))
    with pytest.raises(ValueError, match=says):
        trace.utilization(**wrong)  # type: ignore[arg-type]


# --- tables -----------------------------------------------------------------------------------------------


def test_clients_got_the_shares_of_their_weights() -> None:
    table = Trace(traces.shared(gangs=150)).clients()
    assert table["client"].tolist() == ["ann", "bob", "cat", "dan"]
    assert table["asked_share"].tolist() == pytest.approx([1 / 15, 2 / 15, 4 / 15, 8 / 15])
    assert table["got_share"].tolist() == pytest.approx(table["asked_share"].tolist(), abs=0.01)
    assert table["runs"].sum() == 150
    assert (table["latency_p50_us"] <= table["latency_p99_us"]).all()
    assert table["device_us"].sum() == pytest.approx(150 * 330 * 64)


def test_a_window_cuts_device_time_and_counts_the_runs_that_ended_in_it() -> None:
    trace = Trace(traces.shared(gangs=20, late=0))
    gangs = trace.gangs()
    middle = gangs["started_us"][10] + 165  # half of the eleventh
    table = trace.clients(window=(0, f"{middle}us"))
    assert table["device_us"].sum() == pytest.approx(10.5 * 330 * 64)
    assert table["runs"].sum() == (trace.runs()["ended_us"] < middle).sum()
    assert len(trace.gangs(window=(0, f"{middle}us"))) == 11


def test_shares_are_compared_while_all_clients_compete() -> None:
    """Both have the same work. b has three times the weight, so b is done first, and then a has all."""
    core = CoreTrace()
    core.place(0, 0, ((0, 2),))
    for number, (name, weight) in enumerate({"a": 1, "b": 3, "idle": 5}.items(), 1):
        core.client(number, name, weight, 0, 0)
    for seq, client in enumerate([2, 1, 2, 2, 2, 1, 1, 1]):
        core.submitted(seq, client, seq, "p", client)
        core.gang(seq, seq, "s", 0, 0, started=100 * seq + 10, ended=100 * seq + 110)
        core.ended(seq, 100 * seq + 110)
    trace = Trace(core)
    assert trace.contended == (10, 510)
    assert trace.clients(window=trace.span)["got_share"].tolist() == [0.5, 0.5, 0]
    assert trace.clients(window=trace.contended)["got_share"].tolist() == [0.2, 0.8, 0]
    table = trace.clients()
    assert table["got_share"].tolist() == [0.2, 0.8, 0]  # as in the summary, without being asked
    assert table["device_us"].tolist() == trace.clients(window=trace.span)["device_us"].tolist()
    assert table["runs"].tolist() == [4, 4, 0]  # all else is of the whole trace
    assert "got: of the 500 ns in which all of them had work" in trace.summary()
    (axes,) = trace.plot_shares().axes
    assert axes.get_title(loc="left") == "Shares in 500 ns of 800 ns"
    core.submitted(9, 3, 9, "p", 900)
    core.gang(9, 9, "s", 0, 0, started=900, ended=910)
    assert trace.contended == trace.span  # never all at once


def test_a_run_says_how_long_it_took_and_why_it_failed() -> None:
    core = traces.shared(gangs=3)
    core.submitted(99, 1, 99, "broken", 5_000)
    core.ended(99, 9_000, Blame("host-lost", "no sign of life", "broken", "back", 3))
    core.submitted(100, 1, 100, "open", 6_000)
    trace = Trace(core)
    good, *_, failed, open_ = trace.runs().to_dict("records")
    assert good["ok"]
    assert good["gangs"] == 1
    assert good["device_us"] == 330 * 64
    assert good["latency_us"] == good["ended_us"] - good["submitted_us"]
    assert [failed[name] for name in ("ok", "code", "cause", "node", "host")] == [
        False, "host-lost", "no sign of life", "back", 3,
    ]  # fmt: skip
    assert failed["latency_us"] == 4
    assert failed["gangs"] == 0
    assert not open_["ok"]
    assert np.isnan(open_["ended_us"])
    assert np.isnan(open_["latency_us"])
    assert trace.clients()["failed_runs"].tolist() == [1, 0, 0, 0]
    assert trace.summary().startswith("Trace of 4 clients, 3 runs (1 more failed, 1 more under way), 3 gangs on ")


def test_transfers_have_ends_and_rates() -> None:
    core, cluster = traces.pipeline(microbatches=2, steps=1)
    core.transfer(999, -1, "fetch", 0, -1, nbytes=100, entered=10, ended=2_010, flags=ENDED)
    table = Trace(core, cluster).transfers()
    first, last = table.iloc[0], table.iloc[-1]
    assert (first["source"], first["target"], first["client"]) == ("0-31", "32-63", "trainer")
    assert first["gigabytes_per_s"] == pytest.approx((64 << 20) / 150e-6 / 1e9)
    assert (last["target"], last["inferred"]) == ("client", "ended")
    assert np.isnan(last["gigabytes_per_s"])  # its beginning is unknown


def test_skew_is_waiting_for_peers_and_does_not_count_as_busy() -> None:
    """Host 1 is 40 late; then inputs arrive 60 later."""
    core = CoreTrace()
    core.place(0, 0, ((0, 4),), devices_per_host=2)
    core.gang(1, -1, "a", 0, 0, entered=0)
    core.hosts(1, [100, 140])
    core.update(1, started=200, ended=300)
    trace = Trace(core)
    total = trace.utilization("total", window=(0, "400ns")).iloc[0]
    assert [total[f"{name}_fraction"] for name in ("busy", "skew", "input_wait")] == [0.25, 0.05, 0.15]
    assert trace.intervals(window=(0, "400ns"))["skew_us"].tolist() == [0.04, 0.04, 0, 0]
    gang = trace.gangs().iloc[0]
    assert (gang["skew_us"], gang["input_wait_us"], gang["duration_us"]) == (0.04, 0.06, 0.1)


def test_a_gang_that_is_early_starts_when_the_one_before_it_leaves_its_devices() -> None:
    core = CoreTrace()
    core.place(0, 0, ((0, 2),), devices_per_host=1)
    for seq, (enqueued, start) in enumerate([([10, 10], 10), ([20, 130], 130)]):
        core.gang(seq, -1, "a", 0, 0, entered=0)
        core.hosts(seq, enqueued)
        core.update(seq, started=start, ended=start + 100)
    frame = Trace(core).intervals()
    assert frame["arrived_us"].tolist() == [0.01, 0.11, 0.01, 0.13]
    assert frame["skew_us"].tolist() == [0, pytest.approx(0.02), 0, 0]


def test_a_gang_that_seems_to_have_taken_no_time_is_there() -> None:
    """Starts of real gangs are inferred: one that was enqueued by the last host when it had ended takes no time."""
    core = CoreTrace()
    core.place(0, 0, ((0, 2),), devices_per_host=1)
    for seq, (start, ended) in enumerate([(10, 10), (10, 50), (50, 50)]):
        core.gang(seq, -1, "a", 0, 0, started=start, ended=ended)
    trace = Trace(core)
    assert trace.intervals()["ended_us"].tolist() == [0.01, 0.05, 0.05] * 2
    assert trace.intervals(window=("20ns", "40ns"))["ended_us"].tolist() == [0.05] * 2


def test_without_times_of_hosts_skew_is_unknown_and_not_zero() -> None:
    core = CoreTrace()
    core.place(0, 0, ((0, 4),), devices_per_host=2)
    core.gang(1, -1, "a", 0, 0, started=10, ended=20, skew=4, flags=PLACEHOLDER)
    trace = Trace(core)
    assert trace.utilization("total")["busy_fraction"].tolist() == [1.0]
    assert trace.utilization("total")[["skew_fraction", "input_wait_fraction"]].isna().all(axis=None)
    assert trace.intervals()["arrived_us"].isna().all()
    assert trace.gangs()["skew_us"].tolist() == [0.004]  # as its driver recorded it
    assert trace.gangs()["placeholder"].tolist() == [True]


def test_a_missing_arrival_is_an_error() -> None:
    core = CoreTrace()
    core.place(0, 0, ((0, 4),), devices_per_host=2)
    core.gang(1, -1, "a", 0, 0)
    core.hosts(1, [100, 140, 150])
    core.update(1, started=200, ended=300)
    with pytest.raises(ValueError, match="3 arrivals of a gang on 2 hosts"):
        Trace(core).utilization()


@given(st.lists(st.lists(st.integers(0, 2**40), min_size=3, max_size=3), min_size=1), st.sampled_from([1, 2**20]))
def test_lists_of_arrivals_are_read_as_core_reads_them(many: list[list[int]], step: int) -> None:
    table = Table(after="B")
    lists = Lists(table, "after")
    # Some lists have even steps, and are stored as steps; others are stored as they are.
    begins = [lists.add([n % 200 + step * at for at, n in enumerate(each)] if step > 1 else each)[1] for each in many]
    packed = np.frombuffer(table.columns()["after"], np.uint8)
    found = place_groups.picked(packed, np.array(begins), 3, lambda numbers: numbers)
    assert found.tolist() == [lists.get(begin) for begin in begins]


def test_clocks_that_disagree_give_no_negative_waits() -> None:
    """A host reports that it had the gang after the gang had started."""
    core = CoreTrace()
    core.place(0, 0, ((0, 4),), devices_per_host=2)
    core.gang(1, -1, "a", 0, 0)
    core.hosts(1, [100, 140])
    core.update(1, started=120, ended=200)
    trace = Trace(core)
    assert trace.intervals()["skew_us"].tolist() == [0.02, 0.02, 0, 0]
    assert trace.gangs()["input_wait_us"].tolist() == [0]


def test_hosts_of_a_gang_without_collectives_do_not_wait_for_each_other() -> None:
    core = CoreTrace()
    core.place(0, 0, ((0, 4),), devices_per_host=2)
    core.gang(1, -1, "a", 0, 0, started=140)  # its driver records when the last began
    core.hosts(1, [100, 140])
    core.ends(1, [150, 200])
    trace = Trace(core)
    total = trace.utilization("total", window=("100ns", "200ns")).iloc[0]
    assert [total[f"{name}_fraction"] for name in ("busy", "skew", "input_wait")] == [pytest.approx(0.55), 0, 0]
    assert trace.intervals()["ended_us"].tolist() == [0.15, 0.15, 0.2, 0.2]
    assert trace.gangs()[["skew_us", "input_wait_us", "device_us"]].iloc[0].tolist() == [0, 0, pytest.approx(0.22)]


# --- unknown values ---------------------------------------------------------------------------------------


def test_a_trace_of_a_controller_alone_has_all_tables() -> None:
    """A controller sees neither starts nor ends on devices. Both are inferred, and the tables say so."""
    world = World(small(2, 2), seed=1, traced=True)
    client = world.client("ann", weight=2)
    runs = [client.submit(chain(3), bytes(16)) for _ in range(4)]
    world.run()
    assert all(run.good for run in runs)
    trace = Trace(world.machine.tracing.trace, world.cluster)
    gangs = trace.gangs()
    assert len(gangs) == 12
    assert gangs["inferred"].tolist() == ["started,ended"] * 12
    assert (gangs["started_us"].shift(-1) >= gangs["ended_us"])[:-1].all()
    assert (gangs["started_us"] >= gangs["entered_us"]).all()
    assert (gangs["duration_us"] >= 0).all()
    assert gangs["client"].tolist() == ["ann"] * 12
    assert trace.utilization(by="client")["busy_fraction"].iloc[0] > 0.1
    assert trace.runs()["ok"].tolist() == [True] * 4
    assert trace.clients()["weight"].tolist() == [2]
    assert trace.span[1] < world.now + MS


def test_a_gang_under_way_is_busy_until_now_or_until_its_run_ends() -> None:
    core = CoreTrace()
    core.place(0, 0, ((0, 2),))
    core.submitted(1, 1, 1, "p", 0)
    core.gang(1, 1, "a", 0, 0, started=10)
    core.gang(2, -1, "b", 0, 0, started=30)
    core.ended(1, 25, Blame("host-lost", "gone"))
    core.gang(3, -1, "c", 0, 0, entered=50)
    gangs = Trace(core).gangs()
    assert gangs["ended_us"].tolist()[:2] == [0.025, 0.05]
    assert np.isnan(gangs["started_us"][2])
    assert gangs["inferred"].tolist() == ["ended", "ended", ""]


def test_a_trace_can_be_read_while_it_grows() -> None:
    core = traces.shared(gangs=5)
    trace = Trace(core)
    before = trace.gangs()
    assert trace.facts() is trace.facts()  # nothing is worked out twice
    core.gang(77, -1, "late", 0, 0, started=10**9, ended=10**9 + 5)
    assert len(before) == 5
    assert len(trace.gangs()) == 6
    assert trace.span[1] == 10**9 + 5


def test_an_empty_trace_of_known_machines_says_so() -> None:
    trace = Trace(CoreTrace(), small(2, 2))
    assert trace.utilization("total")["busy_fraction"].tolist() == [0]
    assert "no gangs on 4 devices" in repr(trace)
    assert len(Trace(CoreTrace()).utilization()) == 0


# --- names and machines -----------------------------------------------------------------------------------


def test_a_set_up_gives_names_of_islands_and_counts_idle_devices() -> None:
    core = CoreTrace()
    core.place(0, 1, ((32, 48),), 8, 32)
    core.gang(1, -1, "a", 1, 0, started=0, ended=10)
    named, alone = Trace(core, Cluster.from_table(PRESETS["C"])), Trace(core)
    assert named.utilization()["island"].tolist() == ["c0", "c1", "c2", "c3"]
    assert named.utilization()["busy_fraction"].tolist() == [0, 0.5, 0, 0]
    assert named.intervals()["host"].unique().tolist() == [4, 5]
    assert alone.utilization()["island"].tolist() == ["island 1"]
    assert alone.utilization()["busy_fraction"].tolist() == [1]
    assert alone.utilization("device")["device"].tolist() == list(range(32, 48))


def test_a_set_up_of_another_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match="on devices 4-63, and the set-up has 0-3"):
        Trace(traces.shared(gangs=2), small(2, 2)).gangs()
    with pytest.raises(TypeError, match="a cluster with islands"):
        Trace(CoreTrace(), "A")


def test_two_clients_of_one_name_are_told_apart() -> None:
    core = CoreTrace()
    for number in (1, 2):
        core.client(number, "ann", 1, 0, 0)
    assert Trace(core).clients()["client"].tolist() == ["ann", "ann (2)"]


def test_samples_include_every_kind_of_device() -> None:
    core, cluster = traces.pipeline(microbatches=1, steps=1)
    core.place(9, 3, ((127, 128),), 8, 96)
    core.gang(999, -1, "alone", 3, 9, started=10**8, ended=10**8 + 1)
    trace = Trace(core, cluster)
    sample = trace.sample(12)
    assert len(sample) == 12
    assert 127 in sample
    assert set((sample // 32).tolist()) == {0, 1, 2, 3}
    assert trace.sample(1000).tolist() == list(range(128))
    assert len(trace.sample(2)) == 2
    assert machines.of_setup(cluster).describe() == "128 devices (tpu-v3), 16 hosts on 4 islands"


# --- large ones -------------------------------------------------------------------------------------------


def test_intervals_are_expanded_only_on_request() -> None:
    trace = Trace(traces.shared(gangs=100))
    with pytest.raises(ValueError, match=r"6,400 device intervals; limit=1,000. Take a window"):
        trace.intervals(limit=1_000)
    assert len(trace.intervals(sample=3)) == 300
    assert len(trace.intervals(devices=[5, 7], window=(0, "1ms"))) == 2 * len(trace.gangs((0, "1ms")))


def test_millions_of_intervals_are_added_up_without_expanding_them() -> None:
    """2,048 devices x 4,000 gangs: no array that is made is as large as that."""
    import tracemalloc

    trace = Trace(traces.shared(gangs=4000, hosts=512))
    assert trace.facts().sizes.sum() == 8_192_000
    tracemalloc.start()
    frame = trace.utilization("device")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(frame) == 2048
    assert peak < 60e6
    with pytest.raises(ValueError, match=r"2,048 devices x 20,000 bins"):
        trace.utilization("device", 20_000)


def test_a_summary_has_a_few_lines() -> None:
    lines = Trace(traces.shared(gangs=60), small(16, 4)).summary().splitlines()
    assert lines.pop().startswith("  got: of the ")
    assert lines[0].startswith("Trace of 4 clients, 60 runs, 60 gangs on 64 devices (cpu), 16 hosts: ")
    assert "3,840 device intervals" in lines[0]
    assert [line.split()[0] for line in lines[2:]] == ["ann", "bob", "cat", "dan"]
    many = traces.shared({f"client {n}": 1 for n in range(30)}, gangs=60)
    assert "  ... and 14 more" in Trace(many).summary().splitlines()
