"""Models of other systems on the same hardware: each limit of a model is computed by hand, and the systems come in the
order of the paper."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from core.model.errors import Impossible
from core.model.place import line
from sim.baselines import MODES, SYSTEMS, BaselineWork, Mode, Outcome, fused, run
from sim.baselines.baseline_work import costs_of
from sim.hardware.ici import collective_time
from sim.hardware.kernels import Collective, Kernel
from sim.hardware.profiles import profile
from sim.hardware.setups import load

US, MS = 1_000, 1_000_000
PAPER = profile("paper")
STEP = Kernel("step", 1 * US, (Collective("all-reduce", 4),))
LONG = Kernel("long", 300 * MS)


def rate(
    system: str, hosts: int, mode: Mode = "opbyop", kernel: Kernel = STEP, nodes: int = 128, *,
    costs: Mapping[str, int] | None = None,
) -> float:  # fmt: skip
    calls, setup = (90 if system == "jax" else 12), load("A", hosts=hosts)
    return run(system, setup, BaselineWork(kernel, mode, nodes), PAPER, calls=calls, costs=costs).per_second


def modes(system: str) -> list[Mode]:
    return [mode for mode in MODES if (system, mode) != ("jax", "chained")]


@pytest.mark.parametrize("system", SYSTEMS)
def test_long_computations_hide_every_controller(system: str) -> None:
    """Except where devices wait for the host by design: at a barrier, or while results are copied away."""
    for mode in modes(system):
        found = rate(system, 16, mode, LONG, nodes=3)
        assert found == pytest.approx(1e9 / LONG.duration, rel=0.02), mode
        assert found <= 1e9 / LONG.duration


def test_jax_pays_python_for_each_call_and_a_fused_program_pays_once() -> None:
    call = costs_of("jax")["call"]
    for hosts in (2, 512):
        assert rate("jax", hosts, kernel=Kernel("empty", 1)) == pytest.approx(1e9 / call, rel=0.01)
    assert rate("jax", 2, "fused", Kernel("empty", 1)) == pytest.approx(128 * 1e9 / call, rel=0.01)


def test_in_jax_only_the_collective_depends_on_the_number_of_hosts() -> None:
    setup = load("A", hosts=256)
    island, chip = setup.cluster.islands[0], setup.chips[0]
    took = STEP.duration + collective_time(STEP.collectives[0], line(0, 0, island.devices), island, chip)
    assert rate("jax", 256, "fused") == pytest.approx(1e9 / took, rel=0.02)


def test_the_number_of_computations_under_way_is_bounded() -> None:
    """With one at a time, a host's Python, its PCIe and the devices take turns."""
    costs = costs_of("jax")
    one = run(
        "jax", load("A", hosts=4), BaselineWork(Kernel("k", 400 * US)), PAPER, calls=60, costs=with_cost(costs, ahead=1)
    )
    pcie = load("A").chips[0].pcie_latency
    period = costs["call"] + PAPER.enqueue + pcie + 400 * US
    assert one.per_second == pytest.approx(1e9 / period, rel=0.01)


def with_cost(costs: Mapping[str, int], **changed: int) -> dict[str, int]:
    return {**costs, **changed}


def test_tf1_pays_a_message_to_and_from_each_host_for_each_computation() -> None:
    few, many = (1e9 / rate("tf1", hosts, kernel=Kernel("empty", 1)) for hosts in (64, 512))
    assert many - few == pytest.approx((512 - 64) * (PAPER.send + PAPER.receive), rel=0.01)


def test_tf1_counts_down_m_by_n_edges_between_computations() -> None:
    with_edges = 1e9 / rate("tf1", 512, "chained", nodes=4)
    costs = with_cost(costs_of("tf1"), edge=0)
    without = 1e9 / rate("tf1", 512, "chained", nodes=4, costs=costs)
    assert with_edges - without == pytest.approx(3 / 4 * 2048 * 2048 * costs_of("tf1")["edge"], rel=0.01)


def test_ray_submits_to_each_actor_in_turn_and_gets_an_answer_of_each() -> None:
    costs = costs_of("ray")
    few, many = (1e9 / rate("ray", hosts, kernel=Kernel("empty", 1)) for hosts in (64, 512))
    assert many - few == pytest.approx((512 - 64) * costs["submit"], rel=0.5)
    assert many - few >= (512 - 64) * costs["submit"] * 0.99


def test_ray_moves_results_through_host_memory() -> None:
    small, large = (
        1e9 / run("ray", load("A", hosts=4), BaselineWork(Kernel("k", 1), nbytes=nbytes), PAPER, calls=12).per_second
        for nbytes in (4, 64 << 20)
    )
    pcie = load("A").chips[0].pcie_bandwidth
    assert large - small == pytest.approx(2 * (64 << 20) * 1e9 / pcie, rel=0.01)


def test_a_chain_saves_calls_and_a_fused_node_saves_more() -> None:
    for system in ("tf1", "ray"):
        one, chained, whole = (rate(system, 16, mode) for mode in ("opbyop", "chained", "fused"))
        assert one < chained < whole, system


def test_jax_is_far_ahead_one_by_one_and_more_so_with_more_hosts() -> None:
    for system in ("tf1", "ray"):
        behind = [rate("jax", hosts) / rate(system, hosts) for hosts in (8, 64, 512)]
        assert behind == sorted(behind)
        assert behind[0] > 5, system


def test_a_fused_computation_equals_so_many_single_ones() -> None:
    kernel = Kernel("k", 10, (Collective("all-reduce", 4, count=2), Collective("all-gather", 8)), flops=3.0)
    whole = fused(kernel, 5)
    assert (whole.duration, whole.flops) == (50, 15.0)
    assert [each.count for each in whole.collectives] == [10, 5]


def test_every_cost_of_another_system_has_a_source() -> None:
    for system in SYSTEMS:
        costs = costs_of(system)
        assert costs
        assert costs.keys() == costs.sources.keys()
        assert all(len(source) > 15 for source in costs.sources.values())


def test_rates_leave_out_the_beginning() -> None:
    slow_start = Outcome("jax", 1, 4, 2, (1000, 1010, 1020, 1030, 1040, 1050))
    assert slow_start.per_second == pytest.approx(2 * 1e9 / 10)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: run("jaxx", load("A"), BaselineWork(STEP), PAPER), "no baseline 'jaxx'; nearest: 'jax'"),
        (lambda: run("jax", load("A"), BaselineWork(STEP, "chained"), PAPER), "JAX has no programs of several"),
        (lambda: run("jax", load("C"), BaselineWork(STEP), PAPER), "one island; .* has 4"),
        (lambda: run("tf1", load("A"), BaselineWork(STEP), PAPER, calls=2), "2 calls are too few for a steady rate"),
        (lambda: BaselineWork(STEP, "fussed"), "mode 'fussed' is unknown; nearest: 'fused'"),  # type: ignore[arg-type]
        (lambda: BaselineWork(STEP, nodes=0), "`nodes` is at least 1"),
    ],
)
def test_invalid_options_are_refused(ask: object, says: str) -> None:
    with pytest.raises(Impossible, match=says):
        ask()  # type: ignore[operator]


def test_work_is_plain_data() -> None:
    work = BaselineWork(STEP, "fused", 7)
    assert msgspec.convert(msgspec.to_builtins(work), BaselineWork) == work
    assert (work.launches, work.computations, work.launched.duration) == (1, 7, 7 * US)
