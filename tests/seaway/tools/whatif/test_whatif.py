"""A recorded workload run again: as it was if nothing is changed, and as it would be if something is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backend.server import eventlogs
from core.model.errors import Impossible
from core.model.program import Node
from core.record.eventlog import decode, replayed
from core.schedule.policy import Fifo, Policy, Stride
from seaway.cli import main
from seaway.tools.whatif import call_durations, report, settings, whatif_runs
from seaway.tools.whatif.workload import Workload, read, workload_of
from sim.hardware.profiles import profile
from tests.backend.cluster import chain

from .recording import MS, Recorded

SEAWAY = profile("seaway")


def workload(recorded: Recorded, policy: Callable[[], Policy] | None = None) -> Workload:
    return workload_of(decode(recorded.log()), policy)


def run_again(found: Workload, **changes: Any) -> whatif_runs.WhatifResult:
    same = settings.as_recorded(found, SEAWAY)
    return whatif_runs.run(found, same._replace(**changes), call_durations.measured(found))


def submit_times(trace: Any) -> list[int]:
    """When the controller heard of each run, counted from the first."""
    found = [row["submitted"] for row in trace.runs.rows()]
    return [at - found[0] for at in found]


def order(simulation: Any) -> str:
    return str(simulation.controller.order.island(0))


# --- what a log says ------------------------------------------------------------------------------------------------


def test_a_workload_has_each_clients_calls_and_what_they_waited_for(patch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(patch)
    recorded.person("ann", chain(2, 4), runs=3, think=5 * MS)
    recorded.person("bob", chain(1, 2), runs=2, waits=False, weight=3, starts=7 * MS)
    found = workload(recorded.run())
    ann, bob = found.people
    assert (ann.name, ann.weight, ann.runs, ann.left) == ("ann", 1, 3, True)
    assert (bob.name, bob.weight, bob.runs) == ("bob", 3, 2)
    assert bob.opened - ann.opened == pytest.approx(7 * MS, abs=MS)
    kinds = [(type(made.call).__name__, made.waited) for made in ann.calls]
    assert kinds == [
        ("Register", ()), ("Submit", ()), ("Release", (1,)), ("Submit", (1,)), ("Release", (2,)), ("Submit", (2,)),
        ("Release", ()),
    ]  # fmt: skip
    second = ann.calls[3]
    assert second.call.think == 5 * MS + 2 * SEAWAY.client_call, "and to release, and to call"
    assert all(not made.waited for made in bob.calls)
    assert [program.name for _, program in ann.programs()] == ["chain"]


def test_durations_are_those_of_devices_without_waits(patch: pytest.MonkeyPatch) -> None:
    """The stated cost is 1 ms each. The first two were not in a queue of two; a gang that never was has its stated
    cost."""
    recorded = Recorded(patch)
    recorded.takes("step", 3 * MS)
    recorded.person("ann", chain(3, 4), runs=10, waits=False)
    recorded.run()
    found = workload(recorded)
    assert [tuple(took) for took in call_durations.measured(found).values()] == [("step", 4, 3 * MS, 28, 30)]
    lone = Recorded(patch)
    lone.takes("step", 3 * MS)
    lone.person("ann", chain(1, 4), runs=4, think=MS)
    found = workload(lone.run())
    (took,) = call_durations.measured(found).values()
    assert (took.nanoseconds, took.samples, took.runs) == (MS, 0, 4)
    assert list(report.notes(found, {("step", 4): took})) == [
        "never seen back to back, so at their stated costs: step on 4"
    ]


def test_a_stated_cost_is_never_more_than_the_observed_time(patch: pytest.MonkeyPatch) -> None:
    lone = Recorded(patch)
    lone.person("ann", chain(1, 4, cost=900 * MS), runs=4, think=MS)
    lone.takes("step", 3 * MS)
    (took,) = call_durations.measured(workload(lone.run())).values()
    assert 3 * MS < took.nanoseconds < 5 * MS


def test_one_computation_on_two_sizes_has_two_prices() -> None:
    one, two = chain(1, 2), chain(1, 4)
    both = msgspec.structs.replace(
        two,
        slices=(*two.slices, msgspec.structs.replace(one.slices[0], name="half")),
        nodes=(*two.nodes, msgspec.structs.replace(two.nodes[0], slice=1)),
        results=(),
    )
    found = call_durations.told_apart(both)
    assert [each.key for each in found.computations] == ["step@4", "step@2"]
    assert [node.computation for node in found.nodes if isinstance(node, Node)] == [0, 1]
    assert found.slices == both.slices


# --- as it was ------------------------------------------------------------------------------------------------------

WAITS = {
    "submits at once": {"waits": False, "runs": 20},
    "waits and thinks": {"think": 5 * MS},
    "tells of it late": {"think": 5 * MS, "told_late": True},
}


@pytest.mark.parametrize("habit", WAITS)
def test_the_same_settings_reproduce_the_record(patch: pytest.MonkeyPatch, habit: str) -> None:
    """To the microsecond: names, order, and when each run was submitted. The real durations are found from the log."""
    recorded = Recorded(patch, policy=Stride)
    recorded.takes("step", 3 * MS)
    recorded.person("ann", chain(2, 4), **WAITS[habit])
    found = workload(recorded.run())
    world = run_again(found)
    assert order(world.simulation) == order(recorded.sim)
    then, now = submit_times(recorded.sim.trace), submit_times(world.trace)
    assert len(now) == found.people[0].runs
    assert max(abs(a - b) for a, b in zip(then, now, strict=True)) < 2_000


def test_reads_of_contents_are_waited_for_again(patch: pytest.MonkeyPatch) -> None:
    """The controller hears of a get's end later than the client. The model predicts that time within 2 %."""
    for late in (False, True):
        recorded = Recorded(patch)
        recorded.person("ann", chain(2, 4), think=5 * MS, fetch=True, told_late=late)
        found = workload(recorded.run())
        assert submit_times(run_again(found).trace)[-1] == pytest.approx(submit_times(recorded.sim.trace)[-1], rel=0.02)


