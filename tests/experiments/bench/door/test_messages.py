"""The benchmark of the door's transport: each server answers all messages, and its own CPU time is what is counted."""

from __future__ import annotations

import pytest

from experiments.bench.door import messages


@pytest.mark.parametrize("server", messages.SERVERS)
def test_each_server_answers_all_messages(server: str) -> None:
    assert 1 < messages.cost(server, 100) < 50_000
