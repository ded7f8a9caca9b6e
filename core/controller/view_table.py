"""Which views there are, and what they wait for: tables, and no decisions.

Neighbours: `views` makes views; `buffer_refs` counts what they hold; `outcomes` ends them with their sources.
"""

from typing import Any

from .records import BufferName, WaitingView


class ViewTable:
    def __init__(self) -> None:
        self.waiting: dict[BufferName, WaitingView] = {}
        self.by_name: dict[BufferName, list[WaitingView]] = {}  # what waits for, or holds, this source
        self.holders: dict[int, dict[BufferName, WaitingView]] = {}  # source -> those that hold it, and wait
        self.views_of: dict[int, dict[int, None]] = {}  # source -> views of it that have been ordered
        # view, which may be gone -> sources whose contents are not final; and the other way round
        self.unsettled: dict[int, set[int]] = {}
        self.awaiting: dict[int, dict[int, None]] = {}

    def forget(self, view: WaitingView) -> None:
        """It does not wait any more."""
        del self.waiting[view.named]
        for source in view.sources.values():
            views = self.by_name.get(source, [])
            if view in views:
                views.remove(view)
                if not views:
                    del self.by_name[source]
        for buffer in dict.fromkeys(view.held.values()):
            drop(self.holders, buffer, view.named)

    def with_views(self, buffers: list[int]) -> list[int]:
        """These, and all views of them."""
        found = dict.fromkeys(buffers)
        todo = list(found)
        while todo:
            for view in self.views_of.get(todo.pop(), ()):
                if view not in found:
                    found[view] = None
                    todo.append(view)
        return sorted(found)

    def unsettled_in(self, first: int, count: int) -> set[int]:
        """Those of these buffers for which views wait."""
        if count <= len(self.awaiting):
            return {each for each in range(first, first + count) if each in self.awaiting}
        return {each for each in self.awaiting if first <= each < first + count}


def drop(table: dict[int, dict[Any, Any]], key: int, value: object) -> None:
    """Take it out of what is kept for this key, and the key with the last one."""
    kept = table.get(key)
    if kept is not None and value in kept:
        del kept[value]
        if not kept:
            del table[key]
