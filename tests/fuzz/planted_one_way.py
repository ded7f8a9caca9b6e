"""Planted bugs in what an end does about a connection that is cut in one direction.

Neighbours: `planted` and others have the rest; `planting` searches them; `one_way` has the checks that find these.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from core.client.client_session import ClientSession
from core.link.link import Link

from .draw import ONE_WAY
from .planting import Patch, bug


@bug("unheard and content", "an end that hears its peer does not notice that it is not heard", first=ONE_WAY)
def _(put: Patch) -> None:
    put(Link, "_lease_end", lambda self: self._received_at + self._lease)


@bug("waits for the link", "a client that is cut off waits until the controller is back", first=ONE_WAY)
def _(put: Patch) -> None:
    disconnected = ClientSession.disconnected

    def patient(self: ClientSession, event: Any, now: int) -> None:
        disconnected(self, replace(event, anew=True), now)

    put(ClientSession, "disconnected", patient)
