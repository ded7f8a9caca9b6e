"""Through how many hands a JAX call passes in the door of a cluster: from its request to the Submit and the answer."""

from __future__ import annotations

import os
import sys
from types import FrameType

from backend.door.protocol.ifrt_shardings import ShardSpec, Tiles
from backend.door.session.door_session import DoorSession
from backend.door.session.session_devices import ArrayType, CompiledFacts
from backend.door.session.session_port import Version
from backend.door.session.session_state import ExecutableValue, SessionLimits
from core.protocol import Submit

from .cluster_rig import F32, ClusterRig
from .session_rig import SessionRig, single

TYPE = ArrayType(F32, (128, 64), ShardSpec((0,), Tiles()))
FACTS = CompiledFacts("step", (0,), b"", ((F32, TYPE.shape),), (TYPE,), None, None, (), (), (), (0,), {}, 0)
ROOT = __file__.partition(f"{os.sep}tests{os.sep}")[0] + os.sep
CALLS, FILES, AGAIN = 67, 16, 33  # at most
INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")  # which Python 3.11 calls


class ClusterSession(SessionRig):
    """Its devices are a cluster's, its executable 1 is a step that takes its argument, and its array 1 is there."""

    def __init__(self) -> None:
        self.cluster = ClusterRig()
        self.sent, self.closed, self.resumed, self._op = [], None, 0, 0
        self.session = DoorSession(Version(25, 6), self, SessionLimits(), self.cluster.devices)
        step = self.cluster.executable(donated=(0,))
        self.session.state.executables[1] = ExecutableValue(step, FACTS)
        self.session.store(1, bytes(4 * 128 * 64))
        self.make(1, TYPE.shape, single())


class Hands:
    """The files of our functions that are called, one after the other."""

    def __init__(self) -> None:
        self.files: list[str] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_code.co_filename
        ours = name.startswith(ROOT) and not name.startswith(f"{ROOT}tests")
        if event == "call" and ours and frame.f_code.co_name not in INLINED:
            self.files.append(name)


def test_a_call_of_a_step_passes_through_few_hands() -> None:
    found, hands = ClusterSession(), Hands()
    found.execute(1, [1], [2])  # it puts its argument
    found.cluster.later()
    sys.setprofile(hands)
    try:
        asked = found.execute(1, [2], [3])
        left = found.cluster.later()
    finally:
        sys.setprofile(None)
    assert [type(call) for call in left] == [Submit]
    assert found.status(asked) == "ok"
    files = hands.files
    again = sum(file != files[at - 1] and file in files[:at] for at, file in enumerate(files))
    assert len(files) > 20, "nothing is counted"
    assert len(files) <= CALLS
    assert len(set(files)) <= FILES
    assert again <= AGAIN
