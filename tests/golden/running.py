"""Behaviours when all goes well: dispatch, order, transfers, memory, policies."""

from __future__ import annotations

from core.controller import Config
from core.model.program import Program, SliceSpec
from core.model.topology import Cluster, Island, small
from core.schedule.policy import Policy, Ready, Stride, Ticket
from tests.core.build import Build, chain, moe
from tests.world.script import RunHandle, Script
from tests.world.timing import MS, US
from tests.world.world import World

KIB = 1024


def _world(hosts: int = 2, devices_per_host: int = 1, islands: int = 1, **options: object) -> World:
    return World(small(hosts, devices_per_host, islands), seed=7, diary=True, **options)  # type: ignore[arg-type]


def _tight(memory: int, host_memory: int = 1024 * KIB, host_disk: int = 0) -> World:
    """One host with one device of little memory."""
    island = Island(name="i0", hosts=1, devices_per_host=1, memory=memory, host_memory=host_memory, host_disk=host_disk)
    return World(Cluster((island,)), seed=7, diary=True)


def _zeros(program: Program) -> tuple[bytes, ...]:
    return tuple(bytes(value.nbytes) for value in program.args)


def _good(world: World, *runs: RunHandle) -> World:
    assert world.run()
    for run in runs:
        assert run.good, run.blame
    return world


def _make(client: Script, nbytes: int, name: str = "make") -> RunHandle:
    """Submit a run whose result takes so many bytes of the one device."""
    b = Build(name, s=1)
    x = b.arg("s", 1, dtype="int8")
    made = b.call(name, "s", [x], [b.value("s", nbytes, dtype="int8")])
    return client.submit(b.program(made), b"\0")


def _crossing(first: str, second: str, name: str) -> Program:
    """A node on one island, and a node on the other island that reads it."""
    b = Build(name)
    b.slices = [SliceSpec(f"{name}-{i}", 1, island=i) for i in (first, second)]
    x = b.call("here", f"{name}-{first}", [b.arg(f"{name}-{first}", 4)], node=f"{name} on {first}")
    y = b.call("there", f"{name}-{second}", [x], node=f"{name} on {second}")
    return b.program(y)


# --- dispatch -----------------------------------------------------------------------------------------------------


def one_gang_on_two_hosts() -> World:
    """Hosts join, the epoch forms, a program is compiled, and one gang runs on both hosts at once."""
    w = _world()
    program = chain(1, devices=2)
    return _good(w, w.client("a").submit(program, *_zeros(program)))


def a_subgraph_is_one_message() -> World:
    """Parallel dispatch: all nodes of a regular program enter the order in one turn, and each host gets one message
    for all of them, ahead of the data."""
    w = _world()
    program = chain(4, devices=2)
    return _good(w, w.client("a").submit(program, *_zeros(program)))


def a_plan_is_sent_once() -> World:
    """The second run of a program is a few integers: hosts have the plan and the code. Its argument is the first run's
    result, named before it existed."""
    w = _world()
    program = chain(2, devices=2)
    a = w.client("a")
    first = a.submit(program, *_zeros(program))
    second = a.submit(program, first.results[0])
    return _good(w, first, second)


def sequential_dispatch_waits_for_each_enqueue() -> World:
    """The baseline: a node enters when every host has enqueued the nodes before it, so host work adds up."""
    w = _world()
    program = chain(3, devices=2)
    return _good(w, w.client("a").submit(program, *_zeros(program), dispatch="sequential"))


def what_follows_an_irregular_node_waits_for_its_size() -> World:
    """An irregular node's bound is reserved. Its reader enters when it has run, with the size that came out."""
    w = _world()
    b = Build("irregular", s=2)
    x = b.call("sieve", "s", [b.arg("s", 8, split="0")], irregular=True)
    program = b.program(b.call("sum", "s", [x]))
    return _good(w, w.client("a").submit(program, *_zeros(program)))


def a_sparse_exchange_ends_when_all_has_come() -> World:
    """Data decide which shards send to which: sources count, relays add up, and each target learns how much to
    expect."""
    w = _world()
    program = moe(devices=2, tokens=8)
    return _good(w, w.client("a").submit(program, *_zeros(program)))


