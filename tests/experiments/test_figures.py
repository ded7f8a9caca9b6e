"""The micro-benchmarks on small islands: the paper's statement on each must hold for the real core, simulated."""

from __future__ import annotations

from math import inf
from typing import Any

import pandas as pd
import pytest

from experiments import fig5, fig7, fig8
from experiments.framework import BadOption, run
from experiments.framework.options import profile_of
from experiments.micro.tenants import weights_of


def frame(name: str, **options: object) -> pd.DataFrame:
    return run(name, options, jobs=1, progress=False).frame


@pytest.fixture(scope="module")
def dispatch() -> Any:
    return frame("fig5", hosts=(16, 128))


def rate(rows: pd.DataFrame, **where: object) -> float:
    for name, value in where.items():
        rows = rows[rows[name] == value]
    assert len(rows) == 1
    return float(rows["computations_per_s"].iloc[0])


def test_fig5_has_the_order_of_the_paper(dispatch: pd.DataFrame) -> None:
    for hosts in (16, 128):
        for mode in ("opbyop", "chained", "fused"):
            ours = rate(dispatch, system="pathways", mode=mode, hosts=hosts)
            for other in ("tf1", "ray"):
                assert ours >= rate(dispatch, system=other, mode=mode, hosts=hosts), (mode, other, hosts)
        o, c, f = (rate(dispatch, system="pathways", mode=mode, hosts=hosts) for mode in ("opbyop", "chained", "fused"))
        assert o < c < f
        assert rate(dispatch, system="jax", mode="opbyop", hosts=hosts) > 10 * o


def test_fig5_a_chain_is_faster_than_jax_one_by_one_only_on_few_hosts(dispatch: pd.DataFrame) -> None:
    assert rate(dispatch, system="pathways", mode="chained", hosts=16) > rate(
        dispatch, system="jax", mode="opbyop", hosts=16
    )
    assert rate(dispatch, system="pathways", mode="chained", hosts=128) < rate(
        dispatch, system="jax", mode="opbyop", hosts=128
    )
    assert 64 < fig5.crossings(dispatch)["C = JAX-O"] < 512


def test_fig5_the_cost_of_writing_decides_where_fused_programs_fall_behind() -> None:
    """A call is written to every host before JAX's would be over. Cheaper writing, or a slower network within the
    island, moves the point to where the paper has it. The number of calls under way does not."""

    def reach(**asked: object) -> float:
        shown = frame("fig5", system=("pathways", "jax"), mode="fused", hosts=(64, 128, 192, 256, 320), **asked)
        return fig5.crossings(shown).get("F = JAX-F", inf)

    assert reach() < 400
    assert reach() < reach(ahead=8) < 800
    assert 800 < reach(profile="paper:send*0.5") < 1300
    assert 800 < reach(hop_us=2.0) < 1300


def test_fig6_agrees_with_the_points_that_the_profile_is_fitted_to() -> None:
    found = frame("fig6", cluster="B", hosts=16, curve=0)
    assert found["smallest_ms"].iloc[0] == pytest.approx(2.3, rel=0.02)
    assert found["error"].iloc[0] == pytest.approx(0, abs=0.02)
    assert list(frame("fig6", cluster="B", hosts=(16, 512), curve=0)["hosts"]) == [16]  # B has 64 at most


@pytest.mark.full
def test_fig6_agrees_at_its_other_end() -> None:
    found = frame("fig6", cluster="A", hosts=512, curve=0)
    assert found["smallest_ms"].iloc[0] == pytest.approx(35, rel=0.02)


def test_fig6_the_overhead_is_hidden_at_the_stated_size() -> None:
    at = frame("fig6", cluster="B", hosts=8, curve=0)["smallest_ms"].iloc[0]
    for factor, hidden in ((0.8, False), (1.1, True)):
        rows = frame("fig5", system=("pathways", "jax"), mode="opbyop", hosts=8, cluster="B", compute_ms=at * factor,
                     ahead=1)  # fmt: skip
        ratio = rate(rows, system="pathways") / rate(rows, system="jax")
        assert (ratio >= 0.99) == hidden


def test_fig7_parallel_dispatch_gains_more_with_more_stages() -> None:
    found = frame("fig7", stages=(1, 4, 16))
    ratio = list(fig7.ratios(found)["ratio"])
    assert ratio == sorted(ratio)
    assert ratio[0] == pytest.approx(1.0, abs=0.01)
    assert ratio[-1] > 1.5
    parallel = found[found["dispatch"] == "parallel"]["computations_per_s"]
    assert list(parallel) == sorted(parallel)  # the fixed cost of a call is shared by more stages


def test_fig8_several_clients_reach_jax_and_exceed_it_with_tiny_computations() -> None:
    found = frame("fig8", compute_ms=(0.04, 1.04), clients=(1, 4), hosts=8)
    tiny, other = (found[found["compute_ms"] == each].set_index("clients")["of_jax"] for each in (0.04, 1.04))
    assert tiny[4] > 1.2
    assert other[4] == pytest.approx(1.0, abs=0.01)
    assert other[1] < other[4]


