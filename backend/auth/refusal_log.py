"""Refused callers: how often and why. Writes the log lines, and counts for `cluster_status` and metrics.

    calls, node, health --refuse--> RefusalLogger --note--> RefusalLog --a line, or none yet--> log, at level WARNING

A stranger can choose how often to call and from which address, and must not be able to fill a log or memory. A source
is a kind of refusal and the host from which it comes. Its first refusal is logged at once; further ones are logged
together, a second later. Beyond `SOURCES` sources, the rest share a line for each kind. Each refusal is in one line.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable
from urllib.parse import unquote

KINDS = {
    "token": "without the cluster's token",
    "name": "under a name that is not known here",
    "call": "for a call that does not exist",
    "pass": "with a wrong pass",
    "role": "for what its account may not do",
    "malformed": "for a malformed message",
    "oversized": "with a message that is too large",
    "protocol": "for a message that is not allowed",
    "duplicate": "with a second stream",
    "agent": "as an agent that has no place",
    "version": "that is of another version",
    "busy": "for too many calls",
}
# logged at level INFO: strangers cannot cause them, but hosts that connect to each other do
QUIET = ("duplicate",)
EVERY = 1_000_000_000  # nanoseconds between two lines about one source
SOURCES = 64  # sources that have lines of their own
ELSEWHERE = "other addresses"
WORDS = 200  # longest quotation of a stranger's text in a line, in characters

log = logging.getLogger("seaway.refused")


class RefusalSource:
    """What is to be logged about one source, and when."""

    __slots__ = ("called", "due", "left_out", "why")

    def __init__(self, due: int) -> None:
        self.due, self.left_out, self.called, self.why = due, 0, "", ""


class RefusalLog:
    """Turns refusals into log lines. Time is an argument, in nanoseconds."""

    def __init__(self) -> None:
        self.totals: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self._sources: dict[tuple[str, str], RefusalSource] = {}

    def note(self, kind: str, address: str, called: str, why: str, now: int) -> str | None:
        """Counts a refusal; returns the line to log now. `address`: as gRPC writes it; `called`: call or stream."""
        self.totals[kind] += 1
        host = host_of(address)
        source = self._sources.get((kind, host))
        if source is None and len(self._sources) >= SOURCES:
            host, address = ELSEWHERE, ELSEWHERE
            source = self._sources.get((kind, host))
        if source is None:
            self._sources[kind, host] = RefusalSource(now + EVERY)
            return f"refused ({kind}) {plain(address)} {KINDS[kind]}: {plain(called)}: {plain(why)}"
        source.left_out += 1
        source.called, source.why = called, why
        return None

    def due(self, now: int) -> list[tuple[str, str]]:
        """(kind, line) for refusals that were not logged yet; a source without any is dropped."""
        lines = []
        for (kind, host), source in list(self._sources.items()):
            if now < source.due:
                continue
            if not source.left_out:
                del self._sources[kind, host]
                continue
            last = f"{plain(source.called)}: {plain(source.why)}"
            lines.append(
                (kind, f"refused ({kind}) {plain(host)} {KINDS[kind]}, {source.left_out} more; the last: {last}")
            )
            source.due, source.left_out = now + EVERY, 0
        return lines

    def next_due(self) -> int | None:
        return min((source.due for source in self._sources.values()), default=None)

    def __len__(self) -> int:
        return len(self._sources)


class RefusalLogger:
    """Runs `RefusalLog` with a clock and a log, in an asyncio loop."""

    def __init__(self) -> None:
        self._log = RefusalLog()
        self.totals = self._log.totals  # how many of each kind
        self.callers: dict[str, str] = {}  # address of a connection inside this process -> whose it is
        self._timer: asyncio.TimerHandle | None = None

    def refuse(self, kind: str, address: str, called: str, why: str) -> None:
        line = self._log.note(kind, address, called, why, time.monotonic_ns())
        if line is not None:
            say([(kind, line)])
        if self._timer is None:
            self._arm()

    def address_of(self, peer: str) -> str:
        """The address of the caller whom gRPC names so: calls come to it through `streams.grpc_pipe`."""
        return self.callers.get(peer, peer)

    def close(self) -> None:
        """Logs at once what has not been logged yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        say(self._log.due(time.monotonic_ns() + EVERY))

    def _arm(self) -> None:
        due = self._log.next_due()
        wait = 0.0 if due is None else max(0, due - time.monotonic_ns()) / 1e9
        self._timer = None if due is None else asyncio.get_running_loop().call_later(wait, self._ring)

    def _ring(self) -> None:
        say(self._log.due(time.monotonic_ns()))
        self._arm()


def say(lines: Iterable[tuple[str, str]]) -> None:
    for kind, line in lines:
        log.log(logging.INFO if kind in QUIET else logging.WARNING, "%s", line)


def host_of(address: str) -> str:
    """The host of a peer as gRPC names it: "ipv4:10.0.0.7:41234", "ipv6:%5B::1%5D:41234", "unix:/run/x"."""
    if address.startswith(("ipv4:", "ipv6:")):
        return unquote(address[5:]).rpartition(":")[0] or address
    return address


def plain(text: str) -> str:
    """A stranger's text on one line and of bounded length."""
    short = text if len(text) <= WORDS else f"{text[:WORDS]}..."
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in short)
