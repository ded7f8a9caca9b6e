"""Sessions are ambient and close in order. Functions and programs are declarations that belong to no session."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import seaway as sw
from core.schedule.policy import Policy, Ready, Stride, Ticket
from seaway.sessions.simulated import driver
from tests.seaway.small_sessions import small

two = sw.slice(devices=2)
step = sw.synthetic("step", devices=two, duration="100us")
ZERO = np.float32(0)


OUTSIDE = [
    lambda: step(ZERO), lambda: sw.program(lambda v: step(v), name="f")(ZERO), lambda: sw.put(ZERO, devices=two),
    lambda: sw.now(), lambda: sw.sleep("1s"), lambda: sw.client("a"), lambda: sw.spawn(print),
]  # fmt: skip


@pytest.mark.parametrize("call", OUTSIDE)
def test_a_call_outside_any_session_names_the_fix(call: Any) -> None:
    with pytest.raises(sw.errors.NoSession, match=r"with sw\.simulate\('A'\)"):
        call()


def test_a_tree_without_arrays_is_put_without_a_session() -> None:
    assert sw.put({"a": [], "b": None}) == {"a": [], "b": None}


def test_the_innermost_session_is_used() -> None:
    with small() as outer:
        x = step(ZERO)
        with small() as inner:
            step(ZERO).block_until_ready()
        step(x).block_until_ready()
    assert [len(outer.trace.core), len(inner.trace.core)] == [2, 1]


def test_one_program_runs_in_many_sessions() -> None:
    f = sw.program(lambda v: step(step(v)), name="f")
    ends = []
    for _ in range(2):
        with small() as s:
            f(ZERO).block_until_ready()
            ends.append(s.driver.now())
    assert ends[0] == ends[1]


def test_leaving_a_session_waits_for_runs_under_way() -> None:
    with small() as s:
        step(step(ZERO))
    assert s.driver.now() > 200_000
    assert [row["ended"] > 0 for row in s.trace.core.rows("gangs")] == [True, True]


def test_a_closed_session_refuses_calls() -> None:
    with small(values="compute") as s:
        x, y = step(np.float32(3)), step(np.float32(4))
        float(x)
    assert float(x) == 3.0, "contents that were read stay"
    assert x.is_ready()
    with pytest.raises(sw.errors.SessionClosed, match="inside its `with` block"):
        float(y)
    with pytest.raises(sw.errors.SessionClosed), s:
        pass
    assert "closed" in repr(s)


def test_a_run_can_be_cancelled() -> None:
    slow = sw.synthetic("slow", devices=two, duration="10ms")
    with small() as s:
        last = [slow(ZERO) for _ in range(5)][-1]
        assert last.run is not None
        last.run.cancel()
        with pytest.raises(sw.errors.Cancelled, match=r"cancelled by its client.*'slow'"):
            last.block_until_ready()
        step(ZERO).block_until_ready()
        assert "failed: [cancelled]" in repr(last)
        assert s.driver.now() > 0


def test_the_error_of_a_run_is_raised_where_its_result_is_waited_for_and_the_session_goes_on() -> None:
    with small(fidelity="exact") as s:
        s.simulation.trouble.fail_gang(0, "step", "it divided by zero")
        x = step(ZERO)
        y = step(x)
        for array in (x, y):
            with pytest.raises(sw.errors.RunError, match=r"\[user\] it divided by zero .*'step'.*host 0"):
                array.block_until_ready()
        assert step(ZERO).block_until_ready().is_ready()


def test_a_failure_that_was_not_seen_is_reported_at_the_end() -> None:
    def unseen() -> None:
        with small(fidelity="exact") as s:
            s.simulation.trouble.fail_gang(0, "step")
            step(ZERO)

    with pytest.warns(RuntimeWarning, match=r"1 run failed, and nobody waited.*'step'.*divided by zero"):
        unseen()


def test_slices_without_names_are_named_in_the_order_of_use() -> None:
    with small() as s:
        made = [sw.slice(devices=1) for _ in range(3)]
        sw.put(ZERO, devices=made[2])
        sw.put(ZERO, devices=sw.slice(devices=1, name="mine"))
        sw.put(ZERO, devices=made[0])
        assert [s.main.name_of(made[2]), s.main.name_of(made[0])] == ["slice0", "slice2"]


def test_sequential_dispatch_is_slower_along_a_chain() -> None:
    stages = [sw.synthetic(f"s{n}", devices=sw.slice(devices=1, name=f"d{n}"), duration="1us") for n in range(4)]

    @sw.program
    def chain(v: Any) -> Any:
        for stage in stages:
            v = stage(v)
        return v

    def took(**options: Any) -> int:
        with small(hosts=4, **options):
            return int(chain(ZERO).ready_at)

    assert took(dispatch="sequential") > took()


class NewestFirst(Policy):
    """Newest first."""

    def pick(self, ready: Ready, now: int) -> Ticket:
        return max(ready, key=lambda ticket: ticket.number)


@pytest.mark.parametrize("policy", [None, "stride:lead=2", Stride, Stride(lead=3), NewestFirst, lambda: NewestFirst()])
def test_a_policy_is_given_as_a_name_a_policy_or_a_factory(policy: Any) -> None:
    with small(policy=policy):
        step(ZERO).block_until_ready()


def test_a_cluster_is_given_as_a_name_with_changes() -> None:
    assert sw.simulate("B", hosts=2).simulation.cluster.hosts == 2
    with pytest.raises(sw.errors.Impossible, match="hosst"):
        sw.simulate("B", hosst=2)  # type: ignore[call-arg]


def test_only_a_simulation_has_the_attributes_of_simulations() -> None:
    with small() as s:
        assert s.env is s.simulation.env
        with pytest.raises(AttributeError, match="no attribute 'simulaton'"):
            s.simulaton  # type: ignore[attr-defined]  # noqa: B018


def test_an_error_in_a_property_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """An AttributeError inside a property does not mean that the session has no such attribute."""
    with small() as s:
        step(ZERO).block_until_ready()
        with monkeypatch.context() as patch:
            patch.setattr(s.driver, "trace", lambda: getattr(ZERO, "gangs"))  # noqa: B009 - what is not there
            with pytest.raises(AttributeError, match=r"'numpy\.float32' object has no attribute 'gangs'"):
                s.trace  # noqa: B018
        assert len(s.trace.core) == 1


def test_long_operations_show_their_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver, "PATIENCE", 0.0)
    monkeypatch.setattr(driver, "STEP", 0.001)
    with small() as s:
        shown = driver.Progress(s.simulation, show=True)
        for _ in range(2000):
            step(ZERO)
        s.trace  # noqa: B018 - it waits
        shown.close()
    assert re.search(r"simulated .* ms, [\d,]+ gangs, [\d,]+ a second", capsys.readouterr().err)
    assert driver.Progress(s.simulation, show=False)._thread is None


@pytest.mark.parametrize(("given", "fanout"), [({"window": 4}, 64), ({"fanout": 3}, 3), (None, 64), ({}, 64)])
def test_options_do_not_change_the_fanout_of_the_profile(given: Any, fanout: int) -> None:
    """`paper` is flat, whatever else is set."""
    with small(hosts=64, profile="paper", config=given) as s:
        assert s.simulation.config.fanout == fanout
