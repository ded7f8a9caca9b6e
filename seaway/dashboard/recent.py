"""The last seconds of a trace in numbers: what each client used, and how long its runs took. For `seaway top`.

    recent = RecentUse()
    while True:
        recent.take(source.look(recent.request()))

Neighbours: `looking`, the sources; `core.record.increments`, what an answer has; `terminal`, which shows the numbers.
The page computes the same, and more, in the browser (`static/usage.js`).
"""

from collections import Counter, deque
from typing import NamedTuple

from core.model import spans
from core.record import Increment, LiveLook, Look, TraceCursor, TracedPlace

S = 1_000_000_000
MOST = 2_000  # gangs of the first look
OVER = {"runs": ("run", "ended"), "gangs": ("seq", "ended"), "transfers": ("seq", "ended"),
        "reservations": ("number", "until"), "clients": ("client", "closed")}  # fmt: skip


class UsedTime(NamedTuple):
    ended: int
    client: int
    spent: int  # device nanoseconds


class EndedRun(NamedTuple):
    ended: int
    client: int
    latency: int
    program: str
    blame: str  # "": it succeeded
    cause: str


class RecentUse:
    """`window`: how many nanoseconds back it remembers, by the trace's clock."""

    def __init__(self, window: int = 10 * S) -> None:
        self.window = window
        self._identity = ""
        self._forget()

    def _forget(self) -> None:
        self._cursor = TraceCursor(most=MOST)
        self._open: dict[str, set[int]] = {name: set() for name in OVER}  # what is under way
        self.now = self.began = 0
        self.gangs: deque[UsedTime] = deque()
        self.runs: deque[EndedRun] = deque()
        self._clients: dict[int, int] = {}  # run -> client
        self._places: dict[int, TracedPlace] = {}
        self._near: dict[int, tuple[int, ...]] = {}  # place -> those that share a device with it
        self._over: dict[int, int] = {}  # place -> when its last gang ended

    def request(self) -> Look:
        return Look(self._identity, self._cursor, False)

    def take(self, look: LiveLook) -> None:
        """Take in what is new, and forget what is too old, or all if it is another trace."""
        if look.identity != self._identity:
            self._forget()
        self._identity, self.now, self.began = look.identity, look.now, look.began
        trace = look.trace
        for name, (key, over) in OVER.items():
            mine = self._open[name]
            for number, at in zip(trace.column(name, key), trace.column(name, over), strict=True):
                mine.add(number) if at < 0 else mine.discard(number)
        under_way = {name: list(numbers) for name, numbers in self._open.items()}
        self._cursor = TraceCursor(trace.after, under_way, trace.known_places, MOST)
        if trace.places:
            self._places.update(trace.places)
            self._near = {}
        self._take_runs(trace)
        self._take_gangs(trace)
        for kept in (self.gangs, self.runs):
            while kept and kept[0].ended < self.now - self.window:
                kept.popleft()

    def _take_runs(self, trace: Increment) -> None:
        names = ("run", "client", "submitted", "ended", "program", "code", "cause")
        found = []
        for run, client, submitted, ended, program, code, cause in zip(
            *(trace.column("runs", name) for name in names), strict=True
        ):
            self._clients[run] = client
            if ended >= 0:
                words = (trace.words[each] if each >= 0 else "" for each in (program, code, cause))
                found.append(EndedRun(ended, client, ended - submitted, *words))
        self.runs.extend(sorted(found))
        if len(self._clients) > 1 << 16:  # those of long ago
            self._clients = dict(list(self._clients.items())[1 << 15 :])

    def _take_gangs(self, trace: Increment) -> None:
        names = ("seq", "run", "place", "entered", "started", "ended")
        found = []
        for _, run, place, entered, started, ended in sorted(
            zip(*(trace.column("gangs", name) for name in names), strict=True)
        ):
            if ended < 0 or place not in self._places:
                continue
            free = max((self._over.get(each, 0) for each in self._overlapping(place)), default=0)
            begun = started if started >= 0 else min(max(entered, free), ended)  # the controller sees no start
            self._over[place] = max(self._over.get(place, 0), ended)
            size = spans.count(self._places[place].devices)
            found.append(UsedTime(ended, self._clients.get(run, -1), size * (ended - begun)))
        self.gangs.extend(sorted(found))

    def _overlapping(self, place: int) -> tuple[int, ...]:
        near = self._near.get(place)
        if near is None:
            mine = self._places[place].devices
            near = tuple(key for key, each in self._places.items() if spans.meet(each.devices, mine))
            self._near[place] = near
        return near

    # --- numbers -------------------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """How much of the window there has been."""
        return max(1, min(self.window, self.now - self.began)) / S

    def used(self) -> dict[int, int]:
        """Device nanoseconds by client."""
        found = Counter[int]()
        for each in self.gangs:
            found[each.client] += each.spent
        return found

    def latencies(self, client: int) -> list[int]:
        """The latencies of the client's runs that ended well, sorted."""
        return sorted(each.latency for each in self.runs if each.client == client and not each.blame)

    def failures(self) -> list[EndedRun]:
        """The latest first."""
        return [each for each in reversed(self.runs) if each.blame]
