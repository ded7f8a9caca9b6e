"""The address at which JAX listens: one of this machine's own, that others may know."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys

import pytest

from backend.admin.children import environment
from backend.agent.agent_machine import direct_address
from tests.machines import Machines, why_not

ELSEWHERE = "203.0.113.1"  # kept for documentation: no machine has it


@pytest.mark.parametrize(
    ("advertised", "bind", "controller"),
    [
        ("127.0.0.1", "127.0.0.1:0", "127.0.0.1:29000"),
        ("localhost", "localhost:29001", "127.0.0.1:29000"),
        ("127.0.0.1", "0.0.0.0:29001", f"{ELSEWHERE}:29000"),
        ("127.0.0.1", "unix:/somewhere", "127.0.0.1:29000"),
    ],
)
def test_an_agent_on_loopback_listens_there(
    advertised: str, bind: str, controller: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert direct_address(advertised, bind, controller) == "127.0.0.1"
    assert not caplog.records


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_an_address_may_be_of_ipv6() -> None:
    assert direct_address("[::1]", "[::1]:29001", "[::1]:29000") == "::1"


def test_an_address_that_is_another_machines_is_not_taken_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert direct_address(ELSEWHERE, "127.0.0.1:29001", "127.0.0.1:29000") == "127.0.0.1"
        assert direct_address(ELSEWHERE, "0.0.0.0:29001", "127.0.0.1:29000") == "127.0.0.1"
    for record in caplog.records:
        assert record.getMessage().startswith(
            f"{ELSEWHERE}, where others reach this agent, is no address of this machine"
        )
        assert "they listen at 127.0.0.1" in record.getMessage()
    assert len(caplog.records) == 2


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_a_name_that_a_machine_has_for_itself_alone_is_not_taken() -> None:
    ask = "import sys; from backend.agent.agent_machine import direct_address as d\n"
    ask += "for bind in sys.argv[1:]: print(d('a', bind, 'head:29000'))"
    with Machines(["head", "a"]) as machines:
        own = machines.addresses["a"]
        words = machines.words("a", sys.executable, "-c", ask, "a:29001", "0.0.0.0:29001", f"{own}:29001")
        said = subprocess.check_output(words, text=True, env=environment({}), stderr=subprocess.DEVNULL)
        assert said.split() == [own] * 3
