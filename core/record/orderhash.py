"""A hash of a whole order: it is equal if the same gangs entered the same islands in the same sequence.

It names gangs as users do, by client, program, run and step. Ids would depend on which client connected first and on
how often the controller was restarted. So a simulated run and the real run have the same hash.
"""

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
    """The hashes of all islands' orders. Each gang costs a few hundred nanoseconds."""

    def __init__(self) -> None:
        self._islands: dict[int, int] = {}

    def entered(self, island: int, run: int, stands_for: int) -> None:
        """Add a gang that has entered an order. `run` is the client's own number of the run; `stands_for` is the
        `token` of the client's name, the program's and the step's."""
        # `fold` twice, written out, because this is called for each gang
        state = ((self._islands.get(island, _EMPTY) ^ stands_for) * _FACTOR + _ADD) & _MASK
        state = ((state ^ (state >> 29) ^ run) * _FACTOR + _ADD) & _MASK
        self._islands[island] = state ^ (state >> 29)

    def island(self, island: int) -> str:
        return _text(self._islands.get(island, _EMPTY))

    def whole(self) -> str:
        """Return the hash of all islands. The sequence between islands does not matter: they do not share an order."""
        state = _EMPTY
        for island in sorted(self._islands):
            state = fold(fold(state, island), self._islands[island])
        return _text(state)


def _text(state: int) -> str:
    return f"{state:016x}"
