"""Behaviours when something breaks: hosts, links, devices, launches, clients, the controller itself."""

from __future__ import annotations

from msgspec.structs import replace

from core.controller import Bounds, Config
from core.model.program import Program, SliceSpec
from core.model.topology import Cluster, Island, small
from tests.core.build import Build, chain
from tests.world.script import RunHandle, Script
from tests.world.timing import MS, US, S
from tests.world.world import World

from .running import _good, _world, _zeros


def _steps(count: int, devices: int, cost: int = 1 * MS) -> Program:
    b = Build("steps", s=devices)
    x = b.arg("s", devices, split="0")
    for number in range(count):
        x = b.call("step", "s", [x], cost=cost, node=f"step {number}")
    return b.program(x)


def _over(world: World, client: Script, program: Program) -> RunHandle:
    """Call the program, and go on until that run has ended."""
    run = client.submit(program, *_zeros(program))
    assert world.run_until(lambda: run.ended)
    return run


def a_users_error_arrives_by_name() -> World:
    """A computation fails on one host. Its readers are launched with placeholders, so that collectives have all
    partners. The run fails once, with program, node, host and cause; the next run succeeds."""
    w = _world()
    program = chain(3, devices=2)
    a = w.client("a")
    w.break_gang(1, "step 0")
    first = _over(w, a, program)
    assert first.blame is not None
    assert (first.blame.node, first.blame.host) == ("step 0", 1)
    return _good(w, a.submit(program, *_zeros(program)))


def a_failed_compile_fails_only_its_program() -> World:
    """The error of the compiler reaches each client that submits the program. Other clients do not notice."""
    w = _world(hosts=1)
    b = Build("broken", s=1)
    broken = b.program(b.call("broken", "s", [b.arg("s", 4)]))
    w.break_code("broken")
    program = chain(1, devices=1)
    first = w.client("a").submit(broken, *_zeros(broken))
    second = w.client("b").submit(program, *_zeros(program))
    _good(w, second)
    assert first.blame is not None
    assert "no such operation" in first.blame.cause
    return w


def a_failed_launch_ends_the_epoch() -> World:
    """One host could not enqueue a gang in which its peer waits. The gang is given up on both hosts, and the island
    forms again."""
    w = _world()
    program = chain(1, devices=2)
    a = w.client("a")
    w.break_gang(0, "step 0", "launch")
    first = _over(w, a, program)
    assert first.blame is not None
    assert first.blame.host == 0
    return _good(w, a.submit(program, *_zeros(program)))


def a_lost_host_ends_the_epoch() -> World:
    """The gangs of a lost host are abandoned, its buffers are lost by name, and its run fails once. The survivor
    re-forms, and a slice that fits it is bound there."""
    w = _world(hosts=2)
    program = _steps(3, devices=2)
    a = w.client("a")
    kept = _over(w, a, program)
    under_way = a.submit(program, *_zeros(program))
    assert w.run_until(lambda: len(w.gangs) == 6)
    w.run_for(1 * MS)
    w.crash_host(1)
    assert w.run_until(lambda: under_way.ended)
    assert under_way.blame is not None
    assert under_way.blame.code == "host-lost"
    assert kept.results[0].blame is not None
    one = chain(1, devices=1)
    return _good(w, w.client("b").submit(one, *_zeros(one)))


def a_spare_takes_over() -> World:
    """The slice of a lost host is bound again on the spare. A run that had not started is lowered again for it."""
    cluster = Cluster((Island(name="i0", hosts=3, devices_per_host=1, spares=1),))
    w = World(cluster, seed=7, diary=True)
    program = chain(1, devices=2)
    a = w.client("a")
    _over(w, a, program)
    w.crash_host(0)
    assert w.run_until(lambda: any("is lost" in line for line in w.told))
    return _good(w, a.submit(program, *_zeros(program)))


def a_slice_that_is_down_fails_what_needs_it_at_once() -> World:
    """A client has a slice on each of two islands, and what needs one that is down is not to wait. An island is lost:
    what was to run there and waits for its code fails, and so do later calls. The other island goes on. When the host
    is back, so is the slice."""
    w = _world(hosts=1, islands=2)
    assert w.run_until(lambda: all(island.phase == "running" for island in w.machine.state.islands))
    a = w.client("a")
    first, second = (SliceSpec(name, 1, island=name, absent="fail") for name in ("i0", "i1"))
    here, there = (replace(_steps(2, devices=1), name=on.name, slices=(on,)) for on in (first, second))
    runs, waits = a.submit(there, *_zeros(there)), a.register(there, tell=True, anew=True)
    w.run_for(300 * US)
    w.crash_host(1)
    assert w.run_until(lambda: runs.ended and waits in a.heard)
    later, put = a.submit(there, *_zeros(there)), a.put(there.args[0], second)
    told = a.register(there, tell=True, anew=True)
    assert w.run_until(lambda: later.ended and put.blame is not None and told in a.heard)
    blames = [runs.blame, a.heard[waits].blame, later.blame, put.blame, a.heard[told].blame]
    assert [each and each.code for each in blames] == ["host-lost"] * 5
    goes_on = _over(w, a, here)
    w.return_host(1)
    w.run_for(10 * MS)
    return _good(w, goes_on, a.submit(there, *_zeros(there)))


