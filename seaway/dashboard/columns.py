"""Numbers as the page takes them: a head in JSON, and behind it columns of doubles, which need no parsing.

    4 bytes: length of the head   |   head, padded to a multiple of 8   |   column, column, ...

The head names the tables and their columns in order. All times are nanoseconds since the trace began: as doubles these
are exact for a hundred days. Neighbours: `page_server`, which sends them; `static/feed.js`, which reads them.
"""

from array import array
from typing import Any

import msgspec

from core.record import LiveLook, LiveView

from .looking import LiveSource

TIMES = frozenset(
    (
        "opened", "closed", "submitted", "deadline", "admitted", "ready", "entered", "enqueued", "started", "ended",
        "at", "since", "until",
    )
)  # fmt: skip
ALIGN = 8


def body_of(source: LiveSource, look: LiveLook) -> bytes:
    """The answer to a browser that asked what is new."""
    tables: dict[str, Any] = {}
    columns: list[bytes] = []
    for table, found in look.trace.tables.items():
        names = list(found)
        tables[table] = {"columns": names, "rows": len(found[names[0]]) // ALIGN}
        columns += [_doubles(look, table, name) for name in names]
    head = {
        "identity": look.identity, "kind": source.kind, "title": source.title, "over": source.over,
        "now": look.now - look.began, "islands": source.islands, "words": look.trace.words,
        "places": {str(key): place for key, place in look.trace.places.items()},
        "after": look.trace.after, "known_places": look.trace.known_places, "skipped": look.trace.skipped,
        "view": view_of(look.view, look.began), "connected": look.connected, "hosts": look.hosts,
        "said": look.said, "notes": look.notes, "tables": tables,
    }  # fmt: skip
    text = msgspec.json.encode(head)
    text += b" " * (-(len(text) + 4) % ALIGN)
    return b"".join([len(text).to_bytes(4, "little"), text, *columns])


def view_of(view: LiveView | None, began: int) -> Any:
    """The controller's view as plain data, with times since the trace began."""
    if view is None:
        return None
    plain = msgspec.to_builtins(view)
    for line in (*plain["queues"], *plain["waits"]):
        line["since"] -= began
    for line in plain["refused"]:
        line["at"] -= began
    return plain


def _doubles(look: LiveLook, table: str, name: str) -> bytes:
    numbers = look.trace.column(table, name)
    if name in TIMES and look.began:
        began = look.began
        return array("d", [at - began if at >= 0 else -1 for at in numbers]).tobytes()
    return array("d", numbers).tobytes()
