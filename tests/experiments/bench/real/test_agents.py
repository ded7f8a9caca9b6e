"""The cost of agents, on a tiny scale: memory is what the system reports for a process, and starts take time."""

from __future__ import annotations

import os
import resource

import pytest

from experiments.bench.real import agents


def test_memory_is_that_of_the_process_alone() -> None:
    found = agents.memory_of(os.getpid())
    assert 10 < found.rss <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1.024 / 1_000
    assert found.pss is None or found.pss <= found.rss


def test_many_hosts_can_be_one_process() -> None:
    found = agents.agent("timed", 8, 1)
    assert found.memory.rss > 10
    assert found.seconds > 0


@pytest.mark.full
def test_a_bare_process_and_a_local_session_are_measured_in_fresh_pythons() -> None:
    assert agents.bare().memory.rss > 50
    assert min(agents.local(1)) > 0
