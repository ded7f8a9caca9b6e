"""Several clients in one program: one thread each, one at a time, in simulated time, with the same turns each time."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest

import seaway as sw
from tests.seaway.small_sessions import small

four = sw.slice(devices=4, name="four")
step = sw.synthetic("step", devices=four, duration="100us", allreduce="4B")
ZERO = np.float32(0)
S = 1_000_000_000


def loop(count: int) -> float:
    x: Any = ZERO
    for _ in range(count):
        x = step(x)
    x.block_until_ready()
    return sw.now()


def rows(s: sw.Session) -> dict[str, dict[str, Any]]:
    return {row["label"]: row for row in s.trace.core.rows("clients")}


def test_each_client_has_its_name_and_weight() -> None:
    with small() as s:
        with s.client("a", weight=2):
            step(ZERO)
        with s.client("b", priority=1):
            step(ZERO)
        step(ZERO)
        with s.client("a"):
            step(ZERO)
        found = rows(s)
    assert {name: (row["weight"], row["priority"]) for name, row in found.items()} == {
        "a": (2, 0), "b": (1, 1), "main": (1, 0),
    }  # fmt: skip


def test_spawned_clients_run_at_the_same_time() -> None:
    with small() as s:
        alone = s.spawn(loop, 20, name="alone").result()
    with small() as s:
        tasks = [s.spawn(loop, 20, name=f"c{n}") for n in range(3)]
        together = max(task.result() for task in tasks)
    assert together < 1.5 * alone, "the devices work for one client while the host works for the other"


def test_the_same_program_takes_the_same_turns() -> None:
    def mixed(s: sw.Session) -> None:
        for n in range(4):
            s.spawn(loop, 5 + n, name=f"c{n}", weight=n + 1)
            s.sleep("130us")
        loop(3)

    def columns() -> dict[str, dict[str, Any]]:
        with small(policy="stride", seed=3, noise={"latency": "5us"}) as s:
            mixed(s)
        return {name: {k: v.tobytes() for k, v in table.items()} for name, table in s.trace.core.columns().items()}

    assert columns() == columns()


def test_sleep_and_now_use_simulated_time() -> None:
    with small() as s:
        sw.sleep("500ms")
        sw.sleep("20ms")
        assert sw.now() == pytest.approx(0.52)
        assert sw.current_session().driver.now() == s.driver.now() == 520_000_000
        with pytest.raises(sw.errors.SeawayError, match="it is negative"):
            sw.sleep("-1s")


def test_sleeping_clients_do_not_delay_each_other() -> None:
    with small() as s:
        tasks = [s.spawn(sw.sleep, "1s", name=f"c{n}") for n in range(3)]
        for task in tasks:
            task.join()
        assert s.now() == pytest.approx(1.0)


def test_a_task_returns_the_result_of_its_function() -> None:
    with small() as s:
        task = s.spawn(lambda a, b: (a, b), 1, b=2, name="t")
        assert not task.done
        assert task.result() == task.result() == (1, 2)
        assert task.done


# --- errors -------------------------------------------------------------------------------------------------


class Broken(Exception):
    pass


def breaks() -> None:
    loop(2)
    raise Broken("in the client")


def test_an_exception_of_a_client_is_raised_where_it_is_waited_for() -> None:
    with small() as s:
        other = s.spawn(loop, 10)
        with pytest.raises(Broken):
            s.spawn(breaks).result()
        other.join()
        loop(1)


def test_an_exception_that_was_not_waited_for_is_raised_at_the_end() -> None:
    def unseen() -> None:
        with small() as s:
            s.spawn(breaks)
            s.spawn(loop, 10)

    with pytest.raises(Broken):
        unseen()


def test_an_exception_of_the_main_thread_ends_all_clients() -> None:
    ended: list[str] = []

    def endless() -> None:
        try:
            while True:
                loop(1)
        finally:
            ended.append("endless")

    def disorder() -> None:
        with small() as s:
            s.spawn(endless)
            loop(3)
            raise Broken

    with pytest.raises(Broken):
        disorder()
    assert ended == ["endless"]
    assert not [thread for thread in threading.enumerate() if thread.name == "endless"]


def test_a_wait_that_cannot_end_is_an_error_that_names_it() -> None:
    alone = sw.slice(devices=4, name="alone", exclusive=True)
    with small() as s:
        with s.client("a"):
            kept = sw.put(ZERO, devices=alone).block_until_ready()
        with s.client("b"):
            wanted = sw.put(ZERO, devices=alone)
            with pytest.raises(sw.errors.Stalled, match="client 'b' waits for what was put on slice 'alone'"):
                wanted.block_until_ready()
        with s.client("a"):
            kept.delete()
            s.release(alone)


@pytest.mark.parametrize("fidelity", ["cohort", "exact"])
def test_releasing_a_slice_that_is_not_held_does_nothing(fidelity: Any) -> None:
    never = sw.slice(devices=2)
    with small(fidelity=fidelity) as s:
        s.release(never)
        s.release(sw.slice(devices=2, name="never"))
        s.release(four)
        assert step(ZERO).slice is four
        s.release(four)
        s.release(four)
        with s.client("b"):
            s.release(four)
        x = step(ZERO).block_until_ready()
        assert x.run is not None
        assert x.run.blame is None
        assert sw.put(ZERO, devices=never).slice is never
        assert s.client("main").name_of(never) == "slice1", "the second slice that was used, not the fourth"
        with pytest.raises(TypeError, match=r"session.release\(4\): give the slice itself"):
            s.release(4)  # type: ignore[arg-type]


def test_a_released_slice_keeps_its_arrays_and_gets_devices_anew() -> None:
    mine, yours = (sw.slice(devices=8, exclusive=True, name=name) for name in ("mine", "yours"))
    step = sw.synthetic("step", devices=mine, duration="1ms")
    with small(hosts=1, devices_per_host=8, values="compute") as s:
        x = step(np.arange(3, dtype=np.float32))
        calls = [step(ZERO) for _ in range(3)]
        s.release(mine)
        with s.client("you"):
            assert sw.put(ZERO, devices=yours).block_until_ready().slice is yours
            s.release(yours)
        y = step(x).block_until_ready()
        assert all(call.run is not None and call.run.wait().blame is None for call in calls)
        assert (np.asarray(x).tolist(), np.asarray(y).tolist()) == ([0, 1, 2], [0, 1, 2])


@pytest.mark.parametrize("fidelity", ["cohort", "exact"])
def test_a_run_whose_slice_never_becomes_free_is_an_error_that_names_the_holder(fidelity: Any) -> None:
    """Heartbeats of hosts, and reports of waits, go on for ever. They are no sign of progress."""
    alone = sw.slice(devices=4, name="alone", exclusive=True)
    busy = sw.synthetic("busy", devices=alone, duration="1ms")
    with small(fidelity=fidelity) as s:
        busy(ZERO).block_until_ready()
        with s.client("b"):
            never = busy(ZERO)
            with pytest.raises(sw.errors.Stalled, match="slice 'alone' waits for devices") as caught:
                never.block_until_ready()
        s.close(abort=True)
    assert str(caught.value).count("waits for devices") == 1


# --- the user's own threads ---------------------------------------------------------------------------------


def test_threads_one_after_the_other_work() -> None:
    """The system gives a new thread the identity of one that has just ended, with the turn."""
    with small() as s:
        identities = []
        for _ in range(8):
            thread = threading.Thread(target=loop, args=(5,))
            thread.start()
            thread.join(20)
            assert not thread.is_alive()
            identities.append(thread.ident)
        if len(set(identities)) == len(identities):
            pytest.skip("this system gave no identity twice")
        assert len(s.trace.core) == 40
        loop(1)


def test_a_queue_between_clients_works() -> None:
    """A client waits outside of simulated time for what another client has yet to do: the other client gets the
    turn."""
    found: queue.Queue[float] = queue.Queue()
    with small() as s:
        s.spawn(lambda: found.put(loop(3)))
        assert found.get(timeout=20) > 0
        assert s.now() > 300e-6


def test_a_pool_of_threads_works() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with small() as s, ThreadPoolExecutor(4) as pool:
        ends = list(pool.map(loop, [3] * 8, timeout=30))
        assert len(ends) == 8
        assert len(s.trace.core) == 24


def until_closed() -> None:
    with contextlib.suppress(sw.errors.SeawayError):
        loop(200)


@pytest.mark.parametrize(
    "make", [lambda s: s.spawn(loop, 200), lambda s: threading.Thread(target=until_closed, daemon=True)]
)
def test_nothing_hangs_when_the_session_closes_in_disorder(make: Callable[[sw.Session], Any]) -> None:
    began = time.monotonic()
    threads: list[threading.Thread] = []

    def disorder() -> None:
        with small() as s:
            made = make(s)
            if isinstance(made, threading.Thread):
                threads.append(made)
                made.start()
                time.sleep(0.05)
            raise Broken

    with pytest.raises(Broken):
        disorder()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert time.monotonic() - began < 10


# --- clients that wait for their turn -------------------------------------------------------------------------------


@pytest.mark.parametrize("simulates", [False, True])
def test_a_client_says_that_it_waits_for_one_that_lets_no_time_pass_but_not_for_one_that_simulates_for_long(
    simulates: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seaway.sessions.simulated.turns.PATIENCE", 0.2)

    def busy() -> None:
        until = time.monotonic() + 0.6
        while time.monotonic() < until:
            if simulates:
                step(ZERO).block_until_ready()
            sum(range(100_000))  # most of its time is the user's

    with small() as s:
        s.spawn(busy, name="busy").result()
    assert ("MainThread waits for its turn, which busy has had for" in capsys.readouterr().err) is not simulates


# --- times without news -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fidelity", ["cohort", "exact"])
def test_a_simulation_is_not_stuck_while_a_device_works_or_a_user_sleeps(fidelity: Any) -> None:
    def steps(session: sw.Session) -> Generator[Any, Any, int]:
        for _ in range(2):
            yield session.env.timeout(5000 * S)
        return 7

    with sw.simulate("B", hosts=2, fidelity=fidelity) as s:
        sw.synthetic("long", devices=2, duration="9000s")(ZERO).block_until_ready()
        assert 9000 < s.now() < 9001
        assert s.spawn(steps, s).result() == 7
        assert 19000 < s.now() < 19001


def test_a_loop_of_the_users_that_looks_again_and_again_does_not_hide_that_a_simulation_is_stuck() -> None:
    def looks(session: sw.Session) -> Generator[Any, Any, None]:
        while True:
            yield session.env.timeout(S)

    with sw.simulate("B", hosts=2) as s:
        s.env.process(looks(s))
        driver: Any = s.driver
        with pytest.raises(sw.errors.Stalled, match="nothing more can happen"):
            s.spawn(lambda: driver.turns.wait(lambda: False, "it waits for nothing", s)).result()
