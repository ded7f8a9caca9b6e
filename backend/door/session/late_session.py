"""A session whose devices take a while to be there: it keeps what its client says until then.

    transport --receive, store--> LateSession --(kept)--> DoorSession, as soon as there are devices

The client waits for the answer to its first request and says no more; so hardly anything is kept. If there will be no
devices, that request, and any other, is answered with the reason. Neighbours: `door_session`, `cluster_opening`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from ..protocol import IfrtRequest, StatusCode
from .door_session import DoorSession
from .reply import Reply
from .session_devices import SessionDevices, StatusError
from .session_port import SessionLink, Version
from .session_state import SessionLimits

log = logging.getLogger("seaway.door")
KEPT = 64  # requests and host buffers, before the transport is to read no further


class LateSession:
    """Implements `session_port.SessionPort`. `cancel` is called if the client goes before there are devices."""

    def __init__(self, version: Version, link: SessionLink, limits: SessionLimits) -> None:
        self._version, self._link, self._limits = version, link, limits
        self._session: DoorSession | None = None
        self._fault: StatusError | None = None
        self._kept: list[Callable[[DoorSession], None]] = []
        self._requests: list[bytes] = []
        self._over = False
        self.cancel: Callable[[], None] = lambda: None

    # --- what becomes of it ----------------------------------------------------------------------------------

    def begin(self, devices: SessionDevices) -> None:
        if self._over:
            devices.close()
            return
        session = self._session = DoorSession(devices, self._version, self._link, self._limits)
        kept, self._kept, self._requests = self._kept, [], []
        for act in kept:
            act(session)
        if not session.busy:
            self._link.resume()

    def fail(self, fault: StatusError) -> None:
        """There will be no devices; or, later, there are none any more."""
        if self._over or self._session is not None:
            return
        log.warning("session %x: it gets no devices: %s", self._link.session_id, fault.text)
        self._fault = fault
        requests, self._requests, self._kept = self._requests, [], []
        for each in requests:
            self._refuse(each)
        self._link.resume()

    def _refuse(self, request: bytes) -> None:
        assert self._fault is not None
        try:
            metadata = IfrtRequest.FromString(request).request_metadata
        except DecodeError:
            self._link.close(StatusCode.INVALID_ARGUMENT, "a request cannot be read")
            return
        Reply(metadata.op_id, metadata.user_context_id, False, self._answered).fault(self._fault)

    def _answered(self, reply: Reply, response: Any, succeeded: bool) -> None:
        response.response_metadata.op_id = reply.op_id
        self._link.send(response.SerializeToString())

    # --- what the transport calls ----------------------------------------------------------------------------

    def receive(self, request: bytes) -> None:
        if self._session is not None:
            self._session.receive(request)
        elif self._fault is not None:
            self._refuse(request)
        else:
            self._requests.append(request)
            self._kept.append(lambda session: session.receive(request))

    def store(self, handle: int, data: bytes | bytearray | memoryview) -> None:
        if self._session is not None:
            self._session.store(handle, data)
        elif self._fault is None:
            self._kept.append(lambda session: session.store(handle, data))

    def lookup(self, handle: int) -> bytes | memoryview | None:
        return None if self._session is None else self._session.lookup(handle)

    def forget(self, handle: int) -> None:
        if self._session is not None:
            self._session.forget(handle)

    def ended(self, why: str) -> None:
        self._over = True
        if self._session is not None:
            self._session.ended(why)
        else:
            self.cancel()

    @property
    def busy(self) -> bool:
        return len(self._kept) >= KEPT if self._session is None else self._session.busy
