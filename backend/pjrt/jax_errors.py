"""Turns JAX's errors into core's blames: whose fault it is, and the error's text.

A collective that fails because a peer is gone fails here, too, with a text of the transport. Its blame is "peer", and
core waits for the lease to find out which host is gone. Gloo's texts name its source files; users get plain words, and
this process's log keeps the text.
"""

import logging
import re

from core.protocol import Blame

from ..contents import CallbackFault

log = logging.getLogger("seaway.pjrt")
JAX_OWN = ("XlaRuntimeError", "JaxRuntimeError")  # these add nothing to their texts; nor do ours
LONGEST = 2000  # characters; a compiler's error can be much longer
SHORT = 300  # characters of an error text that is quoted within another

PEERS = re.compile(
    r"gloo|nccl|rendezvous|connection (reset|closed|refused|timed out)|socket closed|peer|heartbeat"
    r"|coordination service|UNAVAILABLE|DEADLINE_EXCEEDED|collective (operation )?timed? ?out|CollectiveTimeout",
    re.IGNORECASE,
)
GLOO = re.compile(r"\bGloo [\w -]+ (failed|timed out): |/gloo/transport/")
NOT_MADE = re.compile(r"context initialization|connect(ing)? timeout|timed out connecting", re.IGNORECASE)
WIRES = {  # what happened to a connection, and how Gloo or the kernel says so
    "closed": re.compile(r"closed|broken pipe|short (read|write)", re.IGNORECASE),
    "reset": re.compile(r"reset", re.IGNORECASE),
    "refused": re.compile(r"refused", re.IGNORECASE),
    "unreachable": re.compile(r"no route to host|unreachable", re.IGNORECASE),
    "timed out": re.compile(r"time(d )?-?out|DEADLINE_EXCEEDED", re.IGNORECASE),
}
MEMORY = re.compile(r"RESOURCE_EXHAUSTED|out of memory", re.IGNORECASE)


class CompilerFault(Exception):
    """This host could not compile something, for a cause other than its code: another attempt may succeed."""


def of(error: BaseException, *, together: bool = False) -> Blame:
    """The blame for an error. `together`: other hosts took part, so it may be their fault."""
    text = text_of(error)
    if isinstance(error, CallbackFault):
        return Blame("user", text)
    if isinstance(error, CompilerFault):
        return Blame("code", text)
    if together and PEERS.search(str(error)):
        return Blame("peer", text)
    if MEMORY.search(text):
        return Blame("no-memory", text)
    return Blame("user", text)


def text_of(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    kind = type(error)
    named = kind.__name__
    ours = kind.__module__.startswith(("backend.", "core."))
    if not ours and GLOO.search(text):
        log.info("a collective failed: %s", text)
        return _of_gloo(text)
    if not ours and named not in JAX_OWN and named not in text:
        text = f"{named}: {text}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text)} characters in all)"


def short(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= SHORT else f"{text[:SHORT]} ..."


def _of_gloo(text: str) -> str:
    how = next((f" ({how})" for how, said in WIRES.items() if said.search(text)), "")
    if NOT_MADE.search(text):
        return f"a connection to another host could not be made for a collective{how}"
    return f"the connection to another host was lost during a collective{how}"
