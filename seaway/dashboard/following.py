"""A reader of a trace in Python: what it has, what is under way, and its next look. The page does the same by itself.

    reader = TraceReader()
    while True:
        reader.take(source.look(reader.request()))

Neighbours: `looking`, the sources; `core.record.increments`, what an answer has.
"""

from __future__ import annotations

from core.record import LiveLook, Look, TraceCursor

OVER = {
    "runs": ("run", "ended"),
    "gangs": ("seq", "ended"),
    "transfers": ("seq", "ended"),
    "reservations": ("number", "until"),
    "clients": ("client", "closed"),
}
MOST = 20_000  # gangs that a first look takes


class TraceReader:
    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._cursor, self.identity = TraceCursor(most=most), ""
        self.open: dict[str, set[int]] = {name: set() for name in OVER}

    def request(self, hosts: bool = False) -> Look:
        return Look(self.identity, self._cursor, hosts)

    def take(self, look: LiveLook) -> bool:
        """Take in an answer. Return whether its trace is another one than before."""
        anew = look.identity != self.identity
        if anew:
            self.identity = look.identity
            self.open = {name: set() for name in OVER}
        for name, (key, over) in OVER.items():
            mine = self.open[name]
            for number, at in zip(look.trace.column(name, key), look.trace.column(name, over), strict=True):
                mine.add(number) if at < 0 else mine.discard(number)
        under_way = {name: list(numbers) for name, numbers in self.open.items()}
        self._cursor = TraceCursor(look.trace.after, under_way, look.trace.known_places, self._most)
        return anew
