"""A session on simulated devices: when the program waits, for what, and which arrays have contents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from backend.door.protocol.ifrt_messages import StatusCode
from backend.door.protocol.ifrt_shardings import ShardSpec, Tiles
from backend.door.session.session_devices import ArrayCopy, ArrayType, StatusError
from backend.door.simulated.simulated_devices import (
    UNREADABLE,
    ShapesOnly,
    SimulatedDevices,
    SimulatedExecutable,
    SimulatedRefs,
)
from core.protocol import messages as m

from ..cluster_rig import F32, ClusterRig, Told


class FakeLine:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.waiting = self.working = 0
        self.resume: Callable[[], None] | None = None
        self.in_call = False

    def now(self) -> int:
        return 7

    def speaks(self) -> None:
        pass

    def waits(self) -> None:
        self.waiting += 1

    def waited(self) -> None:
        self.waiting -= 1

    def works(self) -> None:
        self.working += 1

    def worked(self) -> None:
        self.working -= 1

    def calling(self, resume: Callable[[], None]) -> bool:
        self.resume = resume if self.in_call else None
        return self.in_call


class SimulatedRig:
    def __init__(self, zeros: bool = False) -> None:
        self.cluster, self.line = ClusterRig(), FakeLine()
        self.devices = SimulatedDevices(self.cluster.devices, ShapesOnly(zeros), self.line)
        self.step = SimulatedExecutable(self.cluster.executable(), None)

    def put(self, shape: tuple[int, ...], device: int = 0) -> Any:
        contents = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        return self.devices.put(ArrayType(F32, shape, ShardSpec((device,))), [contents])

    def run(self) -> Any:
        return self.results(self.step, self.put((128, 64)))[0]

    def results(self, executable: SimulatedExecutable, argument: Any) -> Any:
        return self.devices.execute(executable, [argument], (), 0)

    def read(self, ref: Any) -> Any:
        told = Told()
        self.devices.fetch(ref, told)
        return told


@pytest.fixture
def rig() -> SimulatedRig:
    return SimulatedRig()


# --- contents -----------------------------------------------------------------------------------------------------


def unreadable(told: Told) -> bool:
    (fault,) = told
    return isinstance(fault, StatusError) and (fault.code, fault.text) == (StatusCode.UNIMPLEMENTED, UNREADABLE)


def test_results_have_no_contents_and_to_read_them_is_an_error_that_names_the_option(rig: SimulatedRig) -> None:
    assert unreadable(rig.read(rig.run()))
    assert "--values compute" in UNREADABLE
    assert not any(isinstance(call, m.Get) for call in rig.cluster.calls())
    assert rig.line.waiting == rig.line.working == 0


def test_small_arrays_of_the_program_s_own_can_be_read(rig: SimulatedRig) -> None:
    assert rig.read(rig.put((2,)))[0].tolist() == [0, 1]
    assert unreadable(rig.read(rig.put((128, 64))))


def test_with_zeros_what_has_no_contents_is_read_as_the_cluster_brings_it_and_takes_its_time() -> None:
    rig = SimulatedRig(zeros=True)
    assert rig.read(rig.put((2,)))[0].tolist() == [0, 1]
    result = rig.run()
    told = rig.read(result)
    assert (told, rig.line.waiting) == ([], 1)
    (get,) = (call for call in rig.cluster.calls() if isinstance(call, m.Get))
    rig.cluster.brings(get.request, np.zeros((128, 64)))
    assert (told[0].shape, told[0].any(), rig.line.waiting) == ((128, 64), False, 0)


def test_a_copy_and_an_array_of_shards_can_be_read_if_what_they_are_made_of_can(rig: SimulatedRig) -> None:
    whole = ArrayType(F32, (8,), ShardSpec((0, 1, 2, 3), Tiles((4,), (), (4,), (0,))))
    shards = [rig.put((2,), device) for device in range(4)]
    made = rig.devices.assemble(whole, shards)
    (copied,) = rig.devices.copy([ArrayCopy(whole, whole, made)], True)
    for found in (made, copied):
        assert [rig.read(each)[0].tolist() for each in rig.devices.shards(found)] == [[0, 1]] * 4
    halves = ArrayType(F32, (8,), ShardSpec((3, 1), Tiles((2,), (), (2,), (0,))))
    for known, wanted in ((made, [[0, 1, 0, 1]] * 2), (rig.put((8,)), [[0, 1, 2, 3], [4, 5, 6, 7]])):
        source = whole if known is made else ArrayType(F32, (8,), ShardSpec((0,)))
        (cut,) = rig.devices.copy([ArrayCopy(source, halves, known)], False)
        assert [rig.read(each)[0].tolist() for each in rig.devices.shards(cut)] == wanted
    of_results = ShapesOnly().assemble(whole, [shards[0].contents, None, None, None])
    assert of_results is None


def test_several_results_are_one_until_one_of_them_is_used_alone(rig: SimulatedRig) -> None:
    shape = (128, 64)
    many = SimulatedExecutable(rig.cluster.executable([shape], [shape] * 8), None)
    results = rig.results(many, rig.put(shape))
    assert isinstance(results, SimulatedRefs)
    rest = results.part(3)
    assert (results.count, rest.count) == (3, 5)
    again = SimulatedExecutable(rig.cluster.executable([shape] * 5, [shape]), None)
    (made,) = rig.results(again, rest)
    assert unreadable(rig.read(made))
    results.part(1)
    assert unreadable(rig.read(results.alone()))


# --- waiting ------------------------------------------------------------------------------------------------------


def test_a_program_waits_in_simulated_time_until_its_result_is_ready(rig: SimulatedRig) -> None:
    result, told = rig.run(), Told()
    rig.devices.when_ready([result], told)
    assert (told, rig.line.waiting) == ([], 1)
    rig.cluster.ready(result.timed.name)
    assert (told, rig.line.waiting) == ([None], 0)


def test_its_next_step_waits_until_its_thread_is_free_in_simulated_time(rig: SimulatedRig) -> None:
    resumed: list[str] = []
    assert not rig.devices.crowded(lambda: resumed.append("now"))
    rig.line.in_call = True
    assert rig.devices.crowded(lambda: resumed.append("later"))
    assert rig.line.resume is not None
    rig.line.resume()
    assert resumed == ["later"]
