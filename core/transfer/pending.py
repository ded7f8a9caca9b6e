"""What a transfer machine remembers of transfers that are not open: words that came too early, and those
that are over.

Both are bounded. A peer has so many early words and no more; and of ended transfers the last few thousand
are known, which is far more than can still be under way.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from ..protocol import Blame, Close, Effect

Word = TypeVar("Word")

REMEMBERED = 4096


class Early(Generic[Word]):
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._words: dict[int, list[tuple[int, Word]]] = {}  # by transfer, in the order they came
        self._counts: dict[int, int] = {}  # by peer

    def keep(self, peer: int, transfer: int, word: Word) -> list[Effect]:
        count = self._counts.get(peer, 0)
        if count >= self._limit:
            return [Close(peer, f"{peer} speaks of more than {self._limit} transfers that are not open")]
        self._counts[peer] = count + 1
        self._words.setdefault(transfer, []).append((peer, word))
        return []

    def take(self, transfer: int) -> list[tuple[int, Word]]:
        words = self._words.pop(transfer, [])
        for peer, _ in words:
            self._counts[peer] -= 1
        return words

    def forget(self, peer: int) -> None:
        if not self._counts.pop(peer, 0):
            return
        for transfer in list(self._words):
            self._words[transfer] = [(who, word) for who, word in self._words[transfer] if who != peer]
            if not self._words[transfer]:
                del self._words[transfer]

    def __len__(self) -> int:
        return sum(self._counts.values())


class Over:
    """Transfers that have ended; of dropped ones, why."""

    def __init__(self) -> None:
        self._blames: dict[int, Blame | None] = {}

    def add(self, transfer: int, blame: Blame | None = None) -> None:
        if transfer not in self._blames:
            self._blames[transfer] = blame
            if len(self._blames) > REMEMBERED:
                del self._blames[next(iter(self._blames))]

    def knows(self, transfer: int) -> bool:
        return transfer in self._blames

    def ended(self, transfer: int) -> bool:
        """It was open, and ended by itself."""
        return transfer in self._blames and self._blames[transfer] is None

    def dropped(self, transfer: int) -> Blame | None:
        return self._blames.get(transfer)