def a_stopped_gang_ends_with_its_step() -> World:
    """A gang of several steps is told to stop while it runs. It ends with the step that is under way, on both hosts,
    and the client hears how many steps it has left undone."""
    w = _world()
    b = Build("train", s=2)
    program = b.program(b.call("step", "s", [b.arg("s", 4)], cost=1000 * MS, steps=1000))
    a = w.client("a")
    run = a.submit(program, *_zeros(program))
    w.run_until(lambda: w.now >= 20 * MS)
    a.stop(run)
    return _good(w, run)


# --- islands and transfers ------------------------------------------------------------------------------------------


def a_transfer_enters_behind_its_producer() -> World:
    """A value is made on one island and read on the other. Both halves of the move enter with the producer, memory for
    it is reserved, and the reader is prepared at once and launched when the data are there."""
    w = _world(hosts=1, islands=2)
    program = _crossing("i0", "i1", "ab")
    return _good(w, w.client("a").submit(program, *_zeros(program)))


def two_islands_crossed_both_ways() -> World:
    """Two programs cross two islands in opposite directions and never wait for each other in a circle, because there is
    one global sequence."""
    w = _world(hosts=1, islands=2, config=Config(early="always"))
    a, b = w.client("a"), w.client("b")
    one, other = _crossing("i0", "i1", "ab"), _crossing("i1", "i0", "ba")
    return _good(w, a.submit(one, *_zeros(one)), b.submit(other, *_zeros(other)))


def a_put_and_a_get() -> World:
    """Contents travel directly between client and host; no byte of them passes through the controller."""
    w = _world(hosts=1)
    a = w.client("a")
    program = chain(1, devices=1)
    x = a.put(program.args[0], program.slices[0])
    run = a.submit(program, x)
    fetch = a.get(run.results[0])
    _good(w, run)
    assert fetch.right
    return w


# --- memory -----------------------------------------------------------------------------------------------------------


def a_donated_chain_keeps_the_window_full() -> World:
    """Each run takes over the memory of the one before: at 60 % of the device, three runs are in the order at once."""
    w = _tight(1000)
    a = w.client("a")
    b = Build("grow", s=1)
    x = b.arg("s", 600, dtype="int8", donate=True)
    program = b.program(b.call("grow", "s", [x], donate=(0,), cost=1 * MS))
    first = _make(a, 600)
    runs = [first]
    for _ in range(3):
        runs.append(a.submit(program, runs[-1].results[0]))
    return _good(w, *runs)


def a_run_waits_for_memory_and_goes_on() -> World:
    """Back-pressure instead of failure: the second run fits when the first one's result has been released."""
    w = _tight(1000, host_memory=100)
    a = w.client("a")
    first = _make(a, 700)
    second = _make(a, 600, "more")
    assert w.run_until(lambda: first.ended)
    w.run_for(2 * MS)
    a.release(first.results[0])
    return _good(w, first, second)


def an_idle_buffer_is_spilled_and_comes_back() -> World:
    """A result that is not in use makes room in host memory. A later run that reads it restores it first."""
    return _spilled_and_back(_tight(1000))


def an_idle_buffer_goes_to_disk_and_comes_back() -> World:
    """Host memory has no room for it, and the disk of its host has."""
    return _spilled_and_back(_tight(1000, host_memory=100, host_disk=1000))


def _spilled_and_back(w: World) -> World:
    a = w.client("a")
    first = _make(a, 700)
    assert w.run_until(lambda: first.ended)
    second = _make(a, 600, "more")
    assert w.run_until(lambda: second.ended)
    a.release(second.results[0])
    b = Build("read", s=1)
    program = b.program(b.call("sum", "s", [b.arg("s", 700, dtype="int8")], [b.value("s", 1, dtype="int8")]))
    return _good(w, first, second, a.submit(program, first.results[0]))


def a_run_that_never_fits_is_refused() -> World:
    """The run is refused at once, with the memory that it needs and the memory that there is."""
    w = _tight(1000)
    a = w.client("a")
    run = _make(a, 1500)
    assert w.run()
    assert run.blame is not None
    assert run.blame.code == "no-memory"
    return w


def hopeless_waiting_names_the_holders() -> World:
    """Nothing runs that could free memory, and host memory is full: the newest waiter fails, and its error names the
    holders."""
    w = _tight(1000, host_memory=100)
    a, b = w.client("a"), w.client("b")
    first = _make(a, 700)
    assert w.run_until(lambda: first.ended)
    second = _make(b, 600, "more")
    assert w.run()
    assert second.blame is not None
    assert "client 'a' holds buffer" in second.blame.cause
    return w


# --- sharing ----------------------------------------------------------------------------------------------------------


