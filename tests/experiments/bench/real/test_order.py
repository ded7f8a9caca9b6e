"""What the benchmark of order says of a run: right, wrong, hung or aborted; and its sums are the devices'."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.bench.frame.processes import Ending
from experiments.bench.real import order
from seaway.tools.calibrating import AXIS


def ending(code: int | None, checked: int, wrong: int, over: bool = False) -> Ending:
    said: list[dict[str, Any]] = [{"checked": 0, "wrong": 0}, {"checked": checked, "wrong": wrong}]
    return Ending(code, [*said, {"over": True}] if over else said, "its last words")


def test_the_outcome_of_a_case_follows_from_how_its_processes_ended() -> None:
    both = [ending(0, 20, 0, True), ending(0, 20, 3, True)]
    assert order.outcome_of(both) == order.Outcome("ended", 40, 3)
    assert order.outcome_of([ending(None, 20, 0), ending(None, 10, 0)]) == order.Outcome("hung", 30, 0)
    assert order.outcome_of([ending(-6, 0, 0), ending(None, 10, 0)]) == order.Outcome("aborted", 10, 0)


def test_a_right_result_without_an_enforced_order_is_called_luck() -> None:
    found = order.Outcome("ended", 40, 0)
    by_chance, on_purpose = order.CASES[1], order.CASES[0]
    assert order.shown(by_chance, found).endswith("(by luck: nothing enforces it)")
    assert order.shown(on_purpose, found).endswith("0 of 40 results wrong")
    assert "then it hung" in order.shown(by_chance, order.Outcome("hung", 3, 0))


@pytest.mark.parametrize("kind", order.KINDS)
def test_the_expected_values_of_a_client_are_those_of_its_computation(kind: order.Kind) -> None:
    import jax

    x = np.arange(1, 1 + kind.devices * kind.size, dtype=np.int32).reshape(kind.devices, kind.size)
    made: Any = x
    for _ in range(25):  # long enough to overflow
        made = jax.vmap(order.step_of(kind), axis_name=AXIS)(made)
    assert np.array_equal(np.asarray(made), order.expected(kind, x, 25))


def test_one_wrong_number_shows_in_all_later_ones() -> None:
    for kind in order.KINDS:
        x = np.ones((kind.devices, kind.size), np.int32)
        wrong = x.copy()
        wrong[0, 0] += 1
        assert not np.array_equal(order.expected(kind, x, 1_000), order.expected(kind, wrong, 1_000))


# --- with real processes ----------------------------------------------------------------------------------------------


@pytest.mark.full
def test_jax_with_one_order_is_right_and_with_opposite_orders_is_not() -> None:
    right, opposite = order.CASES[0], order.CASES[3]
    assert order.without(right, 20) == order.Outcome("ended", 80, 0)
    found = order.without(opposite, 20)
    assert found.wrong or found.how != "ended"


@pytest.mark.full
def test_four_clients_under_seaway_are_all_right() -> None:
    found = order.under_seaway(80)
    assert (found.gangs, found.looks, found.wrong) == (80, 4, 0)
