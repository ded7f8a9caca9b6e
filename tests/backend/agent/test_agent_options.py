"""What an agent's command line is refused for, before anything is started."""

from __future__ import annotations

import grpc
import pytest

from backend.agent.agent_cli import _words, check, options
from backend.auth import AccessRefused
from backend.node import CallError


def refused(*words: str) -> str:
    with pytest.raises(AccessRefused) as error:
        check(options().parse_args(words))
    return str(error.value)


def test_a_controllers_address_has_a_port_or_gets_the_usual_one() -> None:
    chosen = options().parse_args(["--controller", "head"])
    check(chosen)
    assert chosen.controller == "head:29000"
    assert "--controller http://head:1: an address is like 'grpc://head:29000'" in refused(
        "--controller", "http://head:1"
    )


def test_hosts_of_one_process_cannot_share_a_port() -> None:
    many = ("--controller", "head", "--platform", "timed", "--hosts", "3")
    check(options().parse_args([*many, "--advertise", "10.0.0.1"]))
    assert refused(*many, "--bind", "10.0.0.1:29001") == (
        "--bind 10.0.0.1:29001: each of 3 hosts in one process needs a port of its own. Leave the choice to them: "
        "--bind 10.0.0.1:0"
    )
    assert refused(*many, "--advertise", "10.0.0.1:29001").endswith("--advertise 10.0.0.1")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--hosts", "0"), "--hosts 0: at least 1"),
        (("--devices", "-1"), "--devices -1: at least 0"),
        (("--memory", "-1"), "--memory -1: at least 0"),
        (("--hosts", "2", "--platform", "cpu"), "--hosts 2: only timed devices"),
    ],
)
def test_impossible_numbers_are_refused(words: tuple[str, ...], says: str) -> None:
    assert says in refused("--controller", "head", *words)


def test_an_agent_with_a_wrong_token_names_the_controller_and_the_option() -> None:
    wrong = CallError("the token is wrong or missing", grpc.StatusCode.UNAUTHENTICATED)
    assert _words(wrong, "head:29000") == (
        "the controller at head:29000 refused our credentials: the token is wrong or missing. Give --token-file, the "
        "cluster's token"
    )