def a_host_that_returns_is_new() -> World:
    """A host joins under another incarnation, at the next epoch. Its arrays are gone, and its old messages are
    refused."""
    w = _world(hosts=2)
    program = chain(1, devices=2)
    a = w.client("a")
    _over(w, a, program)
    w.crash_host(1)
    w.return_host(1)
    w.run_for(10 * MS)
    return _good(w, a.submit(program, *_zeros(program)))


def a_host_leaves_when_its_work_is_done() -> World:
    """A planned stop: what is in flight ends, then the island forms without the host."""
    w = _world(hosts=2)
    program = _steps(3, devices=2)
    a = w.client("a")
    run = a.submit(program, *_zeros(program))
    assert w.run_until(lambda: len(w.gangs) == 3)
    w.leave_host(1)
    return _good(w, run)


def a_lost_device_takes_its_slices_along() -> World:
    """The host stays and one of its devices does not: the epoch ends, and slices move."""
    w = _world(hosts=1, devices_per_host=2)
    program = chain(1, devices=1)
    a = w.client("a")
    _over(w, a, program)
    w.lose_device(0)
    w.run_for(10 * MS)
    return _good(w, a.submit(program, *_zeros(program)))


def a_cut_connection_resumes() -> World:
    """A connection breaks while gangs are on their way. The link sends the lost messages again, once and in order."""
    w = _world(hosts=2)
    program = _steps(3, devices=2)
    a = w.client("a")
    run = a.submit(program, *_zeros(program))
    assert w.run_until(lambda: len(w.gangs) == 3)
    w.cut("controller", "host 1")
    w.run_for(5 * MS)
    w.mend("controller", "host 1")
    return _good(w, run)


def a_lost_path_is_fenced() -> World:
    """A relay no longer reaches the host below it. Every host gets a new seat, the old path is refused, and the
    messages lost on it come again through the new tree."""
    w = World(small(3, 1), seed=7, diary=True, config=Config(fanout=1))
    program = _steps(4, devices=3)
    a = w.client("a")
    run = a.submit(program, *_zeros(program))
    assert w.run_until(lambda: len(w.gangs) == 4)
    w.cut("host 1", "host 2", silent=True)
    return _good(w, run, a.submit(program, *_zeros(program)))


def a_client_that_dies_frees_what_it_owned() -> World:
    """The dead client's runs end, its buffers are freed, and its slices released. The other client's run goes on."""
    w = _world(hosts=1)
    program = _steps(2, devices=1)
    a, b = w.client("a"), w.client("b")
    first = a.submit(program, *_zeros(program))
    other = b.submit(program, *_zeros(program))
    assert w.run_until(lambda: first.ended)
    w.crash_client("a")
    return _good(w, other)


def a_stall_is_reported_by_name() -> World:
    """A host does not handle its messages. At the soft bound the client learns which node waits for which host. The run
    succeeds when the host catches up."""
    config = Config(bounds=Bounds(floor=20 * MS, factor=2))
    w = _world(hosts=2, config=config)
    program = chain(1, devices=2)
    a = w.client("a")
    _over(w, a, program)
    w.slow(1, 1, lag=50 * MS)
    second = a.submit(program, *_zeros(program))
    _good(w, second)
    assert any("has not" in line for line in a.told)
    return w


def a_restarted_controller_rebuilds_what_it_can() -> World:
    """Hosts report their buffers, and the client reports what it holds: its buffer is its own again and can be read.
    The run that was under way is reported as cut short."""
    w = _world(hosts=2)
    program = _steps(2, devices=2, cost=20 * MS)
    a = w.client("a")
    kept = _over(w, a, program)
    cut_short = a.submit(program, *_zeros(program))
    assert w.run_until(lambda: len(w.gangs) == 4)
    w.run_for(5 * MS)
    w.restart_controller()
    assert w.run(limit=120 * S)
    assert cut_short.blame is not None
    assert cut_short.blame.code == "restart"
    return _good(w, a.submit(program, kept.results[0]))


def an_older_state_is_not_obeyed() -> World:
    """The controller is started with a copy of its state from before its last start. Hosts have served that start, so
    they are no members, and keep what they have; the client's session ends by name. With the newest state all go on."""
    w = _world(hosts=2)
    program = _steps(2, devices=2)
    a = w.client("a")
    w.restart_controller()
    newest = w.past
    _over(w, a, program)
    w.restart_controller(newest[:1])
    w.run_for(1 * S)
    assert a.machine.state == "closed"
    assert sorted(w.machine.state.strangers.values()) == [0, 1]
    w.restart_controller(newest)
    b = w.client("b")
    return _good(w, b.submit(program, *_zeros(program)))
