"""A hash of a whole order: it is equal if the same gangs entered the same islands in the same sequence.

It names gangs as users do, by client, program, run and step. Ids would depend on which client connected first and on
how often the controller was restarted. So a simulated run and the real run have the same hash. The hash of an island
shows whether its order is the same. The hash of a run shows whether its own steps entered in the same sequence.
"""

from __future__ import annotations

from hashlib import blake2b

_MASK = (1 << 64) - 1
_FACTOR, _ADD = 0x9E3779B97F4A7C15, 0x7F4A7C15
_EMPTY = 0x5EA5EA5EA5EA5EA5


def token(*names: str) -> int:
    """Return a 64-bit hash of these names, which differs for ("a", "bc") and ("ab", "c")."""
    separated = b"".join(len(part).to_bytes(4, "big") + part for part in (name.encode() for name in names))
    return int.from_bytes(blake2b(separated, digest_size=8).digest(), "big")


def fold(state: int, item: int) -> int:
    """Return the state after one more item. The order of items matters."""
    state = ((state ^ item) * _FACTOR + _ADD) & _MASK
    return state ^ (state >> 29)


class OrderHash:
    """The hashes of all islands and open runs. Each gang costs a few hundred nanoseconds."""

    def __init__(self) -> None:
        self._islands: dict[int, int] = {}
        self._runs: dict[tuple[str, int], int] = {}

    def entered(self, island: int, client: str, run: int, stands_for: int) -> None:
        """Add a gang that has entered an order. `run` is the client's own number of the run."""
        # `fold` four times, written out, because this is called for each gang
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
        """Return the hash of a run that has ended, and forget it."""
        self._runs.pop((client, run), None)

    def whole(self) -> str:
        """Return the hash of all islands. The sequence between islands does not matter: they do not share an order."""
        state = _EMPTY
        for island in sorted(self._islands):
            state = fold(fold(state, island), self._islands[island])
        return _text(state)


def _text(state: int) -> str:
    return f"{state:016x}"
