"""Every error of a fault names the array or the program that is lost, in whatever phase the fault met it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import seaway as sw
from core.protocol import Blame
from seaway.sessions.array_groups import ClientBuffer, DescribedArray
from seaway.sessions.arrays import Run
from sim.simulation.faults import Fault

HOST = Blame("host-lost", "host 1 of island 'i0' was lost: silence", host=1)
NAMED = "[host-lost] what was put on slice 'all' is lost: host 1 of island 'i0' was lost: silence (host 1)"
MS = 1_000_000


def put() -> ClientBuffer:
    about: Any = DescribedArray(None, None, None, "what was put on slice 'all'")  # type: ignore[arg-type]
    return ClientBuffer(None, 1, about)  # type: ignore[arg-type]


@pytest.mark.parametrize("ready_at", [-1, 7])
def test_a_put_that_a_fault_ends_is_named_whether_it_was_ready_or_under_way(ready_at: int) -> None:
    buffer = put()
    buffer.ready_at = ready_at
    buffer.lost(HOST)
    assert str(buffer.blame) == NAMED


def test_a_get_that_a_fault_ends_names_its_array_once() -> None:
    buffer = put()
    buffer.ready(7)
    buffer.spoil(HOST)
    assert str(buffer.blame) == NAMED
    buffer.spoil(HOST)
    assert str(buffer.blame) == NAMED


def test_a_result_whose_program_is_named_and_a_put_that_is_refused_say_no_more() -> None:
    for blame in (Blame("host-lost", "host 1 was lost", "step", host=1), Blame("refused", "there is island 'i0'")):
        buffer = put()
        buffer.lost(blame)
        assert buffer.blame == blame


def test_a_run_that_a_restart_ended_names_its_program() -> None:
    restart = Blame("restart", "the controller was restarted while this ran")
    run = Run(None, 1, "train")  # type: ignore[arg-type]
    assert str(run._final(restart, ())) == f"{restart} (program 'train')"
    inner = Blame("user", "it broke", "step", "node")
    assert run._final(inner, ()) == inner


def test_a_put_under_way_to_a_host_that_is_lost_is_named() -> None:
    everywhere = sw.slice(devices=16, name="all")
    with sw.simulate(
        "B", hosts=4, devices_per_host=4, faults=(Fault(MS, "crash_host", 2), Fault(40 * MS, "return_host", 2))
    ):
        x = sw.put(np.zeros(1 << 28, np.float32), devices=everywhere)
        with pytest.raises(sw.errors.RunError, match=r"what was put on slice 'all' is lost: host 2"):
            x.block_until_ready()
