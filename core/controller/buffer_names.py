"""Names of several arrays that are counted as one: what a call names apart is counted apart from then on.

A `BufferName` for several arrays, and its `Buffer`, are cut in two where a call, a plan or a failure treats the arrays
differently. A run that knows the record from before finds all of its parts by `BufferName.behind`.

Neighbours: `runs`, `clients` and `contents` ask what calls name; `buffer_refs` counts. The functions that matter:
`called`, `parts`, `cut_arguments`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ..memory import Buffers
from .plan_rows import PlanRows, ResultRow
from .records import BufferName, ClientRecord, RunRecord
from .state import ControllerModule


class BufferNames(ControllerModule):
    _buffers: Buffers

    def called(self, session: ClientRecord, first: int, count: int = 1) -> list[BufferName] | None:
        """What these names stand for, and no others: what is called alone is counted alone from here on. None if one of
        them stands for nothing."""
        names = session.names
        whole = names.get(first)
        if whole is not None and whole.count == count:
            return [whole]
        for name in (first, first + count):
            wide = names.find(name)
            if wide is not None and wide.name < name:
                self.cut(wide, name - wide.name)
        found: list[BufferName] = []
        name = first
        while name < first + count:
            named = names.get(name)
            if named is None:
                return None
            found.append(named)
            name += named.count
        return found

    def cut(self, named: BufferName, at: int) -> None:
        """The names from the `at`th on are counted apart; so are their buffers, where they have any."""
        if named.buffer >= 0 and named.buffer in self._buffers.all:
            self._buffers.all.cut(named.buffer + at)  # which cuts its owner
        else:
            named.part(at)

    def parts(self, named: BufferName, at: int, count: int) -> list[BufferName]:
        """The records of `count` names, of which the first is `at` names behind that of `named`. That may have been cut
        since it covered them all."""
        found, part = list[BufferName](), named
        first = named.name + at
        while True:
            if part.name < first < part.name + part.count:
                self.cut(part, first - part.name)
            elif first <= part.name:
                if part.name + part.count > first + count:
                    self.cut(part, first + count - part.name)
                found.append(part)
                if part.name + part.count == first + count:
                    return found
            assert part.behind is not None
            part = part.behind

    def cut_arguments(self, run: RunRecord, edges: Sequence[int] = ()) -> None:
        """Let the run know its arguments as they are counted now, and none as one across one of these edges."""
        if self._are_whole(run, edges):
            return
        sources, width = dict[int, BufferName | bytes](), dict[int, int]()
        parts: dict[int, dict[int, BufferName]] = {}
        for index, source in run.sources.items():
            count = run.width.get(index, 1)
            if type(source) is not BufferName or count == 1:
                sources[index] = source
                continue
            cuts = [index, *edges[bisect_right(edges, index) : bisect_left(edges, index + count)], index + count]
            parts[index] = {}
            for low, high in pairwise(cuts):
                for part in self.parts(source, low - index, high - low):
                    at = index + part.name - source.name
                    sources[at] = parts[index][at] = part
                    if part.count > 1:
                        width[at] = part.count
        if len(sources) > len(run.sources):
            run.recount(sources, width, parts)

    @staticmethod
    def _are_whole(run: RunRecord, edges: Sequence[int]) -> bool:
        """Whether all that the run knows as one are counted as one, and lie between two edges."""
        for index, count in run.width.items():
            named = run.sources[index]
            if named.count != count or bisect_right(edges, index) < bisect_left(edges, index + count):
                return False
        return True

    def enter(self, session: ClientRecord, run: RunRecord) -> None:
        """Enter the names of its results."""
        for each in run.call.results:
            if isinstance(each, int):
                named = BufferName(session, each, released=not each)
            else:
                named = BufferName(session, each.first, count=each.count)
            run.names.append(named)
            if each:
                session.names.put(named.name, named)
                session.top = max(session.top, named.name + named.count - 1)
        if len(run.names) < len(run.program.ir.results):
            run.counts = [named.count for named in run.names]

    def copy(self, run: RunRecord, names: list[BufferName]) -> None:
        """Its results are copies of what these stand for, and are to take their place."""
        for named in names:
            copy = BufferName(run.session, named.name, released=named.released, count=named.count)
            run.names.append(copy.copy_of(named))
        if len(run.names) < len(run.program.ir.results):
            run.counts = [named.count for named in names]

    def nameless(self, run: RunRecord, count: int) -> None:
        """Its client names none of its results, and something else needs names for them."""
        run.names = [BufferName(run.session, 0, released=True) for _ in range(count)]

    def of_results(self, run: RunRecord, rows: PlanRows) -> Iterator[tuple[BufferName, ResultRow]]:
        """The names of results, several as one where their client names them so and they are made as one."""
        index = 0
        for named, count in zip(run.names, run.counts, strict=True):
            at = 0
            for row in rows.together(index, count):
                whole = not at and named.count == row.count
                parts = [named] if whole else self.parts(named, at, row.count)
                offset = 0
                for part in parts:
                    yield part, row if len(parts) == 1 else row.part(offset, part.count)
                    offset += part.count
                at += row.count
            index += count
