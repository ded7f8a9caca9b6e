"""Mistakes of beginners: each is one error, which names what was given and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import seaway as sw
from seaway.cli import main

from .small_sessions import small

two = sw.slice(devices=2, name="two")
step = sw.synthetic("step", devices=two, duration="1ms")
large = sw.synthetic("large", devices=sw.slice(devices=64, name="large"), duration="1ms")
ZERO = np.float32(0)
ERRORS = (sw.errors.SeawayError, TypeError, ValueError)

SIMULATE: list[tuple[dict[str, Any], str]] = [
    ({"cluster": "Z"}, "no cluster 'Z'; there is: 'A'"),
    ({"cluster": 4}, "cluster=4: a name like 'A'"),
    ({"cluster": None}, "cluster=None: a name like 'A'"),
    ({"polcy": "stride"}, r"no option 'polcy' \(did you mean 'policy'\?\)"),
    ({"host": 2}, r"no option 'host' \(did you mean 'hosts'\?\)"),
    ({"policy": "strid"}, "did you mean 'stride'"),
    ({"policy": dict}, "which is no Policy: subclass sw.policies.Policy"),
    ({"policy": lambda: 3}, "made 3, which is no Policy"),
    ({"profile": 3}, "profile=3: 'paper', 'seaway'"),
    ({"noise": 3}, "noise=3: a dict of settings"),
    ({"noise": {"stragglers": "many"}}, "noise: stragglers='many': Expected `float`"),
    ({"config": {"window": "3"}}, "config: window='3': Expected `int`"),
    ({"config": {"window": 0}}, "config: window=0: at least 1"),
    ({"config": {"windw": 4}}, "did you mean 'window'"),
    ({"fidelity": "rough"}, "'cohort', or 'exact'"),
    ({"noise": {"latncy": 1}}, "did you mean 'latency'"),
    ({"noise": {"latency": "5 miles"}}, "has an unknown unit"),
    ({"costs": "cheap"}, "costs='cheap'"),
    ({"seed": "x"}, "whole number"),
    ({"sizes": []}, "empty list"),
    ({"values": []}, r"values=\[\]: 'shapes', 'compute'"),
    ({"sizes": -1}, r"sizes\['\*'\]=-1: a number of rows is not negative"),
    ({"dispatch": "both"}, r"sw\.simulate\(dispatch='both'\): 'parallel'"),
    ({"retries": None}, r"sw\.simulate\(retries=None\): a number; 0 for none"),
    ({"progress": "yes"}, "progress='yes': True, False, or None"),
    ({"faults": ["crash"]}, "a list of sim.simulation.Fault"),
]


@pytest.mark.parametrize(("options", "said"), SIMULATE)
def test_invalid_options_of_a_simulation_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ERRORS, match=said):
        sw.simulate(**options)


def in_another() -> Any:
    with small():
        x = step(ZERO)
        with small():
            return step(x)


def of_a_closed_one() -> Any:
    with small():
        x = step(ZERO)
    with small():
        return step(x)


def closed() -> sw.Session:
    with small() as s:
        step(ZERO)
    return s


IN_A_SESSION: list[tuple[Callable[[], Any], str]] = [
    (lambda: large(ZERO).block_until_ready(), "asks for 64 devices. The nearest that would fit: 4 devices"),
    (lambda: np.asarray(step(ZERO)), r"has no contents.*values='compute'"),
    (lambda: two.sharding("q"), "no axis 'q'; its axes: x"),
    (lambda: sw.slice(devices=4, mesh={"a": 2}), r"mesh=\{'a': 2\}\): that mesh has 2 devices"),
    (lambda: sw.client(3), "client's name is a text"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "said"), IN_A_SESSION)
def test_invalid_calls_in_a_session_are_refused(call: Callable[[], Any], said: str) -> None:
    with small(), pytest.raises((*ERRORS, sw.errors.RunError), match=said):
        call()


def test_an_array_cannot_be_used_in_another_session() -> None:
    with pytest.raises(sw.errors.NotNow, match="lies in another session, and arrays do not leave theirs"):
        in_another()
    with pytest.raises(sw.errors.NotNow, match="another session that is closed"):
        of_a_closed_one()


@pytest.mark.parametrize("call", [lambda s: s.sleep(1), lambda s: s.client("a"), lambda s: s.open()])
def test_calls_in_a_closed_session_are_refused(call: Callable[[sw.Session], Any]) -> None:
    s = closed()
    with pytest.raises(sw.errors.SessionClosed, match=r"closed.*open another one"):
        call(s)


WEIGHTS = [
    ("stride:1,x", "weights, whole numbers like stride:1,2,4"),
    ("stride:-1", "weights, whole numbers"),
    ("stride:1,2,lead=3", "or the policy's options, like stride:lead=3"),
    ("fifo:1,2", "fifo does not use weights, stride does; for 2 equal clients, --policy fifo --clients 2"),
]


@pytest.mark.parametrize(("policy", "said"), WEIGHTS)
def test_invalid_weights_on_the_command_line_are_refused(policy: str, said: str, tmp_path: Any, capsys: Any) -> None:
    program = tmp_path / "empty.py"
    program.write_text("")
    assert main(["simulate", str(program), "--policy", policy]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"seaway: --policy {policy}: ")
    assert said in error
    assert "Traceback" not in error
