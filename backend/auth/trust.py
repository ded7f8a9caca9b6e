"""Whether an agent trusts its clients' code, and what untrusted code may be and use; with the options for both.

This module does not import JAX, which reads the environment when it is imported. Neighbours: `agent_cli`,
`sandbox.code_gate`, `seaway.cli`.
"""

import argparse

import msgspec

from ..contents import CALLBACK_S
from .access import AccessRefused, is_loopback

LARGEST = 32 << 20  # bytes of one computation's code; no message is larger


class Rules(msgspec.Struct, frozen=True):
    """What clients' code may be and use, as the agent's options say."""

    more: tuple[str, ...] = ()  # foreign functions that are allowed besides the built-in list
    seconds: float = 600.0  # longest compilation
    memory: int = 0  # bytes that a compilation may use; 0: what the machine has
    largest: int = LARGEST
    callback_seconds: float = CALLBACK_S  # for which a program waits for a function of its client's process


def add_options(found: argparse.ArgumentParser) -> None:
    group = found.add_argument_group(
        "clients' code",
        "Code of clients that are not trusted is first read and compiled in a child process. Foreign functions (custom "
        "calls) are allowed by a list; calls into Python only if a door answers them. Give --cache, or code is "
        "compiled twice.",
    )
    add_trust(group)
    add = group.add_argument
    add(
        "--check-seconds",
        type=float,
        default=Rules().seconds,
        help="how long the compilation of one computation may take, in seconds (%(default)g)",
    )
    add(
        "--check-memory",
        type=int,
        default=0,
        help="bytes that the compilation of one computation may use; 0: what the machine has",
    )
    add(
        "--callback-seconds",
        type=float,
        default=15.0,
        help="how long a program of a door waits for a function of its client's process, in seconds (%(default)g; "
        "other hosts give up a collective after 20)",
    )


def add_trust(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--trust-clients",
        action=argparse.BooleanOptionalAction,
        help="compile clients' code unchecked; default: only for an agent on loopback that ends with the process that "
        "started it (--with-parent), as those of `sw.local` and `seaway up` do",
    )
    group.add_argument(
        "--allow-custom-call",
        action="append",
        default=[],
        metavar="NAME",
        help="a foreign function that clients' code may call besides those of the built-in list; may be repeated",
    )


def words_of(given: argparse.Namespace) -> list[str]:
    """The same options as words, for an agent that this process starts."""
    trust = {None: [], True: ["--trust-clients"], False: ["--no-trust-clients"]}
    words = list(trust[given.trust_clients])
    for name in given.allow_custom_call:
        words += ["--allow-custom-call", name]
    return words


def rules_of(chosen: argparse.Namespace) -> Rules | None:
    """The rules for clients' code; None: clients are trusted."""
    if chosen.check_seconds <= 0 or chosen.check_memory < 0 or chosen.callback_seconds <= 0:
        raise AccessRefused("--check-seconds and --callback-seconds must be more than 0, and --check-memory at least 0")
    trusted = chosen.trust_clients
    if trusted is None:
        trusted = chosen.with_parent and is_loopback(chosen.bind)
    if trusted:
        return None
    return Rules(tuple(chosen.allow_custom_call), chosen.check_seconds, chosen.check_memory)
