"""The world itself: that right runs come out right in it, and that what is wrong is seen."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from core.dataplane import Chunk
from core.effects import Effect, Finished, Launch, MakeBuffer
from core.place import Place, line
from core.plan import Code, Gang, Layout, Plan, Slot
from core.program import Program, Sharding, SliceSpec, Value
from core.topology import Cluster, Island
from tests.core.build import Build, chain, fan_out, hop, moe, pipeline
from tests.core.build import sharding as split

from . import contents, oracle
from .clock import Clock
from .devices import Fabric
from .filling import ClusterHosts, Filling
from .network import Network
from .world import MS, S, Timing, World

TWO = Cluster((Island(name="i", hosts=2, per_host=2),))
ISLANDS = Cluster((Island(name="i", hosts=3, per_host=4), Island(name="j", hosts=3, per_host=4)))


def on_islands(program: Program, *names: str) -> Program:
    """Its slices on these islands in turn."""
    slices = [
        msgspec.structs.replace(spec, island=names[number % len(names)])
        for number, spec in enumerate(program.slices)
    ]
    return msgspec.structs.replace(program, slices=tuple(slices))


def rest(world: World) -> None:
    """Everybody lets go, all is over, and nothing is left."""
    for client in world.clients:
        if client.actor.alive:
            client.release_all()
    assert world.run()
    world.at_rest()
    assert not world.faults
    assert all(not any(host.used.values()) for host in world.fabric.hosts.values())


# --- right runs -----------------------------------------------------------------------------------------


def test_one_gang_over_two_hosts() -> None:
    world = World(TWO, diary=True)
    a = world.client("a")
    run = a.submit(chain(1), bytes(16))
    fetch = a.get(run.results[0])
    assert world.run()
    assert run.good
    assert fetch.right
    assert world.gangs == [(0, "chain", "step 0")]
    assert world.diary is not None
    launches = [line for line in world.diary if "launch #" in line]
    assert [line.split()[1:3] for line in launches] == [["host", "0"], ["host", "1"]]
    rest(world)


def test_a_program_on_two_islands_moves_its_values_between_them() -> None:
    world = World(ISLANDS)
    a = world.client("a")
    run = a.submit(on_islands(hop(4, devices=8), "i", "j"), bytes(64))
    fetch = a.get(run.results[0])
    assert world.run()
    assert run.good
    assert fetch.right
    assert {island for island, _, _ in world.gangs} == {0, 1}
    assert world.plane.moved > 0
    rest(world)


def test_what_was_put_is_what_one_gets() -> None:
    world = World(TWO, chunk=64, pool=256)
    a, b = world.client("a"), world.client("b", weight=2)
    value, where = Value((64, 8), "float32", 0, split("0.")), SliceSpec("s", 4)
    mine, yours = a.put(value, where), b.put(value, where)
    fetches = [a.get(mine), b.get(yours)]
    assert world.run()
    assert [fetch.right for fetch in fetches] == [True, True]
    assert fetches[0].digest != fetches[1].digest
    rest(world)


PROGRAMS = {
    "moe": moe(),
    "moe on two islands": on_islands(moe(), "i", "j"),
    "gpipe": on_islands(pipeline(4, 3), "i", "j"),
    "1f1b": on_islands(pipeline(3, 4, "1f1b"), "i", "j"),
    "fan out": on_islands(fan_out(3), "i", "i", "j"),
    "donated": chain(6, 4, donate=True, size=8, temp=100),
}


@pytest.mark.parametrize("dispatch", ["parallel", "sequential"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_all_kinds_of_programs_come_out_right(program: Program, dispatch: str) -> None:
    world = World(ISLANDS, seed=3, timing=Timing(jitter=100_000), chunk=16, pool=1 << 12)
    a = world.client("a")
    fetches = []
    for _ in range(2):
        arguments = [a.put(value, program.slices[value.slice]) for value in program.args]
        run = a.submit(program, *arguments, dispatch=dispatch)
        fetches += [a.get(result) for result in run.results]
    assert world.run()
    assert all(run.good for run in a.runs.values())
    assert all(fetch.right for fetch in fetches)
    rest(world)


def test_a_get_is_answered_even_if_its_buffer_is_released_right_behind_it() -> None:
    world = World(TWO)
    a = world.client("a")
    run = a.submit(chain(1), bytes(16))
    fetch = a.get(run.results[0])
    a.release(*run.results)
    assert world.run()
    assert run.good
    assert fetch.right
    rest(world)


# --- faults ---------------------------------------------------------------------------------------------


def test_one_seed_is_one_world() -> None:
    def play(seed: int) -> str:
        world = World(TWO, seed, timing=Timing(jitter=200_000), diary=True)
        a = world.client("a")
        runs = [a.submit(chain(3), bytes(16)) for _ in range(3)]
        assert world.run()
        assert all(run.good for run in runs)
        return world.digest()

    assert play(1) == play(1)
    assert play(1) != play(2)


def busy(world: World) -> tuple[list[object], object]:
    """A client with five runs, one of which is under way."""
    a = world.client("a")
    runs = [a.submit(chain(5), bytes(16)) for _ in range(5)]
    assert world.run_until(lambda: len(world.gangs) > 2)
    return list(runs), a


def test_a_cut_within_the_lease_costs_time_and_nothing_else() -> None:
    world = World(TWO)
    runs, _ = busy(world)
    world.cut("host 1", "controller")
    world.run_for(100 * MS)
    world.mend("host 1", "controller")
    assert world.run()
    assert all(run.good for run in runs)  # type: ignore[attr-defined]
    rest(world)


@pytest.mark.parametrize("silent", [False, True])
def test_a_host_that_is_cut_off_for_longer_is_given_up_and_comes_back_as_another(silent: bool) -> None:
    world = World(TWO)
    runs, a = busy(world)
    world.cut("host 1", "controller", silent)
    world.run_for(5 * S)
    world.mend_all()
    assert world.run()
    assert {run.blame.code for run in runs if run.blame} == {"host-lost"}  # type: ignore[attr-defined]
    assert all(run.ends == 1 for run in runs)  # type: ignore[attr-defined]
    again = a.submit(chain(5), bytes(16))  # type: ignore[attr-defined]
    assert world.run()
    assert again.good
    assert world.hosts[1].starts == 2
    rest(world)


def test_a_host_that_crashes_takes_its_runs_along_and_no_others() -> None:
    world = World(ISLANDS)
    a, b = world.client("a"), world.client("b")
    doomed = a.submit(on_islands(chain(50, 12), "i"), bytes(48))
    safe = b.submit(on_islands(chain(50, 12), "j"), bytes(48))
    world.run_until(lambda: len(world.gangs) > 10)
    world.crash_host(1)
    world.run_for(10 * MS)
    world.return_host(1)
    assert world.run()
    assert doomed.blame is not None
    assert doomed.blame.host == 1
    assert safe.good
    rest(world)


def test_a_client_that_crashes_leaves_nothing_behind() -> None:
    world = World(TWO)
    busy(world)
    b = world.client("b")
    run = b.submit(chain(5), bytes(16))
    world.crash_client("a")
    assert world.run()
    assert run.good
    world.run_for(5 * S)
    rest(world)


@pytest.mark.parametrize("when", ["launch", "run"])
def test_a_gang_that_fails_is_blamed_by_name(when: str) -> None:
    world = World(TWO)
    a = world.client("a")
    world.break_gang(1, "step 2", when)
    bad, good = a.submit(chain(4), bytes(16)), a.submit(chain(4), bytes(16))
    assert world.run()
    assert bad.blame is not None
    assert (bad.blame.code, bad.blame.program, bad.blame.host) == ("user", "chain", 1)
    assert good.good  # a launch that fails ends the epoch, but what comes behind it in the order goes on
    rest(world)


def test_code_that_does_not_compile_ends_its_own_runs_only() -> None:
    world = World(TWO)
    a = world.client("a")
    b = Build("other", s=4)
    world.break_code("odd")
    bad = a.submit(b.program(b.call("odd", "s", [b.arg("s", 4, split="0")])), bytes(16))
    good = a.submit(chain(2), bytes(16))
    assert world.run()
    assert bad.blame is not None
    assert bad.blame.code == "user"
    assert good.good
    rest(world)


def test_a_slow_host_makes_others_wait_and_nothing_else() -> None:
    world = World(TWO)
    world.slow(1, 3.0, lag=MS)
    a = world.client("a")
    runs = [a.submit(chain(5), bytes(16)) for _ in range(3)]
    assert world.run()
    assert all(run.good for run in runs)
    rest(world)


# --- what is wrong is seen ------------------------------------------------------------------------------


HOME = line(0, 0, 4)


def lay(place: Place, axes: str, size: int = 8) -> Layout:
    return Layout((size,), "float32", place, (place.size,), split(axes) if axes else Sharding())


def bench(memory: int = 1000) -> tuple[Clock, Fabric, list[tuple[int, Effect]], list[str]]:
    clock, told, faults = Clock(), list[tuple[int, Effect]](), list[str]()
    cluster = Cluster((Island(name="i", hosts=2, per_host=2, memory=memory),))
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


def test_a_gang_that_one_host_skips_hangs_and_says_who_is_missing() -> None:
    clock, fabric, _, _ = bench()
    fabric.launch(0, launch(1, 0), plan(gang("g")), 0)
    settle(clock)
    assert fabric.stuck() == [
        "gang 1 'g' waits at device 0: devices 2-3 have not launched it",
        "gang 1 'g' waits at device 1: devices 2-3 have not launched it",
    ]


def test_memory_beyond_what_there_is_is_seen() -> None:
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


def test_a_gang_whose_hosts_give_it_different_inputs_computes_nonsense() -> None:
    made = plan(gang("g", (0,), (1,)), slots=2)
    right = contents.computed("k", (contents.literal(b"x"),), 0)
    for other, equal in ((b"x", True), (b"y", False)):
        clock, fabric, _, _ = bench()
        fabric.make(0, MakeBuffer(7, lay(HOME, "0"), b"x", ()))
        fabric.make(1, MakeBuffer(7, lay(HOME, "0"), other, ()))
        assert (
            outcome(fabric, clock, made, launch(1, 0, [7], [9]), launch(1, 0, [7], [9])) == right
        ) == equal


def test_a_placeholder_spoils_what_its_gang_computes() -> None:
    clock, fabric, _, faults = bench()
    made = plan(gang("g", (0,), (1,)), slots=2)
    fabric.make(0, MakeBuffer(7, lay(HOME, "0"), b"x", ()))
    spoilt = Launch(1, 1, 0, (7,), (9,), (), (), True, ())
    assert outcome(fabric, clock, made, launch(1, 0, [7], [9]), spoilt) == contents.SPOILT
    assert not faults


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


def test_a_transfer_is_whole_when_all_its_pieces_of_one_source_are_here() -> None:
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


def test_boxes_are_what_a_sharding_says() -> None:
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


def test_the_oracle_follows_the_program_and_nothing_else() -> None:
    b = Build("p", s=2)
    x, y = b.arg("s", 4), b.arg("s", 4)
    first = b.call("f", "s", [x, y])
    program = b.program(b.call("g", "s", [first]), first)
    g, f = oracle.results(program, [1, 2])
    assert f == contents.computed("key-f", (1, 2), 0)
    assert g == contents.computed("key-g", (f,), 0)
    assert oracle.results(program, [2, 1]) != [g, f]


# --- the network ----------------------------------------------------------------------------------------


def wires(latency: Sequence[int]) -> tuple[Clock, Network, list[str]]:
    clock, log, draws = Clock(), list[str](), iter(latency)
    network = Network(
        clock,
        lambda one, other: next(draws),
        lambda actor, other: log.append(f"{clock.now} {actor} up"),
        lambda actor, other: log.append(f"{clock.now} {actor} down"),
        lambda actor, other, frame: log.append(f"{clock.now} {actor} got {frame}"),
    )
    return clock, network, log


def test_a_connection_is_first_in_first_out_whatever_the_latencies() -> None:
    clock, network, log = wires([5, 30, 10, 10])
    network.dial("a", "b")
    for frame in (1, 2, 3):
        network.send("a", "b", frame)
    settle(clock)
    assert log == ["0 a up", "5 b up", "30 b got 1", "30 b got 2", "30 b got 3"]


def test_a_cut_loses_what_is_under_way() -> None:
    clock, network, log = wires([5] * 9)
    network.dial("a", "b")
    settle(clock)
    network.send("a", "b", 1)
    network.cut("a", "b")
    network.dial("a", "b")  # in vain
    settle(clock)
    network.mend("a", "b")
    network.dial("a", "b")
    network.send("a", "b", 2)
    settle(clock)
    assert log[2:] == ["5 a down", "5 b down", "10 a up", "15 b up", "15 b got 2"]


def test_a_silent_cut_is_not_told_until_it_is_mended() -> None:
    clock, network, log = wires([5] * 9)
    network.dial("a", "b")
    settle(clock)
    network.cut("a", "b", silent=True)
    network.send("a", "b", 1)
    settle(clock)
    assert len(log) == 2
    network.mend("a", "b")
    settle(clock)
    assert log[2:] == ["5 a down", "5 b down"]


def test_the_dead_hear_nothing_and_the_living_hear_that_they_died() -> None:
    clock, network, log = wires([5] * 9)
    network.dial("a", "b")
    settle(clock)
    network.send("a", "b", 1)
    network.die("b")
    settle(clock)
    assert log[2:] == ["5 a down"]


def test_one_who_hangs_up_is_heard_out() -> None:
    clock, network, log = wires([5] * 9)
    network.dial("a", "b")
    settle(clock)
    network.send("a", "b", 1)
    network.hang_up("a", "b")
    settle(clock)
    assert log[2:] == ["10 b got 1", "10 b down"]
