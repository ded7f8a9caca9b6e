"""A client's end of transfers: core's machine, but for puts and gets whose hosts are simulated together.

What it and the machines of those hosts would say to each other is known without them (`sim.cohort.client_contents`).
Only the last word comes here, and ends the put or get as core's machine would.

Neighbours: `client_process` hands it to the client machine, and tells the island that a put or get begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core import protocol as p
from core.transfer import Transfer


class ClientTransfer(Transfer):
    """`client`: its process. `together`: whether the hosts of a put or get are simulated together. `come`: brings a
    message of a host to the process."""

    def __init__(
        self, me: int, pool: int, chunk: int, client: int, together: Callable[[p.OpenSend | p.OpenRecv], bool],
        come: Callable[[int, int, Any], None],
    ) -> None:  # fmt: skip
        super().__init__(me, pool, chunk)
        self.client, self._together, self._come = client, together, come
        self._open: dict[int, bool] = {}  # whose hosts are simulated together: whether it is a get

    def handle(self, event: p.Effect, now: int) -> list[p.Command]:
        about = event.message if isinstance(event, p.MessageReceived) else event
        if isinstance(about, p.OpenSend | p.OpenRecv) and self._together(about):
            self._open[about.transfer] = isinstance(about, p.OpenRecv)
            return []
        if isinstance(about, p.Landed | p.Chunk | p.DropTransfer) and about.transfer in self._open:
            getting = self._open.pop(about.transfer)
            blame = about.blame if isinstance(about, p.DropTransfer) else None
            return [p.Received(about.transfer, blame) if getting else p.Sent(about.transfer)]
        return super().handle(event, now)

    def end(self) -> list[p.Command]:
        ended: list[p.Command] = [p.Sent(transfer) for transfer, getting in self._open.items() if not getting]
        self._open.clear()
        return ended + super().end()

    def has(self, transfer: int) -> bool:
        """Whether the hosts of this put or get are simulated together, and it is not over."""
        return transfer in self._open

    def last_word(self, host: int, transfer: int) -> None:
        """The last host says that its contents have landed, or sends the last of what is got."""
        if self._open.get(transfer):
            self._come(host, transfer, p.Chunk(transfer, host, self.me, 0, 0, 0))
        else:
            self._come(host, transfer, p.Landed(transfer, self.me, host))
