"""Fig 5 for real, tiny: every row is there, peers that are not installed are named, and steps are counted correctly."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.bench.real import actors, real
from seaway.tools.calibrating import AXIS

RATES = {"OpByOp": 100.0, "Chained": 300.0, "Fused": 1_000.0}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up figures, so that tests need not measure."""
    rates = {kind: [rate, rate / 2, 2 * rate] for kind, rate in RATES.items()}
    peers = {kind: [100.0] for kind in ("OpByOp", "Fused")}
    monkeypatch.setattr(real, "jax_rates", lambda *size: peers)
    monkeypatch.setattr(real, "seaway_rates", lambda *size: rates)
    monkeypatch.setattr(actors, "rates", lambda *size: {kind: [rate / 10] for kind, rate in RATES.items()})


@pytest.mark.usefixtures("measured")
def test_a_peer_that_is_not_installed_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(actors, "installed", lambda: False)
    real.shown(2, 1, 3)
    said = capsys.readouterr().out
    assert "    Ray not installed: pip install 'seaway[bench]'\n" in said
    assert "x Ray's" not in said
    assert " Seaway Chained       300/s   3.00 x JAX's OpByOp (aim 1)\n" in said


def test_fewer_steps_are_still_whole_calls() -> None:
    assert real.steps_of("Fused", 1) == 64 * real.CHAIN
    assert real.steps_of("Fused", 3) == 21 * real.CHAIN
    assert real.steps_of("OpByOp", 1_000) == real.CHAIN


def test_a_step_subtracts_the_mean_and_a_fused_call_is_many_steps() -> None:
    import jax

    x = np.array([1.0, 5.0], np.float32)
    one, many = (np.asarray(jax.vmap(work, axis_name=AXIS)(x)).tolist() for work in (real.step, real.fused))
    assert one == [-1.0, 3.0]
    assert many == one  # whose mean is what a step adds


@pytest.mark.full
def test_jax_and_seaway_are_measured_on_two_hosts() -> None:
    for rates, kinds in (
        (real.jax_rates(2, 1, 1, fewer=16), ["Waited", "OpByOp", "Fused"]),
        (real.seaway_rates(2, 1, 1, fewer=16), [kind for kind in real.AIMS if kind != "Read"]),
    ):
        assert list(rates) == kinds
        assert all(len(each) == 1 and each[0] > 0 for each in rates.values())


@pytest.mark.full
def test_results_are_read_on_one_host() -> None:
    for rates in (real.jax_rates(1, 1, 1, fewer=16), real.seaway_rates(1, 1, 1, fewer=16)):
        assert list(rates)[:2] == ["Waited", "Read"]
        assert rates["Read"][0] > 0


@pytest.mark.full
def test_ray_actors_run_the_same_steps() -> None:
    pytest.importorskip("ray", reason="the extra `bench` is not installed")
    found = actors.rates(1, 1, 1, fewer=8)
    assert list(found) == ["OpByOp", "Chained", "Fused"]
    assert all(each[0] > 0 for each in found.values())
