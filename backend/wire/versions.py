"""Which Seaway this process is, and whether another one is the same; checked when two processes meet.

    a version           as installed: 0.1.0
    a protocol          a hash of the definitions of all that travels between processes; two checkouts of one version
                        differ in it when one sends what the other would not understand

Both travel beside the messages, in the metadata of calls and streams, and are read before anything is decoded. So a
process whose messages look different is refused with a clear text, too. Neighbours: `calls`, `node`, `access`.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

import grpc

from core.link import codec as wire
from core.link import endpoint, link, packing
from core.model import place, plan, program, topology
from core.protocol import MESSAGES
from core.record import fingerprint, increments, looks

from . import call_messages, framing

HEADER = "seaway-version"
UNKNOWN = "of an older version, which does not say which,"
OTHER = grpc.StatusCode.FAILED_PRECONDITION  # the status that refuses another version
CORE = (*MESSAGES, endpoint, link, packing, place, plan, program, topology, wire, increments, looks)


@cache
def mine() -> str:
    modules: tuple[ModuleType, ...] = (*CORE, call_messages, framing)
    try:
        installed = version("seaway")
    except PackageNotFoundError:
        installed = "that is not installed"
    return f"{installed} (protocol {fingerprint(modules)})"


def shown() -> tuple[tuple[str, str], ...]:
    """The metadata of every call and stream."""
    return ((HEADER, mine()),)


def refusal(metadata: Mapping[str, object]) -> str:
    """The text that refuses a caller of another version; "" if it is the same as ours."""
    theirs = metadata.get(HEADER)
    return "" if theirs == mine() else _text(mine(), theirs)


def answers_otherwise(metadata: Mapping[str, object]) -> str:
    """The text for a process that we called and that has another version; "" if it is the same as ours."""
    theirs = metadata.get(HEADER)
    return "" if theirs == mine() else _text(theirs, mine())


def _text(answers: object, asks: object) -> str:
    there, here = (f"Seaway {each or UNKNOWN}" for each in (answers, asks))
    return (
        f"{there} answers there, and {here} asks: install the same version on every machine of the cluster, and of its "
        f"clients"
    )
