"""The world's devices, contents: they notice all mistakes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from core.model.place import Place, line
from core.model.plan import Code, Gang, Layout, Plan, Slot
from core.model.program import Sharding
from core.model.topology import Cluster, Island
from core.protocol.dataplane import Chunk
from core.protocol.effects import Effect, Finished, Launch, MakeBuffer
from tests.core.build import Build
from tests.core.build import sharding as split

from . import contents, oracle
from .clock import Clock
from .devices import Fabric
from .filling import ClusterHosts, Filling

# --- mistakes are noticed -------------------------------------------------------------------------------


HOME = line(0, 0, 4)


def lay(place: Place, axes: str, size: int = 8) -> Layout:
    return Layout((size,), "float32", place, (place.size,), split(axes) if axes else Sharding())


def bench(memory: int = 1000) -> tuple[Clock, Fabric, list[tuple[int, Effect]], list[str]]:
    clock, told, faults = Clock(), list[tuple[int, Effect]](), list[str]()
    cluster = Cluster((Island(name="i", hosts=2, devices_per_host=2, memory=memory),))
    fabric = Fabric(cluster, clock, lambda host, event: told.append((host, event)), None, faults.append)
    fabric.boot(0)
    fabric.boot(1)
    return clock, fabric, told, faults


def gang(name: str, inputs: Sequence[int] = (), outputs: Sequence[int] = (), collective: bool = True) -> Gang:
    return Gang(name, 0, HOME, tuple(inputs), tuple(outputs), (), 100, 0, collective, False, 0)


def plan(*steps: Gang, slots: int = 0) -> Plan:
    made = Slot(lay(HOME, "0"), 8, -1)
    return Plan(1, "p", (Code("k", "k"),), (made,) * slots, steps, ((),) * len(steps), ())


def launch(seq: int, step: int, inputs: Sequence[int] = (), outputs: Sequence[int] = ()) -> Launch:
    return Launch(seq, 1, step, tuple(inputs), tuple(outputs), (), (), False, ())


def settle(clock: Clock) -> None:
    while clock.next_time() is not None:
        clock.step()


def test_a_collective_starts_when_all_its_devices_have_come_to_it() -> None:
    clock, fabric, told, _ = bench()
    made = plan(gang("g"))
    fabric.launch(0, launch(1, 0), made, 0)
    clock.after(50, fabric.launch, 1, launch(1, 0), made, 0)
    settle(clock)
    assert told == [(0, Finished(1)), (1, Finished(1))]
    assert clock.now == 150


def test_two_collectives_in_two_orders_hang_and_are_named() -> None:
    clock, fabric, told, _ = bench()
    made = plan(gang("one"), gang("two"))
    fabric.launch(0, launch(1, 0), made, 0)
    fabric.launch(0, launch(2, 1), made, 0)
    fabric.launch(1, launch(2, 1), made, 0)
    fabric.launch(1, launch(1, 0), made, 0)
    settle(clock)
    assert told == []
    assert "device 2 of host 1 is at gang 2 'two'" in fabric.stuck()[0]
    fabric.abandon(0, (1,))
    fabric.abandon(1, (1,))
    settle(clock)
    assert told == [(0, Finished(2)), (1, Finished(2))]
    assert fabric.stuck() == []


def test_a_gang_that_one_host_skips_hangs_and_the_missing_host_is_named() -> None:
    clock, fabric, _, _ = bench()
    fabric.launch(0, launch(1, 0), plan(gang("g")), 0)
    settle(clock)
    assert fabric.stuck() == [
        "gang 1 'g' waits at device 0: devices 2-3 have not launched it",
        "gang 1 'g' waits at device 1: devices 2-3 have not launched it",
    ]


def test_a_buffer_donated_to_an_abandoned_gang_is_freed_when_earlier_gangs_are_over() -> None:
    clock, fabric, _, faults = bench()
    made = plan(gang("make", (), (0,)), gang("read", (0,), ()), gang("consume", (0,), ()), slots=1)
    for host in (0, 1):
        fabric.launch(host, launch(1, 0, [], [7]), made, 0)
        fabric.launch(host, launch(2, 1, [7]), made, 0)
        fabric.launch(host, msgspec.structs.replace(launch(3, 2, [7]), gives=(7,)), made, 0)
        # the first gang cannot run without the other host
        assert not any(fabric.hosts[host].used.values()) or host
        fabric.abandon(host, (3,))
    clock.step()
    assert all(fabric.hosts[0].used.values())  # the second still reads it
    settle(clock)
    assert not any(fabric.hosts[0].used.values())
    assert not faults


def test_memory_beyond_the_capacity_is_noticed() -> None:
    _, fabric, _, faults = bench(memory=12)
    fabric.make(0, MakeBuffer(7, lay(HOME, "0"), b"", ()))
    assert not faults
    fabric.make(0, MakeBuffer(8, lay(HOME, "0"), b"", ()))
    assert faults == [f"buffer 8 makes 16 bytes on device {device} of 12" for device in (0, 1)]
    fabric.free(0, 7)
    fabric.free(0, 7)
    assert faults[2:] == ["host 0 frees buffer 7, which it does not have"]


def outcome(fabric: Fabric, clock: Clock, made: Plan, left: Launch, right: Launch) -> int | None:
    fabric.launch(0, left, made, 0)
    fabric.launch(1, right, made, 0)
    settle(clock)
    return fabric.hosts[0].buffers[9].read()


def test_a_gang_with_different_inputs_on_its_hosts_computes_wrong_contents() -> None:
    made = plan(gang("g", (0,), (1,)), slots=2)
    right = contents.computed("k", (contents.literal(b"x"),), 0)
    for other, equal in ((b"x", True), (b"y", False)):
        clock, fabric, _, _ = bench()
        fabric.make(0, MakeBuffer(7, lay(HOME, "0"), b"x", ()))
        fabric.make(1, MakeBuffer(7, lay(HOME, "0"), other, ()))
        assert (outcome(fabric, clock, made, launch(1, 0, [7], [9]), launch(1, 0, [7], [9])) == right) == equal


def test_a_placeholder_spoils_what_its_gang_computes() -> None:
    clock, fabric, _, faults = bench()
    made = plan(gang("g", (0,), (1,)), slots=2)
    fabric.make(0, MakeBuffer(7, lay(HOME, "0"), b"x", ()))
    spoilt = Launch(1, 1, 0, (7,), (9,), (), (), True, ())
    assert outcome(fabric, clock, made, launch(1, 0, [7], [9]), spoilt) == contents.SPOILT
    assert not faults


TWO = Cluster((Island(name="i", hosts=2, devices_per_host=2),))
SOURCE, TARGET = lay(line(0, 0, 2), "0"), lay(line(0, 2, 2), "")
HOSTS = ClusterHosts(TWO.host_of, [range(2), range(2, 4)].__getitem__)
PIECES = ((0, 0, 16), (0, 1, 16))


def fill(*chunks: Chunk, digests: Sequence[int] = (5, 5)) -> int:
    filling = Filling(1, 1, TARGET, PIECES, sparse=False, hosts=HOSTS, sparse_source=lambda transfer: None)
    for chunk, digest in zip(chunks, digests, strict=False):
        filling.arrive(chunk.sender, chunk.piece, chunk.offset, chunk.nbytes, (digest, SOURCE))
    return filling.digest()


def chunk(piece: int, nbytes: int = 16, offset: int = 0) -> Chunk:
    return Chunk(1, 0, 1, piece, offset, nbytes)


def test_a_transfer_is_complete_when_all_its_pieces_of_one_source_have_arrived() -> None:
    assert fill(chunk(0), chunk(1)) == 5
    assert fill(chunk(0), chunk(1, 8), chunk(1, 8, 8), digests=(5, 5, 5)) == 5
    wrong = [
        fill(chunk(0)),
        fill(chunk(0), chunk(0)),
        fill(chunk(0), chunk(1, 8)),
        fill(chunk(0), chunk(1, 8, 8)),
        fill(chunk(0), chunk(1), chunk(1), digests=(5, 5, 5)),
        fill(chunk(0), chunk(1), digests=(5, 6)),
    ]
    assert 5 not in wrong


def test_boxes_follow_the_sharding() -> None:
    place = line(0, 0, 4)
    layout = Layout((5, 4), "int8", place, (2, 2), split("0,1"))
    assert contents.boxes(layout) == (((0, 3), (0, 2)), ((0, 3), (2, 4)), ((3, 5), (0, 2)), ((3, 5), (2, 4)))
    assert contents.nbytes(layout) == 6
    replicated = msgspec.structs.replace(layout, sharding=split("1."))
    assert contents.boxes(replicated)[:2] == (((0, 3), (0, 4)), ((3, 5), (0, 4)))
    assert contents.shards(replicated) == {0: ((0, 3), (0, 4)), 1: ((3, 5), (0, 4))}
    whole = ((0, 5), (0, 4))
    assert contents.covers([((0, 3), (0, 4)), ((3, 5), (0, 4))], whole)
    assert not contents.covers([((0, 3), (0, 4)), ((2, 5), (0, 4))], whole)
    assert not contents.covers([((0, 3), (0, 4))], whole)


def test_the_oracle_follows_the_program_alone() -> None:
    b = Build("p", s=2)
    x, y = b.arg("s", 4), b.arg("s", 4)
    first = b.call("f", "s", [x, y])
    program = b.program(b.call("g", "s", [first]), first)
    g, f = oracle.results(program, [1, 2])
    assert f == contents.computed("key-f", (1, 2), 0)
    assert g == contents.computed("key-g", (f,), 0)
    assert oracle.results(program, [2, 1]) != [g, f]
