"""Late inputs, simulated: what early dispatch gains a program over two islands, and what it costs others."""

from __future__ import annotations

import pytest

from experiments.bench.control import scheduling


def test_early_dispatch_hides_latency_and_holds_up_the_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "CROSSINGS", 10)
    monkeypatch.setattr(scheduling, "LOADS", {"none": (0, 0, 0.0), "full": (6, 50, 0.0)})
    alone = {early: scheduling.late_inputs(early, "none") for early in scheduling.EARLY}
    beside = {early: scheduling.late_inputs(early, "full") for early in scheduling.EARLY}
    assert alone["always"] == alone["idle"]
    assert alone["idle"][2] < alone["never"][2], (
        "a call that nobody holds up gains the latency of its dispatch"
    )
    assert beside["always"][2] < beside["idle"][2]
    assert beside["idle"][1] < 0.8 * beside["always"][1], (
        "others do not wait behind a gang without its inputs"
    )
    assert beside["idle"][0] < beside["always"][0]
