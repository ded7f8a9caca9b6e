"""Keeps what a transfer machine knows of transfers that are not open: early messages, and transfers that have ended.

Both are bounded. The number of early messages is limited for each peer. The last few thousand transfers that have
ended are kept, far more than can still have messages under way.
"""

from typing import Generic, TypeVar

from ..protocol import Blame, Close, Command

Message = TypeVar("Message")

REMEMBERED = 4096


class EarlyMessages(Generic[Message]):
    """Messages about transfers that are not open yet."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._messages: dict[int, list[tuple[int, Message]]] = {}  # transfer -> (peer, message), as they came
        self._counts: dict[int, int] = {}  # peer -> number of its messages

    def keep(self, peer: int, transfer: int, message: Message) -> list[Command]:
        count = self._counts.get(peer, 0)
        if count >= self._limit:
            text = f"{peer} sends more than {self._limit} messages about transfers that are not open"
            return [Close(peer, text)]
        self._counts[peer] = count + 1
        self._messages.setdefault(transfer, []).append((peer, message))
        return []

    def take(self, transfer: int) -> list[tuple[int, Message]]:
        """Remove and return the (peer, message) of a transfer, in the order in which they came."""
        messages = self._messages.pop(transfer, [])
        for peer, _ in messages:
            self._counts[peer] -= 1
        return messages

    def forget(self, peer: int) -> None:
        if not self._counts.pop(peer, 0):
            return
        for transfer, messages in list(self._messages.items()):
            self._messages[transfer] = [(other, message) for other, message in messages if other != peer]
            if not self._messages[transfer]:
                del self._messages[transfer]

    def __len__(self) -> int:
        return sum(self._counts.values())


class EndedTransfers:
    """Transfers that have ended, and the blame if they were dropped."""

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
        """Whether the transfer was open and ended without being dropped."""
        return transfer in self._blames and self._blames[transfer] is None

    def dropped(self, transfer: int) -> Blame | None:
        """Return the blame with which the transfer was dropped, or None."""
        return self._blames.get(transfer)
