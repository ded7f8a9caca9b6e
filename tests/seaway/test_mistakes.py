"""Mistakes of beginners: each is one error, which names what was given and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import seaway as sw

from .small_sessions import small

two = sw.slice(devices=2, name="two")
step = sw.synthetic("step", devices=two, duration="1ms")
ZERO = np.float32(0)
ERRORS = (sw.errors.SeawayError, TypeError, ValueError)

SIMULATE: list[tuple[dict[str, Any], str]] = [
    ({"cluster": 4}, "cluster=4: a name like 'A'"),
    ({"policy": lambda: 3}, "made 3, which is no Policy"),
    ({"noise": 3}, "noise=3: a dict of settings"),
    ({"noise": {"stragglers": "many"}}, "noise: stragglers='many': Expected `float`"),
    ({"config": {"window": "3"}}, "config: window='3': Expected `int`"),
    ({"config": {"window": 0}}, "config: window=0: at least 1"),
    ({"config": {"windw": 4}}, "did you mean 'window'"),
    ({"fidelity": "rough"}, "'cohort', or 'exact'"),
    ({"noise": {"latncy": 1}}, "did you mean 'latency'"),
    ({"noise": {"latency": "5 miles"}}, "has an unknown unit"),
    ({"seed": "x"}, "whole number"),
    ({"sizes": []}, "empty list"),
    ({"values": []}, r"values=\[\]: 'shapes', 'compute'"),
    ({"sizes": -1}, r"sizes\['\*'\]=-1: a number of rows is not negative"),
    ({"dispatch": "both"}, r"sw\.simulate\(dispatch='both'\): 'parallel'"),
    ({"retries": None}, r"sw\.simulate\(retries=None\): a number; 0 for none"),
    ({"progress": "yes"}, "progress='yes': True, False, or None"),
    ({"faults": ["crash"]}, r"a list, such as \[sw.fault"),
]


@pytest.mark.parametrize(("options", "said"), SIMULATE)
def test_invalid_options_of_a_simulation_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ERRORS, match=said):
        sw.simulate(**options)


IN_A_SESSION: list[tuple[Callable[[], Any], str]] = [
    (lambda: two.sharding("q"), "no axis 'q'; its axes: x"),
    (lambda: sw.client(3), "client's name is a text"),  # type: ignore[arg-type]
    (lambda: sw.client("b", weight=0), "at least 1"),
]


@pytest.mark.parametrize(("call", "said"), IN_A_SESSION)
def test_invalid_calls_in_a_session_are_refused(call: Callable[[], Any], said: str) -> None:
    with small(), pytest.raises((*ERRORS, sw.errors.RunError), match=said):
        call()


def test_an_array_cannot_be_used_in_a_session_inside_its_own() -> None:
    with small():
        x = step(ZERO)
        with small(), pytest.raises(sw.errors.NotNow, match="lies in another session, and arrays do not leave theirs"):
            step(x)


@pytest.mark.parametrize("call", [lambda s: s.sleep(1), lambda s: s.client("a")])
def test_calls_in_a_closed_session_are_refused(call: Callable[[sw.Session], Any]) -> None:
    with small() as s:
        step(ZERO)
    with pytest.raises(sw.errors.SessionClosed, match=r"closed.*open another one"):
        call(s)
