"""Whether an agent trusts its clients' code; and where it does not, what that may be and take. The options for it.

Without JAX, which looks at the environment when it is imported. Neighbours: `agent_cli`, `pjrt.code_gate`,
`seaway.cli`.
"""

from __future__ import annotations

import argparse

import msgspec

from .access import Refused, is_loopback

LARGEST = 32 << 20  # bytes of one computation's code: no message is larger


class Rules(msgspec.Struct, frozen=True):
    """What clients' code may be and take, as whoever runs the agent has said."""

    more: tuple[str, ...] = ()  # foreign functions that are allowed besides the list
    seconds: float = 600.0  # to compile in
    memory: int = 0  # bytes that compiling may take; 0: what the machine has
    largest: int = LARGEST


def add_options(found: argparse.ArgumentParser) -> None:
    group = found.add_argument_group(
        "clients' code",
        "Code of clients that are not trusted is read and compiled in a child process first, foreign functions (custom "
        "calls) are let in by a list, and Python callbacks never. Give --cache, or it is compiled twice.",
    )
    add_trust(group)
    add = group.add_argument
    add(
        "--check-seconds",
        type=float,
        default=Rules().seconds,
        help="that one computation may take to be compiled (%(default)g)",
    )
    add(
        "--check-memory",
        type=int,
        default=0,
        help="bytes that compiling one may take; 0: what the machine has",
    )


def add_trust(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--trust-clients",
        action=argparse.BooleanOptionalAction,
        help="compile clients' code unchecked; default: only an agent on loopback that ends with the process that "
        "started it (--with-parent), as those of `sw.local` and `seaway up` do",
    )
    group.add_argument(
        "--allow-custom-call",
        action="append",
        default=[],
        metavar="NAME",
        help="a foreign function that clients' code may call besides those of the list; may be repeated",
    )


def words_of(given: argparse.Namespace) -> list[str]:
    """The same, for an agent that is started with what was given to us."""
    trust = {None: [], True: ["--trust-clients"], False: ["--no-trust-clients"]}
    words = list(trust[given.trust_clients])
    for name in given.allow_custom_call:
        words += ["--allow-custom-call", name]
    return words


def rules_of(chosen: argparse.Namespace) -> Rules | None:
    """None: clients are trusted."""
    if chosen.check_seconds <= 0 or chosen.check_memory < 0:
        raise Refused("--check-seconds is more than 0, and --check-memory at least that")
    trusted = chosen.trust_clients
    if trusted is None:
        trusted = chosen.with_parent and is_loopback(chosen.bind)
    if trusted:
        return None
    return Rules(tuple(chosen.allow_custom_call), chosen.check_seconds, chosen.check_memory)
