"""What is to become one report: the same word from all hosts that a relay waits for.

Hosts are merged into spans, sizes into their maximum, pieces into their sum. Different blames stay apart;
of equal ones that name different hosts, the one from the first host is kept, whatever the order in which
they came.
"""

from __future__ import annotations

from ..model import Spans, spans
from ..protocol import Arrived, Blame, Compiled, Counted, Done, Enqueued

Combined = Done | Enqueued | Compiled | Counted | Arrived
Cause = tuple[str, str, str, str]
WITH_BLAME = (Done, Compiled)


class Shape:
    """Who takes part below a relay: all of them, and those behind each source (a child, or the host
    itself)."""

    __slots__ = ("need", "parts")

    def __init__(self, hosts: Spans, sources: dict[int, Spans]) -> None:
        parts = {source: spans.meet(hosts, below) for source, below in sources.items()}
        self.parts = {source: part for source, part in parts.items() if part}
        self.need = spans.union(*self.parts.values())


NOBODY = Shape(spans.EMPTY, {})


class Group:
    """Of those that said the same."""

    __slots__ = ("blame", "first", "hosts", "pieces", "sizes")

    def __init__(self, blame: Blame | None, first: int) -> None:
        self.blame = blame
        self.first = first  # the lowest host
        self.hosts: list[Spans] = []
        self.sizes: tuple[int, ...] = ()
        self.pieces: dict[int, int] = {}


class Gather:
    __slots__ = ("_groups", "_shape", "_taken", "left")

    def __init__(self, shape: Shape = NOBODY) -> None:
        self._shape = shape
        self._groups: dict[Cause | None, Group] = {}
        self._taken = False  # some of it has gone up already
        self.left = dict(shape.parts)  # by source: who is still missing

    def add(self, source: int, report: Combined) -> Spans:
        """Take what was waited for. Returns the hosts that were not, and that nothing here will speak for;
        who says the same thing twice is not heard again."""
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
        return spans.minus(hosts, self._shape.parts.get(source, spans.EMPTY))

    def put(self, report: Combined, hosts: Spans) -> None:
        blame = report.blame if isinstance(report, WITH_BLAME) else None
        cause = None if blame is None else (blame.code, blame.cause, blame.program, blame.node)
        first = hosts[0][0]
        group = self._groups.get(cause)
        if group is None:
            group = self._groups[cause] = Group(blame, first)
        elif first < group.first:
            group.first, group.blame = first, blame
        group.hosts.append(hosts)
        if isinstance(report, Done):
            if report.sizes:
                group.sizes = _largest(group.sizes, report.sizes)
        elif isinstance(report, Counted):
            for receiver, pieces in report.pieces:
                group.pieces[receiver] = group.pieces.get(receiver, 0) + pieces

    def take(self, like: Combined) -> list[Combined]:
        """What has been said since it was last taken: one report a blame, in host order."""
        groups, self._groups = self._groups, {}
        whole = len(groups) == 1 and not self.left and not self._taken and self._shape is not NOBODY
        self._taken = True
        return [
            _report(like, self._shape.need if whole else spans.union(*group.hosts), group)
            for group in sorted(groups.values(), key=_first)
        ]


def _first(group: Group) -> int:
    return group.first


def _largest(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
    return tuple(max(pair) for pair in zip(longer, shorter, strict=False)) + longer[len(shorter) :]


def _report(like: Combined, hosts: Spans, group: Group) -> Combined:
    match like:
        case Done():
            return Done(like.seq, hosts, group.blame, group.sizes)
        case Enqueued():
            return Enqueued(like.seq, hosts)
        case Arrived():
            return Arrived(like.seq, hosts)
        case Compiled():
            return Compiled(like.plan, like.code, hosts, group.blame)
        case Counted():
            return Counted(like.transfer, hosts, tuple(sorted(group.pieces.items())))
