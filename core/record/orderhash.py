"""One number for a whole order: equal when the same gangs entered the same islands in the same sequence.

It names gangs as their users do (client, program, run, step), never by ids that depend on who connected first
or on how often the controller was restarted: so the hash of a simulated run is that of the real one. A hash
per island says whether its order is the same; one per run, whether the run's own steps entered in the same
sequence.
"""

from __future__ import annotations

from hashlib import blake2b

_MASK = (1 << 64) - 1
_FACTOR, _ADD = 0x9E3779B97F4A7C15, 0x7F4A7C15
_EMPTY = 0x5EA5EA5EA5EA5EA5
_NAMES_REMEMBERED = 1 << 16


def token(*names: str) -> int:
    """64 bits that stand for these names, and tell ("a", "bc") from ("ab", "c")."""
    told_apart = b"".join(len(part).to_bytes(4, "big") + part for part in (name.encode() for name in names))
    return int.from_bytes(blake2b(told_apart, digest_size=8).digest(), "big")


def fold(state: int, item: int) -> int:
    """The state after one more item. Not symmetric: what came first matters."""
    state = ((state ^ item) * _FACTOR + _ADD) & _MASK
    return state ^ (state >> 29)


class OrderHash:
    """Fed once a gang, as it enters: a few hundred nanoseconds."""

    def __init__(self) -> None:
        self._islands: dict[int, int] = {}
        self._runs: dict[tuple[str, int], int] = {}

    def entered(self, island: int, client: str, run: int, stands_for: int) -> None:
        """`run` is the client's own number for it. `stands_for`: the `token` of client, program and step."""
        # `fold` four times, written out: this is fed once a gang
        state = ((self._islands.get(island, _EMPTY) ^ stands_for) * _FACTOR + _ADD) & _MASK
        state = ((state ^ (state >> 29) ^ run) * _FACTOR + _ADD) & _MASK
        self._islands[island] = state ^ (state >> 29)
        key = (client, run)
        state = ((self._runs.get(key, _EMPTY) ^ stands_for) * _FACTOR + _ADD) & _MASK
        state = ((state ^ (state >> 29) ^ island) * _FACTOR + _ADD) & _MASK
        self._runs[key] = state ^ (state >> 29)

    def island(self, island: int) -> str:
        return _text(self._islands.get(island, _EMPTY))

    def run(self, client: str, run: int) -> str:
        return _text(self._runs.get((client, run), _EMPTY))

    def forget(self, client: str, run: int) -> None:
        """The run is over."""
        self._runs.pop((client, run), None)

    def whole(self) -> str:
        """All islands, whatever the sequence between them (they do not share an order)."""
        state = _EMPTY
        for island in sorted(self._islands):
            state = fold(fold(state, island), self._islands[island])
        return _text(state)


def _text(state: int) -> str:
    return f"{state:016x}"
