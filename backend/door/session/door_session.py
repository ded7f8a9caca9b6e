"""One client's session as a machine: requests in, answers and commands for devices out. It knows no socket.

    transport --receive, store, lookup, forget, ended--> DoorSession --> ops --> SessionDevices
    transport <--send, close, resume---------------- DoorSession <-- done <--

Requests take effect in order of arrival, one after the other, on the loop's thread; none waits. A request whose host
buffer has not come yet, or devices that have too much under way, hold up those behind it: they queue, and a long queue
makes the session `busy`, so that the transport reads no further. Answers are sent when they are known, in any order;
those that succeed are numbered. A compilation holds up nothing: nobody can name its executable before it is answered.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from ..protocol import IfrtRequest, StatusCode
from .live_arrays import DUMP, dump_of
from .memory_meter import Maker
from .ops import BESIDE, OPERATIONS, Operation
from .reply import Reply
from .session_devices import SessionDevices, StatusError, invalid, unsupported
from .session_port import Opening, SessionLink, Version
from .session_state import SessionLimits, SessionState

log = logging.getLogger("seaway.door")
WAITS = frozenset(("check_value_ready_request", "copy_to_host_buffer_request"))  # whose clients read what is alive
UNCOUNTED = frozenset(("delete_array_request", "destruct_array_request"))


class DoorSession:
    """Implements `session_port.SessionPort`. Its devices may take a while to be there: until then it is busy, and
    requests wait. If there will be none, each request is answered with the reason. `cancel` is called if the client
    goes before there are any."""

    def __init__(
        self, version: Version, link: SessionLink, limits: SessionLimits, devices: SessionDevices | None = None
    ) -> None:
        self._link, self._limits = link, limits
        self.cancel: Callable[[], object] = lambda: None
        self._fault: StatusError | None = None  # why there are no devices
        self.state = SessionState(version, link.session_id, limits)
        self.state.hold, self.callbacks = self._hold, self.state.callbacks
        self._begun = devices is not None
        if devices is not None:
            self.state.given(devices)
        self._queue: deque[Any] = deque()  # requests that something before them holds up
        self._missing: set[int] = set()  # host buffers that the first of them waits for
        self._crowded, self._over, self._going_on = not self._begun, False, False
        self._current: tuple[Operation, Any, Reply]
        self._holding: Reply | None = None  # of the request that holds up the others, until it goes on or fails
        self._waits = 0  # requests without an answer
        self._numbers = 0

    # --- its devices ---------------------------------------------------------------------------------------

    def begin(self, devices: SessionDevices) -> None:
        if self._over:
            devices.close()
            return
        self.state.given(devices)
        self._begun = True
        self._room()

    def fail(self, fault: StatusError) -> None:
        """There will be no devices."""
        if not self._over:
            log.warning("session %x: it gets no devices: %s", self._link.session_id, fault.text)
            self._fault = fault
            self._room()

    # --- what the transport calls --------------------------------------------------------------------------

    def receive(self, request: bytes) -> None:
        try:
            parsed = IfrtRequest.FromString(request)
        except DecodeError:
            self._end(StatusCode.INVALID_ARGUMENT, "a request cannot be read")
            return
        if self._queue or self._crowded:
            self._queue.append(parsed)
        elif not self._over:
            self._take(parsed)

    def store(self, handle: int, data: bytes | bytearray | memoryview) -> None:
        if self._over:
            return
        try:
            self.state.incoming.put(handle, data)
        except StatusError as fault:  # the client's session ends with any error of a store
            self._end(fault.code, fault.text)
            return
        if handle in self._missing:
            self._missing.discard(handle)
            if not self._missing:
                self._go_on()

    def lookup(self, handle: int) -> bytes | memoryview | None:
        found = self.state.outgoing.get(handle)
        assert not isinstance(found, bytearray)
        return found

    def forget(self, handle: int) -> None:
        self.state.outgoing.take(handle)

    def ended(self, why: str) -> None:
        if not self._over:
            log.info("session %x: %s", self._link.session_id, why)
        self._over = True
        self._queue.clear()
        self.state.end()
        self.callbacks.end()
        if self._begun:
            self.state.devices.close()
        else:
            self.cancel()

    @property
    def busy(self) -> bool:
        return self._crowded or len(self._queue) >= self._limits.queued or self._waits >= self._limits.waits

    # --- requests ------------------------------------------------------------------------------------------

    def _take(self, request: Any) -> None:
        """Carries a request out; puts it at the queue's head if its host buffers have not come, or devices are full."""
        name = request.WhichOneof("request")
        operation = OPERATIONS.get(name)
        metadata = request.request_metadata
        maker = self.state.memory.maker = Maker(metadata.user_context_id, name)
        reply = Reply(metadata.op_id, maker, name not in UNCOUNTED, self._finished)
        if operation is None or self._fault is not None:
            self._waits += 1
            reply.fault(self._fault or _unknown(name))
            return
        body = getattr(request, name)
        if operation.needs is not None:
            missing = {each for each in operation.needs(body) if each not in self.state.incoming}
            if missing:
                self._missing = missing
                self._queue.appendleft(request)
                return
        if operation.executes and self.state.devices.crowded(self._room):
            self._crowded = True
            self._queue.appendleft(request)
            return
        self._waits += 1
        self._current = operation, body, reply
        self._carry_out(operation, body, reply)

    def _carry_out(self, operation: Operation, body: Any, reply: Reply, rest: Callable[[], None] | None = None) -> None:
        try:
            if rest is None:
                operation.run(self.state, body, reply)
            else:
                rest()
        except StatusError as fault:
            self._failed(operation, body, reply, fault)
        except Exception as error:
            log.exception("session %x: %s", self._link.session_id, operation.name)
            text = f"{operation.name} failed in the door: {type(error).__name__}: {error}"
            self._failed(operation, body, reply, StatusError(StatusCode.INTERNAL, text))

    def _failed(self, operation: Operation, body: Any, reply: Reply, fault: StatusError) -> None:
        if self._holding is reply:
            self._holding, self._crowded = None, False
        # frames refer to arrays, which may go
        fault.__traceback__ = fault.__cause__ = fault.__context__ = None
        for field in operation.results:
            self.state.poison(field, getattr(body, field), fault)
        reply.fault(fault)

    def _go_on(self) -> None:
        """Takes queued requests until one has to wait."""
        if self._going_on:  # a request that is taken below has let others go on
            return
        queue, self._going_on = self._queue, True
        try:
            while queue and not self._crowded and not self._missing and not self._over:
                self._take(queue.popleft())
        finally:
            self._going_on = False
        if not self.busy and not self._over:
            self._link.resume()

    def _hold(self) -> Callable[[Callable[[], None]], None]:
        self._crowded, self._holding = True, self._current[2]
        return partial(self._let_go, *self._current)

    def _let_go(self, operation: Operation, body: Any, reply: Reply, rest: Callable[[], None]) -> None:
        if not self._over and self._holding is reply:
            self._holding = None
            self._carry_out(operation, body, reply, rest)
            self._room()

    def _room(self) -> None:
        self._crowded = False
        if not self._over:
            self._go_on()

    # --- answers -------------------------------------------------------------------------------------------

    def _finished(self, reply: Reply, response: Any, succeeded: bool) -> None:
        self._waits -= 1
        if self._over:
            return
        metadata = response.response_metadata
        metadata.op_id = reply.op_id
        if succeeded and reply.counted:
            metadata.seq_num = self._numbers
            self._numbers += 1
        maker, over = reply.maker, self.state.memory.over
        if maker.live:
            maker.answered = maker.context != 0
        elif maker.context:
            metadata.destroyed_user_context_ids.append(maker.context)
        if over:
            metadata.destroyed_user_context_ids.extend(over)
            over.clear()
        if not succeeded and maker.name in WAITS and metadata.status.code == StatusCode.RESOURCE_EXHAUSTED:
            metadata.status.payload[DUMP] = dump_of(self.state.arrays).SerializeToString()
        self._link.send(response.SerializeToString())
        if self._waits == self._limits.waits - 1 and not self.busy:  # it was busy for that
            self._link.resume()

    def _end(self, code: int, text: str) -> None:
        if not self._over:
            self._over = True
            log.warning("session %x: ended: %s", self._link.session_id, text)
            self._link.close(code, text)


def _unknown(name: str | None) -> StatusError:
    if name is None:
        return invalid("the request is empty, or of a kind that this door does not know")
    return unsupported(BESIDE)  # of the requests that are known, only those about callbacks have no operation


def opening(devices: Callable[[], SessionDevices], limits: SessionLimits | None = None) -> Opening:
    """What makes sessions: each gets what `devices()` returns."""

    def open_session(version: Version, link: SessionLink) -> DoorSession:
        return DoorSession(version, link, limits or SessionLimits(), devices())

    return open_session
