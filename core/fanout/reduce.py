"""Combines reports of the same kind about the same step, from all hosts that a relay waits for, into one report.

Hosts are merged into spans, sizes into their maximum, pieces into their sum; what one host says about compiled code is
kept. Reports with different blames stay apart. If blames differ only in the host that they name, the blame from the
lowest host is kept, so the order in which reports come does not matter.

Neighbours: `relay` keeps one `Reduction` for each step and kind of report; a simulator's cohorts combine with the
same rules. Read `Reduction.add` first.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec

from ..model import Spans, spans
from ..protocol import Arrived, Blame, Compiled, Done, Enqueued, PieceCounts

Combined = Done | Enqueued | Compiled | PieceCounts | Arrived
Cause = tuple[str, str, str, str]


class Participants:
    """The hosts from which a relay expects reports: all (`need`), and by source (`parts`).

    A source is a child of the relay, or the relay's own host.
    """

    __slots__ = ("need", "parts")

    def __init__(self, hosts: Spans, sources: dict[int, Spans]) -> None:
        parts = {source: spans.meet(hosts, below) for source, below in sources.items()}
        self.parts = {source: part for source, part in parts.items() if part}
        self.need = spans.union(*self.parts.values())


NOBODY = Participants(spans.EMPTY, {})


class EqualReports(msgspec.Struct, eq=False):
    """The combined reports with equal blames, or without blame."""

    blame: Blame | None
    first: int  # the lowest host among them
    hosts: list[Spans] = []
    sizes: tuple[int, ...] = ()
    pieces: dict[int, int] = {}
    about: bytes = b""  # one host says it


class Reduction:
    """The reports of one kind about one step that have come so far, and the hosts whose reports are missing."""

    __slots__ = ("_groups", "_participants", "_taken", "left")

    def __init__(self, participants: Participants = NOBODY) -> None:
        self._participants = participants
        self._groups: dict[Cause | None, EqualReports] = {}
        self._taken = False  # whether reports have been taken already
        self.left = dict(participants.parts)  # source -> hosts whose reports are missing

    def add(self, source: int, report: Combined) -> Spans:
        """Add the report for the hosts whose report was missing. Return the hosts that are not expected at all.

        A host whose report has come already is ignored.
        """
        hosts = report.hosts
        missing = self.left.get(source)
        if missing == hosts:
            del self.left[source]
            self.put(report, hosts)
            return spans.EMPTY
        if missing is not None:
            fresh, later = spans.meet(hosts, missing), spans.minus(missing, hosts)
            if later:
                self.left[source] = later
            else:
                del self.left[source]
            if fresh:
                self.put(report, fresh)
        return spans.minus(hosts, self._participants.parts.get(source, spans.EMPTY))

    def put(self, report: Combined, hosts: Spans) -> None:
        """Add the report for these hosts, whether or not they were expected."""
        blame = report.blame if type(report) is Done or type(report) is Compiled else None
        cause = None if blame is None else (blame.code, blame.cause, blame.program, blame.node)
        group = self._groups.get(cause)
        first = hosts[0][0]
        if group is None:
            group = self._groups[cause] = EqualReports(blame, first)
        elif first < group.first:
            group.first, group.blame = first, blame
        group.hosts.append(hosts)
        if type(report) is Done:
            if report.sizes:
                group.sizes = _largest(group.sizes, report.sizes)
        elif type(report) is Compiled:
            group.about = report.about or group.about
        elif type(report) is PieceCounts:
            for receiver, pieces in report.pieces:
                group.pieces[receiver] = group.pieces.get(receiver, 0) + pieces

    def take(self, like: Combined) -> list[Combined]:
        """Return what has come since the last call, as one report for each blame, in the order of hosts."""
        groups, self._groups = self._groups, {}
        whole = len(groups) == 1 and not self.left and not self._taken and self._participants is not NOBODY
        self._taken = True
        if whole:
            (group,) = groups.values()
            return [REPORTS[type(like)](like, self._participants.need, group)]
        ordered = sorted(groups.values(), key=attrgetter("first"))
        return [REPORTS[type(like)](like, spans.union(*group.hosts), group) for group in ordered]


def _largest(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
    return tuple(max(pair) for pair in zip(longer, shorter, strict=False)) + longer[len(shorter) :]


# How to make one report of each kind. `like` is any of the reports that were combined.
REPORTS: dict[type, Callable[[Any, Spans, EqualReports], Combined]] = {
    Done: lambda like, hosts, group: Done(like.seq, hosts, group.blame, group.sizes),
    Enqueued: lambda like, hosts, group: Enqueued(like.seq, hosts),
    Arrived: lambda like, hosts, group: Arrived(like.seq, hosts),
    Compiled: lambda like, hosts, group: Compiled(like.plan, like.code, hosts, group.blame, group.about),
    PieceCounts: lambda like, hosts, group: PieceCounts(like.transfer, hosts, tuple(sorted(group.pieces.items()))),
}