def a_long_compile_delays_nobody_else() -> World:
    """Gangs enter when all hosts have their code. The other client's gangs do not wait for that."""
    w = _world(hosts=1)
    b = Build("slow to compile", s=1)
    slow = b.program(b.call("slow", "s", [b.arg("s", 4)]))
    w.compiler.times["slow"] = 50 * MS
    quick = chain(1, devices=1)
    first = w.client("a").submit(slow, *_zeros(slow))
    second = w.client("b").submit(quick, *_zeros(quick))
    assert w.run_until(lambda: second.ended)
    assert not first.ended
    return _good(w, first, second)


def shares_follow_weights() -> World:
    """Two clients that always have work, with weights 1 and 2, under stride: of any three gangs two are b's."""
    w = _world(hosts=1, policy=Stride, config=Config(window=1))
    program = chain(1, devices=1)
    a, b = w.client("a", weight=1), w.client("b", weight=2)
    runs = [client.submit(program, *_zeros(program)) for _ in range(6) for client in (a, b)]
    return _good(w, *runs)


class _Confused(Policy):
    """A user's own policy that does not work."""

    def pick(self, ready: Ready, now: int) -> Ticket:
        raise KeyError("no such client")


def fifo_takes_over_from_a_policy_that_raises() -> World:
    """A user's policy raises. A report names it, and no run fails."""
    w = _world(hosts=1, policy=_Confused)
    program = chain(1, devices=1)
    return _good(w, w.client("a").submit(program, *_zeros(program)))


def an_exclusive_slice_waits_for_its_devices() -> World:
    """The slice waits, names the client that has the devices, and gets them when that client has gone."""
    w = _world(hosts=1)
    program = chain(1, devices=1)
    alone = Build("alone")
    alone.slices = [SliceSpec("mine", 1, exclusive=True)]
    exclusive = alone.program(alone.call("step", "mine", [alone.arg("mine", 4)]))
    a = w.client("a")
    first = a.submit(program, *_zeros(program))
    assert w.run_until(lambda: first.ended)
    second = w.client("b").submit(exclusive, *_zeros(exclusive))
    w.run_for(2 * MS)
    assert not second.ended
    w.crash_client("a")
    return _good(w, second)


def an_impossible_slice_is_refused_with_the_nearest_that_fits() -> World:
    """A client asks for more devices than there are. The error says what there is, what was asked, and what would
    fit."""
    w = _world()
    program = chain(1, devices=5)
    run = w.client("a").submit(program, *_zeros(program))
    assert w.run()
    assert run.blame is not None
    assert run.blame.code == "refused"
    return w


def cancel_leaves_ordered_gangs_where_they_are() -> World:
    """Gangs that have entered the order run to their end on both hosts. The rest never enters, and the client is told
    at once."""
    w = _world(config=Config(window=2))
    b = Build("long", s=2)
    x = b.arg("s", 2, split="0")
    for number in range(4):
        x = b.call("step", "s", [x], cost=1 * MS, node=f"step {number}")
    program = b.program(x)
    a = w.client("a")
    run = a.submit(program, *_zeros(program))
    assert w.run_until(lambda: len(w.gangs) >= 2)
    w.run_for(300 * US)
    a.cancel(run)
    assert w.run()
    assert run.blame is not None
    assert run.blame.code == "cancelled"
    return w


# --- views --------------------------------------------------------------------------------------------------------


def a_view_shares_the_memory_of_its_sources() -> World:
    """An array is made of a shard of another one and of an array that is on one device, all of which its client lets go
    of at once. One step in the order says it to both hosts, behind what makes the sources. What is shared is free when
    the view is, behind the gang that reads it."""
    world = _world()
    a = world.client("a")
    whole = SliceSpec("s", 2)
    b = Build("make", s=2)
    make = b.program(b.call("make", "s", [b.arg("s", 4, split="0")]))
    b = Build("alone")
    b.slices = [whole, SliceSpec("s[1]", 1, of="s", picks=(1,))]
    alone = b.program(b.call("alone", "s[1]", [b.arg("s[1]", 2)]))
    b = Build("read", s=2)
    x = b.arg("s", 4, split="0")
    read = b.program(b.call("read", "s", [x]))
    first, second = a.submit(make, bytes(16)).results[0], a.submit(alone, bytes(8)).results[0]
    view = a.view(x.value, whole, (first, 0), (second, 0))
    run = a.submit(read, view)
    a.release(first, second, view)
    return _good(world, run)
