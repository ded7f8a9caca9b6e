"""A session's arrays are bounded in bytes: what counts, what shares, what frees, and what happens beyond the bound."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backend.door.protocol.ifrt_messages import STRING, TOKEN, DTypeProto
from backend.door.protocol.ifrt_shardings import ShardSpec
from backend.door.session.memory_meter import MemoryMeter, bytes_of, release, shards_of
from backend.door.session.session_devices import ArrayType
from backend.door.session.session_state import SessionLimits

from ..session_rig import SessionRig, replicated, tiled
from .test_arrays import assemble

KIB = 1 << 10


def rig_of(most: int) -> SessionRig:
    return SessionRig(limits=SessionLimits(array_bytes=most))


def used(rig: SessionRig) -> int:
    return rig.session.state.memory.used


def destruct(rig: SessionRig, *handles: int) -> None:
    rig.ask("destruct_array", array_handle=list(handles))


def test_an_array_beyond_the_bound_is_an_error_that_names_the_bound_and_the_option() -> None:
    rig = rig_of(20)
    assert rig.status(rig.array(1)) == "ok"
    assert rig.status(rig.array(2)) == "ok"
    assert rig.status(rig.array(3)) == (
        "RESOURCE_EXHAUSTED: 8 bytes more would be too much: arrays of this session take 16 bytes, and a session may "
        "have 20 bytes (--memory-per-session of the door). Delete arrays, or donate arguments "
        "(jax.jit(donate_argnums=...))"
    )
    assert "RESOURCE_EXHAUSTED" in rig.status(rig.read(3))  # whoever uses it hears why it is not there
    assert rig.contents(1) == [1, 2]
    destruct(rig, 1)
    assert rig.status(rig.array(4)) == "ok"
    assert used(rig) == 16


def test_a_program_whose_results_do_not_fit_is_not_run() -> None:
    rig = rig_of(12)
    executable = rig.compile()
    rig.array(1)
    assert "RESOURCE_EXHAUSTED" in rig.status(rig.execute(executable, [1], [50]))
    assert not [line for line in rig.devices.log if line.startswith("execute")]
    assert "RESOURCE_EXHAUSTED" in rig.status(rig.execute(executable, [50], [51]))
    destruct(rig, 1)
    assert used(rig) == 0, "an error that is kept keeps no memory of the arrays that it is about"


def test_donated_arguments_make_room_for_results() -> None:
    rig = rig_of(12)
    executable = rig.compile(b"taking")
    rig.array(1)
    for at in range(50, 60):
        assert rig.status(rig.execute(executable, [1 if at == 50 else at - 1], [at])) == "ok"
        assert used(rig) == 8
    kept = rig.execute(executable, [59], [60], non_donatable_input_indices=[0])
    assert "RESOURCE_EXHAUSTED" in rig.status(kept)


def test_shards_share_the_memory_of_their_array_until_they_are_all_that_is_left() -> None:
    rig = rig_of(KIB)
    rig.session.store(1, bytes(16))
    assert rig.status(rig.make(1, (4,), replicated([0, 1]))) == "ok"
    assert used(rig) == 32  # a copy on each device
    rig.ask("disassemble_into_single_device_arrays", array_handle=1, result_handles=[2, 3])
    rig.ask("fully_replicated_shard", array_handle=1, result_handle=4)
    assert used(rig) == 32
    destruct(rig, 1)
    assert used(rig) == 32
    destruct(rig, 3)
    assert used(rig) == 16
    destruct(rig, 2)
    assert used(rig) == 16  # 4 is the same shard as 2
    destruct(rig, 4)
    assert used(rig) == 0


def test_an_array_put_together_has_the_memory_of_its_parts() -> None:
    rig = rig_of(KIB)
    rig.array(1, device=0)
    rig.array(2, device=1)
    done = assemble(rig, tiled([2], [0, 1]), {"dims": [4]}, result_handle=3, single_device_array_handles=[1, 2])
    assert rig.status(done) == "ok"
    destruct(rig, 1, 2)
    assert used(rig) == 16
    destruct(rig, 3)
    assert used(rig) == 0


def test_copies_to_other_devices_count_and_those_to_the_same_may_share() -> None:
    rig = rig_of(24)
    rig.array(1)
    assert rig.status(rig.ask("copy_arrays", array_handles=[1], device_ids=[1], result_handles=[2])) == "ok"
    assert used(rig) == 16
    assert rig.status(rig.ask("copy_arrays", array_handles=[1], device_ids=[0], result_handles=[3])) == "ok"
    assert used(rig) == 16
    always = rig.ask("copy_arrays", array_handles=[1], device_ids=[0], result_handles=[4], copy_semantics=1)
    assert (rig.status(always), used(rig)) == ("ok", 24)
    more = rig.ask("copy_arrays", array_handles=[1], device_ids=[2], result_handles=[5])
    assert "RESOURCE_EXHAUSTED" in rig.status(more)


def test_deleting_an_array_frees_its_memory_although_handles_are_left() -> None:
    rig = rig_of(8)
    rig.array(1)
    rig.ask("delete_array", array_handle=[1])
    assert used(rig) == 0
    assert rig.status(rig.array(2)) == "ok"
    destruct(rig, 1)
    assert used(rig) == 8


def test_bytes_are_those_of_all_shards() -> None:
    where = ShardSpec((0, 1))
    # a byte an element, in host memory
    assert bytes_of(ArrayType(DTypeProto.KIND_S4, (3, 5), ShardSpec((0,)))) == 15
    assert bytes_of(ArrayType(DTypeProto.KIND_F64, (3, 0), where)) == 0
    assert bytes_of(ArrayType(STRING, (3,), ShardSpec((0,))), contents=100) == 148
    assert bytes_of(ArrayType(TOKEN, (), ShardSpec((0,)))) > 0


@given(
    st.lists(st.tuples(st.sampled_from(("take", "split", "share", "drop", "release")), st.integers(0, 7)), max_size=60)
)
def test_what_is_used_is_what_live_allocations_have_each_once(steps: list[tuple[str, int]]) -> None:
    meter = MemoryMeter(1 << 20)
    held: list[Any] = []
    for what, at in steps:
        if what == "take":
            held.append(meter.take(100 * at))
        elif not held:
            continue
        elif what == "split":
            held += shards_of(held[at % len(held)], 3)
        elif what == "share":
            held.append(held[at % len(held)])
        elif what == "drop":
            del held[at % len(held)]
        else:
            release(held[at % len(held)])
        assert meter.used == _alive(held)
    held.clear()
    assert meter.used == 0


def _alive(held: list[Any]) -> int:
    found = {id(part): part for each in held for part in _reached(each)}
    return sum(part.nbytes for part in found.values())


def _reached(memory: Any) -> list[Any]:
    return [memory, *(part for each in memory.parts for part in _reached(each))]