def test_fig11_one_client_leaves_gaps_and_several_fill_them() -> None:
    result = run("fig11", clients=(1, 4), gangs=300, jobs=1, progress=False)
    busy = result.frame.set_index("clients")["busy"]
    assert busy[1] < 0.9
    assert busy[4] > 0.98
    trace = result.extra["trace"]
    assert set(trace[trace["row"] == 1]["client"]) == set("abcd")
    assert trace.groupby("row")["device"].nunique().eq(4).all()
    assert (trace["ended_us"] > trace["started_us"]).all()


def test_fig8_and_fig11_run_the_same_programs() -> None:
    same: dict[str, Any] = {"compute_ms": 0.33, "clients": (1, 4), "hosts": 4, "gangs": 400}
    eighth, eleventh = (frame(name, **same).set_index("clients") for name in ("fig8", "fig11"))
    for column in ("busy", "computations_per_s"):
        assert list(eighth[column]) == pytest.approx(list(eleventh[column]), rel=1e-9), column


def test_fig9_shares_follow_weights() -> None:
    found = frame("fig9", gangs=600).set_index("weights")
    assert (found["worst_share_error"] < 0.02).all()
    assert found.loc["1:2:4:8", "got_d"] == pytest.approx(8 / 15, abs=0.02)
    first_come = frame("fig9", gangs=600, weights="1:2:4:8", policy="fifo")
    assert first_come["worst_share_error"].iloc[0] > 0.1  # without the policy there are no shares


def test_figures_are_drawn_with_their_findings() -> None:
    small: dict[str, dict[str, object]] = {
        "fig5": {"hosts": 4, "mode": "opbyop"}, "fig6": {"hosts": 4, "curve": 2}, "fig7": {"stages": (1, 2)},
        "fig8": {"clients": (1, 2), "compute_ms": 0.33, "hosts": 4, "nodes": 8, "gangs": 48},
        "fig11": {"clients": (1, 2), "hosts": 4, "gangs": 48}, "fig9": {"hosts": 4, "gangs": 300},
    }  # fmt: skip
    for name, options in small.items():
        result = run(name, options, jobs=1, progress=False)
        assert result.figure is not None
        assert result.text.count("\n- ") >= 1, name
        assert "profile `paper`, fitted" in result.text
        assert "- fitted: `send` = 66 us, to figure 6" in result.text


# --- other values than the fitted ones ------------------------------------------------------------------------------


def test_what_a_conclusion_rests_on_is_seen_with_other_profiles() -> None:
    profiles = ("paper", "paper:send*2", "paper:receive*2", "paper:client_call*0.5")
    found = frame("fig6", cluster="B", hosts=16, curve=0, profile=profiles).set_index("profile")["smallest_ms"]
    moved = found / found["paper"]
    assert moved["paper:send*2"] == pytest.approx(1 + 16 * 0.066 / 2.3, rel=0.05)
    assert moved["paper:receive*2"] == pytest.approx(1.0, abs=0.02)
    assert moved["paper:client_call*0.5"] < 0.9


def test_the_fit_assumes_one_call_ahead() -> None:
    """With none, nothing but length hides a call's overhead: 0.5 % of the computation is all of it. With more, what is
    left is what the controller writes to every host."""
    then = frame("fig6", cluster="B", hosts=16, curve=0, ahead=(0, 2, 4)).set_index("ahead")["smallest_ms"]
    assert then[0] == pytest.approx(2.3 / 0.005, rel=0.1)
    assert 2.3 > then[2] > then[4] >= 16 * 0.066


def test_a_profile_can_be_changed_by_an_option() -> None:
    paper = profile_of("paper")
    changed = profile_of("paper:send*2+step=5us")
    assert (changed.send, changed.step, changed.receive) == (2 * paper.send, 5000, paper.receive)
    assert "send" not in changed.fitted
    assert changed.name == "paper:send*2+step=5us"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("paper:sent*2", "no cost 'sent'; did you mean send"),
        ("paper:send", "'send' is not a change; write field"),
        ("paper:send=5m", "'send=5m' is not a change"),
    ],
)
def test_a_change_without_meaning_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadOption, match=says):
        profile_of(text)


def test_invalid_options_are_refused() -> None:
    assert weights_of("1:2:4:8") == (1, 2, 4, 8)
    for wrong in ("1:0", "1;2", ""):
        with pytest.raises(BadOption, match="write whole numbers"):
            frame("fig9", weights=[wrong])
    refused = run("fig9", policy="fairest", jobs=1, progress=False)
    assert refused.failed
    assert all("Impossible: no policy is called 'fairest'" in why for why in refused.failed)
    assert not fig8.points({**{o.name: o.values for o in fig8.OPTIONS}, "clients": ()})
