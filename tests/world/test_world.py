"""The world itself: good runs give right results, and faults have the expected effects."""

from __future__ import annotations

import re

import msgspec
import pytest

from core.model.program import Program, SliceSpec, Value
from core.model.topology import Cluster, Island
from core.protocol import Blame
from tests.core.build import Build, chain, fan_out, moe, pipeline
from tests.core.build import sharding as split

from .timing import MS, S, Timing
from .world import World

TWO = Cluster((Island(name="i", hosts=2, devices_per_host=2),))
ISLANDS = Cluster((Island(name="i", hosts=3, devices_per_host=4), Island(name="j", hosts=3, devices_per_host=4)))


def on_islands(program: Program, *names: str) -> Program:
    """Return the program with its slices on these islands in turn."""
    slices = [
        msgspec.structs.replace(spec, island=names[number % len(names)]) for number, spec in enumerate(program.slices)
    ]
    return msgspec.structs.replace(program, slices=tuple(slices))


def drain(world: World) -> None:
    """Release everything, let all end, and check that nothing is left."""
    for client in world.clients:
        if client.actor.alive:
            client.release_all()
    assert world.run()
    world.at_rest()
    assert not world.faults
    assert all(not any(host.used.values()) for host in world.fabric.hosts.values())


# --- right runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sharding", "hosts"), [("", "0"), ("0", "0-1")])
def test_a_get_is_an_order_to_the_hosts_that_have_something_to_send(sharding: str, hosts: str) -> None:
    """All four devices have all of it, of which the lowest sends; or each has a part of its own."""
    world = World(TWO, diary=True)
    a = world.client("a")
    fetch = a.get(a.put(Value((64,), "float32", 0, split(sharding)), SliceSpec("s", 4)))
    assert world.run()
    assert fetch.right
    assert world.diary is not None
    assert set(re.findall(r"send t\d+ on (\S+) to client", "\n".join(world.diary))) == {hosts}
    drain(world)


@pytest.mark.parametrize(("shard", "host"), [(0, "0"), (1, "0"), (3, "1")])
def test_a_get_of_one_shard_is_an_order_to_the_host_that_has_it(shard: int, host: str) -> None:
    world = World(TWO, diary=True)
    a = world.client("a")
    buffer = a.put(Value((64,), "float32", 0, split("0")), SliceSpec("s", 4))
    fetch, none = a.get(buffer, shard), a.get(buffer, 4)
    assert world.run()
    assert fetch.right
    assert none.blame == Blame("refused", f"buffer {buffer.name} has no shard 4: it has 4, numbered from 0")
    assert world.diary is not None
    assert set(re.findall(r"send t\d+ on (\S+) to client", "\n".join(world.diary))) == {host}
    drain(world)


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
def test_all_kinds_of_programs_give_right_results(program: Program, dispatch: str) -> None:
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
    drain(world)


def test_a_get_is_answered_even_if_its_buffer_is_released_right_after_it() -> None:
    world = World(TWO)
    a = world.client("a")
    run = a.submit(chain(1), bytes(16))
    fetch = a.get(run.results[0])
    a.release(*run.results)
    assert world.run()
    assert run.good
    assert fetch.right
    drain(world)


# --- faults ---------------------------------------------------------------------------------------------


def busy_client(world: World) -> tuple[list[object], object]:
    """Return a client with five runs, one of which is under way."""
    a = world.client("a")
    runs = [a.submit(chain(5), bytes(16)) for _ in range(5)]
    assert world.run_until(lambda: len(world.gangs) > 2)
    return list(runs), a


@pytest.mark.parametrize("silent", [False, True])
def test_a_host_that_is_cut_off_for_longer_is_given_up_and_returns_as_a_new_one(silent: bool) -> None:
    world = World(TWO)
    runs, a = busy_client(world)
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
    drain(world)


def test_a_host_that_crashes_fails_its_own_runs_and_no_others() -> None:
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
    drain(world)


def test_a_get_of_a_buffer_being_restored_is_answered_when_its_host_dies() -> None:
    world = World(Cluster((Island(name="i", hosts=2, devices_per_host=1, memory=1000),)))
    a = world.client("a")

    def make(name: str) -> Program:
        b = Build(name, s=2)
        made = b.call(name, "s", [b.arg("s", 2, dtype="int8", split="0")], [b.value("s", 700, dtype="int8")])
        return b.program(made)

    first, second = a.submit(make("first"), bytes(2)), a.submit(make("second"), bytes(2))
    assert world.run()
    assert world.machine.buffers[world.machine.state.sessions[1].names[1].buffer].state == "spilled"
    fetch = a.get(first.results[0])
    assert world.run_until(lambda: world.machine.state.sessions[1].names[1].gets != [])
    world.crash_host(1)
    assert world.run()
    assert fetch.blame is not None
    assert fetch.blame.code == "host-lost"
    assert second.good
    world.return_host(1)
    drain(world)


def test_a_literal_uses_memory_that_is_freed_in_the_same_turn() -> None:
    world = World(Cluster((Island(name="i", hosts=1, devices_per_host=1, memory=1000),)))
    a = world.client("a")
    b = Build("read", s=1)
    program = b.program(b.call("sum", "s", [b.arg("s", 600, dtype="int8")], [b.value("s", 1, dtype="int8")]))
    first = a.submit(program, bytes(600))  # so that the program is compiled
    assert world.run()
    a.release(a.put(Value((700,), "int8", 0, split("0")), SliceSpec("s", 1)))
    second = a.submit(program, bytes(600))
    assert world.run()
    assert first.good
    assert second.good
    drain(world)


@pytest.mark.parametrize("hosts", [(0,), (1,), (0, 1)])
def test_code_that_hosts_could_not_compile_through_no_fault_of_its_own_is_compiled_for_the_next_call(
    hosts: tuple[int, ...],
) -> None:
    world = World(TWO)
    a = world.client("a")
    for host in hosts:
        world.compiler.failing[host, "step"] = 1
    bad = a.submit(chain(2), bytes(16))
    assert world.run()
    assert bad.blame is not None
    assert bad.blame.code == "code"
    good = a.submit(chain(2), bytes(16))
    assert world.run()
    assert good.good
    drain(world)


def test_a_compiler_that_fails_in_a_new_epoch_fails_the_runs_that_go_on_and_not_those_after_them() -> None:
    world = World(TWO)
    a = world.client("a")
    before = a.submit(chain(20), bytes(16))
    assert world.run()
    assert before.good
    world.break_gang(1, "step 2", "launch")
    world.compiler.failing[1, "step"] = 1
    runs = [a.submit(chain(20), bytes(16)) for _ in range(3)]
    assert world.run()
    assert [run.blame.code for run in runs if run.blame is not None] == ["user", "code", "code"]
    after = a.submit(chain(20), bytes(16))
    assert world.run()
    assert after.good
    drain(world)
