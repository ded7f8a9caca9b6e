"""A client's end of transfers: core's machine, but for puts to hosts that are simulated together.

What it and the machines of those hosts would say to each other is known without them (`sim.cohort.puts`). Only the last
word that contents have landed comes here, and ends the put as core's machine would.

Neighbours: `client_process` hands it to the client machine, and tells the island that a put begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.protocol import Command, DropTransfer, Effect, Landed, MessageReceived, OpenSend, Sent
from core.transfer import Transfer


class ClientTransfer(Transfer):
    """`client`: its process. `together`: whether the hosts of a put are simulated together. `come`: brings a message of
    a host to the process."""

    def __init__(
        self, me: int, pool: int, chunk: int, client: int, together: Callable[[OpenSend], bool],
        come: Callable[[int, int, Any], None],
    ) -> None:  # fmt: skip
        super().__init__(me, pool, chunk)
        self.client, self._together, self._come = client, together, come
        self._puts: dict[int, None] = {}  # to hosts that are simulated together

    def handle(self, event: Effect, now: int) -> list[Command]:
        over = event.message if isinstance(event, MessageReceived) else event
        if isinstance(over, OpenSend) and self._together(over):
            self._puts[over.transfer] = None
            return []
        if isinstance(over, Landed | DropTransfer) and over.transfer in self._puts:
            del self._puts[over.transfer]
            return [Sent(over.transfer)]
        return super().handle(event, now)

    def end(self) -> list[Command]:
        ended: list[Command] = [Sent(transfer) for transfer in self._puts]
        self._puts.clear()
        return ended + super().end()

    def has(self, transfer: int) -> bool:
        """Whether this is a put to hosts that are simulated together, and not over."""
        return transfer in self._puts

    def landed(self, host: int, transfer: int) -> None:
        """The last of the hosts says that its contents have landed."""
        self._come(host, transfer, Landed(transfer, self.me, host))
