"""A session that gets its devices later: nothing is lost, and if there will be none, each request hears why."""

from __future__ import annotations

import numpy as np

from backend.door.protocol.ifrt_messages import StatusCode
from backend.door.session.door_session import DoorSession
from backend.door.session.session_devices import StatusError
from backend.door.session.session_port import Version
from backend.door.session.session_state import SessionLimits

from ..fake_devices import FakeDevices
from ..session_rig import SessionRig, single


class LateRig(SessionRig):
    """The rig's client on a session that has no devices yet."""

    def __init__(self) -> None:
        super().__init__()
        self.late = DoorSession(Version(25, 6), self, SessionLimits())
        self.session = self.late
        self.cancelled = 0
        self.late.cancel = self.cancel

    def cancel(self) -> None:
        self.cancelled += 1


def test_requests_and_host_buffers_wait_for_the_devices() -> None:
    rig = LateRig()
    init = rig.ask("init")
    rig.session.store(7, np.ones(2, np.float32).tobytes())
    rig.make(7, (2,), single())
    assert rig.sent == []
    devices = FakeDevices()
    rig.late.begin(devices)
    assert rig.resumed == 1
    assert len(rig.answer(init).init_response.all_devices) == 4
    assert devices.log == ["put [2] on [0]"]
    rig.session.store(8, np.ones(2, np.float32).tobytes())
    rig.make(8, (2,), single(1))
    assert devices.log[1:] == ["put [2] on [1]"]


def test_a_client_is_not_read_further_before_it_has_devices() -> None:
    rig = LateRig()
    assert rig.session.busy
    rig.ask("init")
    rig.late.begin(FakeDevices())
    assert not rig.session.busy


def test_without_devices_each_request_is_answered_with_the_reason() -> None:
    rig = LateRig()
    first = rig.ask("init")
    rig.late.fail(StatusError(StatusCode.INVALID_ARGUMENT, "16 devices are more than there are"))
    second = rig.ask("init")
    for op in (first, second):
        status = rig.answer(op).response_metadata.status
        assert (status.code, status.message) == (StatusCode.INVALID_ARGUMENT, "16 devices are more than there are")


def test_a_client_that_goes_before_it_has_devices_lets_go_of_them() -> None:
    rig = LateRig()
    rig.ask("init")
    rig.session.ended("the client has gone")
    assert rig.cancelled == 1
    devices = FakeDevices()
    rig.late.begin(devices)
    assert devices.closed
    assert rig.sent == []


def test_when_the_client_goes_later_its_devices_are_closed() -> None:
    rig = LateRig()
    devices = FakeDevices()
    rig.late.begin(devices)
    rig.session.ended("the client has gone")
    assert devices.closed
    assert rig.cancelled == 0
