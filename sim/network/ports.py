"""Ports: each carries one thing at a time, in the order in which things arrive there. Many hosts' ports are one array.

Things that arrive in one nanosecond pass in the order of their keys, so the result does not depend on which is computed
first. They are looked at when that nanosecond is over (`LATER`). Then it is known when each begins to pass, and
what follows is told at once, with that time, which may lie ahead. Collectives may hold a port for a time (`Hold`): a
thing passes before that if it is over by then, and else behind it.

`put` takes one thing, and `put_many` one for each of many hosts, whose times may differ: those of one nanosecond cost
one event.

Neighbours: `bulk` says how long contents take, and what comes behind a port.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine import LATER, Ints, SimClock

Key = tuple[int, int, int, int]  # the other end, the transfer, the place among its messages: see `bulk.place_of`
Which = NDArray[np.intp] | slice  # of the things of a `put_many`
ALL = slice(None)


class Things(NamedTuple):
    """Those of a `put_many` that arrive at one time. They are sorted by port, then key. `then(which, starts)`."""

    ports: Ints
    keys: tuple[Ints, Ints, Ints, Ints]
    took: Ints
    then: Callable[[Which, Ints], None]
    which: Which


class Thing(NamedTuple):
    """What one `put` brings. `then(start, *args)`."""

    port: int
    key: Key
    took: int
    then: Callable[..., None]
    args: tuple[Any, ...]


class Hold:
    """From when to when collectives hold ports."""

    __slots__ = ("begin", "until")

    def __init__(self) -> None:
        self.begin = self.until = 0


class Ports:
    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._holds: dict[int, list[Hold]] = {}  # by port
        self._held = 0  # until when any port is
        self._numbers: dict[Hashable, int] = {}
        self._free: Ints = np.zeros(64, dtype=np.int64)
        self._due: dict[int, list[Thing | Things]] = {}  # by when they arrive

    def number(self, name: Hashable) -> int:
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self._numbers)
            if found == len(self._free):
                self._free = np.concatenate((self._free, np.zeros(found, dtype=np.int64)))
        return found

    # --- collectives ----------------------------------------------------------------------------------------

    def may_be_held(self, port: int, hold: Hold) -> None:
        self._holds.setdefault(port, []).append(hold)

    def take(self, hold: Hold, begin: int, until: int) -> None:
        hold.begin, hold.until = begin, until
        self._held = max(self._held, until)

    def free_at(self, ports: Ints) -> int:
        """When all that has come to these has passed."""
        return int(self._free[ports].max())

    def _beside(self, port: int, start: int, took: int) -> int:
        """When a thing that could begin to pass at `start` does, beside collectives."""
        holds = [(each.begin, each.until) for each in self._holds.get(port, ()) if each.until > start]
        for begin, until in sorted(holds):
            if begin < start + took:
                start = max(start, until)
        return start

    # --- arrivals -------------------------------------------------------------------------------------------

    def put(self, port: int, when: int, key: Key, took: int, then: Callable[..., None], *args: Any) -> None:
        """Takes in a thing that arrives then, in the future or now."""
        self._due_at(when).append(Thing(port, key, took, then, args))

    def put_many(
        self, ports: Ints, when: Ints, keys: tuple[Ints, Ints, Ints, Ints], took: Ints,
        then: Callable[[Which, Ints], None],
    ) -> None:  # fmt: skip
        """Takes in things sorted by port, then key."""
        first = int(when[0])
        if (when == first).all():
            self._due_at(first).append(Things(ports, keys, took, then, ALL))
            return
        for at in np.unique(when).tolist():
            which = np.flatnonzero(when == at)
            some = keys[0][which], keys[1][which], keys[2][which], keys[3][which]
            self._due_at(at).append(Things(ports[which], some, took[which], then, which))

    def _due_at(self, when: int) -> list[Thing | Things]:
        found = self._due.get(when)
        if found is None:
            found = self._due[when] = []
            self._clock.at(when, self._pass, when, priority=LATER)
        return found

    # --- when they pass -------------------------------------------------------------------------------------

    def _pass(self, when: int) -> None:
        due = self._due.pop(when)
        if len(due) == 1:
            (each,) = due
            if isinstance(each, Thing):
                each.then(self._pass_one(each.port, each.took, when), *each.args)
            else:
                each.then(each.which, self._pass_many(each.ports, each.took, when))
        elif all(isinstance(each, Thing) for each in due):
            for each in sorted(due, key=_port_and_key):
                each.then(self._pass_one(each.port, each.took, when), *each.args)  # type: ignore[union-attr,arg-type]
        else:
            self._pass_mixed([_as_many(each) for each in due], when)

    def _pass_one(self, port: int, took: int, when: int) -> int:
        start = max(int(self._free[port]), when)
        if start < self._held:
            start = self._beside(port, start, took)
        self._free[port] = start + took
        return start

    def _pass_many(self, ports: Ints, took: Ints, when: int) -> Ints:
        """When each begins to pass. Those of one port stand next to each other, in their order."""
        if when < self._held:
            pairs = zip(ports.tolist(), took.tolist(), strict=True)
            return np.array([self._pass_one(*pair, when) for pair in pairs], dtype=np.int64)
        change = ports[1:] != ports[:-1]
        start = np.maximum(self._free[ports], when)
        if change.all():
            self._free[ports] = start + took
            return start
        before = np.cumsum(took) - took
        firsts = np.flatnonzero(np.concatenate(([True], change)))
        lengths = np.diff(np.append(firsts, len(ports)))
        start += before - np.repeat(before[firsts], lengths)
        lasts = firsts + lengths - 1
        self._free[ports[lasts]] = start[lasts] + took[lasts]
        return start

    def _pass_mixed(self, due: list[Things], when: int) -> None:
        ports = np.concatenate([each.ports for each in due])
        took = np.concatenate([each.took for each in due])
        keys = [np.concatenate([each.keys[place] for each in due]) for place in range(4)]
        order = np.lexsort((*reversed(keys), ports))
        starts = np.empty(len(ports), dtype=np.int64)
        starts[order] = self._pass_many(ports[order], took[order], when)
        at = 0
        for each in due:
            stop = at + len(each.ports)
            each.then(each.which, starts[at:stop])
            at = stop


def _port_and_key(each: Any) -> tuple[int, Key]:
    return each.port, each.key


def _as_many(each: Thing | Things) -> Things:
    if isinstance(each, Things):
        return each
    one = [np.array([value], dtype=np.int64) for value in (each.port, *each.key, each.took)]
    return Things(
        one[0],
        (one[1], one[2], one[3], one[4]),
        one[5],
        lambda which, starts: each.then(int(starts[0]), *each.args),
        ALL,
    )
