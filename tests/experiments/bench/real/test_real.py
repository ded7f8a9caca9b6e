"""Fig 5 for real, tiny: rows are compared with the right ones, and steps are counted correctly."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.bench.real import real
from seaway.tools.calibrating import AXIS

RATES = {"OpByOp": 100.0, "Chained": 300.0, "Fused": 1_000.0}


def test_rows_are_medians_beside_the_kind_of_jax_that_they_are_compared_with(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = {kind: [rate, rate / 2, 2 * rate] for kind, rate in RATES.items()}
    monkeypatch.setattr(real, "jax_rates", lambda *size: {"OpByOp": [100.0], "Fused": [100.0]})
    monkeypatch.setattr(real, "seaway_rates", lambda *size: rates)
    real.shown(2, 1, 3)
    said = capsys.readouterr().out
    assert "    JAX OpByOp        100/s\n" in said
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