def test_code_that_hosts_compiled_is_compiled_again(patch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(patch, compiles=80 * MS)
    recorded.person("ann", chain(2, 4), runs=4, waits=False)
    found = workload(recorded.run())
    took = call_durations.measured(found)
    assert found.compiling == pytest.approx(80 * MS, rel=0.02)
    assert any("compiled in the record: 80" in line for line in report.notes(found, took))
    record, world = report.of_record(found, took), report.of_world(run_again(found))
    assert record.clients[0].p50_us > 80_000, "no gang could begin before"
    assert world.clients[0].p50_us == pytest.approx(record.clients[0].p50_us, rel=0.02)
    quick = Recorded(patch)
    quick.person("ann", chain(2, 4), runs=1)
    assert workload(quick.run()).compiling == 0, "messages there and back, and no compiler"


def test_two_clients_interleave_as_in_the_record(patch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(patch, policy=Stride)
    recorded.takes("step", 3 * MS)
    recorded.person("ann", chain(2, 4), waits=False, runs=20)
    recorded.person("bob", chain(2, 4), think=4 * MS, runs=8, starts=MS, weight=3)
    found = workload(recorded.run())
    world = run_again(found)
    assert order(world.simulation) == order(recorded.sim)
    took = call_durations.measured(found)
    wrong = report.errors(report.of_record(found, took), report.of_world(world))
    assert abs(wrong["", "makespan"]) < 0.001
    assert max(abs(wrong[name, "p50 latency"]) for name in ("ann", "bob")) < 0.01


def test_views_are_made_again_and_a_log_with_views_replays_to_the_byte(patch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(patch)
    recorded.person("ann", chain(2, 4), runs=3, think=MS, views=True, fetch=True)
    found = workload(recorded.run())
    (ann,) = found.people
    assert [type(made.call).__name__ for made in ann.calls].count("View") == 3
    log = decode(recorded.log())
    list(replayed(log, eventlogs.machine_of(log.about)))  # or it raises `Diverged`
    world = run_again(found)
    assert order(world.simulation) == order(recorded.sim)
    assert [len(list(sim.trace.rows("transfers"))) for sim in (recorded.sim, world.simulation)] == [3, 3]


# --- as it would be -------------------------------------------------------------------------------------------------


def test_closed_loops_follow_the_new_world_and_open_loops_follow_the_record(patch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(patch)
    recorded.takes("step", 2 * MS)
    recorded.person("ann", chain(2, 4), runs=6, think=5 * MS)
    found = workload(recorded.run())
    took = {which: one._replace(nanoseconds=12 * MS) for which, one in call_durations.measured(found).items()}
    same = settings.as_recorded(found, SEAWAY)
    then = submit_times(recorded.sim.trace)
    closed = submit_times(whatif_runs.run(found, same, took).trace)
    assert [b - a for a, b in zip(then, closed, strict=True)] == pytest.approx(
        [20 * MS * turn for turn in range(6)], abs=50_000
    ), "two steps of each run take 10 ms more, and the next run waits for them"
    opened = submit_times(whatif_runs.run(found, same._replace(open_loop=True), took).trace)
    assert opened == pytest.approx(then, abs=200_000), (
        "no run is waited for: all are submitted when they were, but for what the client's thread hears just then"
    )


@pytest.mark.full
def test_a_client_held_up_by_a_full_window_is_not_held_up_with_a_larger_one(patch: pytest.MonkeyPatch) -> None:
    """A client may have 1024 runs under way. It waits for the rest to be admitted, and that is no thinking time."""
    recorded = Recorded(patch)
    recorded.person("ann", chain(1, 4, cost=4 * MS), runs=2000, waits=False)
    found = workload(recorded.run())
    took = call_durations.measured(found)
    record = report.of_record(found, took)
    assert report.of_world(run_again(found)).makespan == pytest.approx(record.makespan, rel=0.02)
    fast = {which: one._replace(nanoseconds=one.nanoseconds // 2) for which, one in took.items()}
    world = report.of_world(whatif_runs.run(found, settings.as_recorded(found, SEAWAY), fast))
    assert world.makespan == pytest.approx(record.makespan / 2, rel=0.05)


def test_weights_under_stride_give_the_promised_shares(patch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(patch)
    for number in range(4):
        recorded.person(f"c{number}", chain(1, 4), runs=150, waits=False)
    found = workload(recorded.run())
    record = report.of_record(found, call_durations.measured(found))
    weighted = report.of_world(run_again(found, make=Stride, weights=(1, 2, 4, 8), title="stride"))
    assert [client.weight for client in weighted.clients] == [1, 2, 4, 8]
    shares = [client.share for client in weighted.clients]
    assert shares == pytest.approx([1 / 15, 2 / 15, 4 / 15, 8 / 15], rel=0.08)
    assert [client.runs for client in weighted.clients] == [150] * 4
    assert weighted.makespan == pytest.approx(record.makespan, rel=0.01), "the same work"


def test_twice_the_devices_serve_two_clients_at_the_same_time(patch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(patch, hosts=1, devices_per_host=2)
    for name in ("ann", "bob"):
        recorded.person(name, chain(4, 2, cost=5 * MS), runs=10, waits=False)
    found = workload(recorded.run())
    setup = settings.changed_setup(found.cluster, hosts=2, islands=None)
    took = call_durations.measured(found)
    record, world = report.of_record(found, took), report.of_world(run_again(found, setup=setup))
    assert world.makespan == pytest.approx(record.makespan / 2, rel=0.05)
    assert world.utilization == pytest.approx(record.utilization, rel=0.05)


def test_sequential_dispatch_and_another_window_change_the_prediction_as_core_decides(
    patch: pytest.MonkeyPatch,
) -> None:
    recorded = Recorded(patch)
    recorded.person("ann", chain(6, 4, cost=100_000), runs=10)
    found = workload(recorded.run())
    took = call_durations.measured(found)
    parallel = report.of_world(run_again(found))
    sequential = report.of_world(run_again(found, dispatch="sequential"))
    assert sequential.clients[0].p50_us > 1.5 * parallel.clients[0].p50_us
    setup = settings.setup_of(found.cluster)
    config = settings.config_of(found, setup, SEAWAY, window=1)
    assert (config.window, config.fanout) == (1, recorded.config.fanout)
    assert report.of_world(run_again(found, config=config)).makespan > report.of_record(found, took).makespan


# --- refused settings -----------------------------------------------------------------------------------------------


def test_a_slice_that_the_other_cluster_lacks_is_named(patch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(patch, islands=2)
    recorded.person("ann", chain(1, 4, island="i1"), runs=2)
    found = workload(recorded.run())
    setup = settings.changed_setup(found.cluster, hosts=None, islands=1)
    with pytest.raises(Impossible, match=r"'chain' of client 'ann' names island 'i1' .* add --anywhere"):
        run_again(found, setup=setup)
    assert len(submit_times(run_again(found, setup=setup, free=True).trace)) == 2
    small = settings.changed_setup(found.cluster, hosts=1, islands=None)
    with pytest.raises(Impossible, match=r"a slice 'all' of 4 devices, for which no island .* has room"):
        run_again(found, setup=small)
    with pytest.raises(Impossible, match="2 weights, 1:2, and the log has 1 clients: ann"):
        run_again(found, weights=(1, 2))


MINE = """
from core.schedule.policy import Policy

class Mine(Policy):
    def pick(self, ready, now):
        return ready.best()
"""


def test_the_command_compares_several_worlds(
    patch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = Recorded(patch, policy=Fifo)
    recorded.takes("step", 3 * MS)
    for name in ("ann", "bob"):
        recorded.person(name, chain(2, 4), runs=40, waits=False)
    log = str(recorded.run().save(tmp_path / "run.log"))
    out = tmp_path / "out"
    assert main(["whatif", log, "--policy", "fifo", "--policy", "stride:1,4", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "80 runs of 2 clients under fifo; closed loop, profile seaway (measured)" in said
    head = next(line for line in said.splitlines() if "recorded" in line)
    assert head.split("  ")[-1].strip() == "stride:1,4"
    assert next(line for line in said.splitlines() if "makespan" in line).count("(+0.0%)") == 1
    assert "a percentage is the model's error, in 4 simulations at most" in said
    assert {file.name for file in out.iterdir()} == {"whatif.csv", "whatif.parquet"}
    table = (out / "whatif.csv").read_text().splitlines()
    assert len(table) == 1 + 4 * 2
    assert table[0].startswith(
        "world,makespan_us,busy_fraction,reserved_fraction,client,weight,runs,failed_runs,latency_p50_us"
    )
    assert main(["whatif", log, "--policy", "fifo", "--policy", "stride:1,4"]) == 0
    assert capsys.readouterr().out == said.partition("wrote ")[0], "the same each time"
    (tmp_path / "mine.py").write_text(MINE)
    here = f"{tmp_path / 'mine.py'}:Mine"
    assert main(["whatif", log, "--policy", here, "--dispatch", "sequential", "--open-loop"]) == 0
    assert "; open loop, profile seaway" in capsys.readouterr().out
    (tmp_path / "mine.py").write_text(MINE.replace("ready.best()", "ready.worst()"))
    assert main(["whatif", log, "--policy", here]) == 0
    broken = capsys.readouterr().out
    assert f"note: under {here}, policy Mine was replaced by fifo: on island 'i0' it raised AttributeError" in broken
    assert broken.count("was replaced") == 1, "not under the record's settings"
    mine = tmp_path / "mine.toml"
    shape = '[[island]]\nname = "i"\nhosts = {}\ndevices_per_host = 2\n'
    mine.write_text(shape.format(2) + '[profile]\nlike = "seaway"\nstatus = "measured"\ncosts = {receive = "9 ms"}\n')
    assert main(["whatif", log, "--measured", str(mine), "--policy", "fifo", "--hosts", "3"]) == 0
    measured = capsys.readouterr().out
    assert "closed loop, profile mine (measured)" in measured
    assert "makespan +0.0%" not in measured, "hosts cost more there"
    other = tmp_path / "other.toml"
    other.write_text(shape.format(3))
    assert main(["whatif", log, "--measured", str(other)]) == 1
    assert "[(3, 2)], and the recorded one [(2, 2)]: calibrate one of the recorded shape" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--policy", "strid"], "--policy strid: no policy is called 'strid'"),
        (["--policy", "absent.py:Mine"], "--policy absent.py:Mine: there is no file absent.py"),
        (["--recorded-policy", "absent:Mine"], "--recorded-policy absent:Mine: no policy is called 'absent'"),
        (["--policy", "stride:1,2,3"], "3 weights, 1:2:3, and the log has 1 clients: ann"),
        (["--policy", "fifo:1"], "fifo does not use weights"),
        (["--cluster", "nowhere.toml"], "there is no file nowhere.toml"),
        (["--hosts", "0"], "--hosts 0: at least 1"),
        (["--window", "0"], "--window 0: at least 1"),
        (["--profile", "slow"], "no profile 'slow'"),
    ],
)
def test_an_invalid_command_is_refused_before_any_work(
    patch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    recorded = Recorded(patch)
    recorded.person("ann", chain(1, 4), runs=2)
    log = str(recorded.run().save(tmp_path / "run.log"))
    assert main(["whatif", log, *options]) == 1
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""


def test_a_file_that_is_no_log_or_has_no_runs_is_refused(patch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(Impossible, match="is no event log, or is damaged"):
        read(tmp_path / "text")
    with pytest.raises(Impossible, match="the log has no runs"):
        workload(Recorded(patch))


@pytest.fixture(name="patch")
def _patch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    return monkeypatch
